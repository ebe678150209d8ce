// The page follows /api/events: the state whenever it changes, and the history as it grows.

import { clock, el, ranges, setText, $ } from "./dom.js";
import { History } from "./history.js";
import { PlanView } from "./plan.js";
import { drawPlanes, summary } from "./planes.js";
import { Timeline } from "./timeline.js";
import { drawUses } from "./uses.js";

let status = { planes: [], ports: [], uses: [], views: [] };
let lead = 0; // ms that the controller's clock is before this one's
const timeline = new Timeline();
const history = new History((j, name) => status.planes?.[j]?.name || name || status.names?.[j] || `plane ${j}`);
const plan = new PlanView();
const now = () => Date.now() + lead;

function show(next) {
  status = { ...next, planes: next.planes ?? [], ports: next.ports ?? [], uses: next.uses ?? [], views: next.views ?? [] };
  lead = Date.parse(status.time) - Date.now();
  document.title = `${status.name || "Lightpath"}${status.planes.some((p) => p.state === "down") ? " (plane down)" : ""}`;
  setText($("name"), status.name || "Lightpath");
  showRole();
  setText($("token"), status.token ? String(status.token) : "-");
  setText($("version"), status.version || "-");
  setText($("asof"), clock(Date.parse(status.time)));
  $("summary").replaceChildren(...summary(status));
  drawPlanes(status, (j) => timeline.lastSwitches.get(j));
  drawUses(status, now());
  drawJobs();
  drawPorts();
}

// drawJobs shows the jobs that a scheduler has begun.
function drawJobs() {
  const names = (planes) => planes.map((j) => status.planes[j]?.name || `plane ${j}`).join(", ");
  const rows = (status.jobs ?? []).map((job, i) => {
    const view = status.job_views?.[i] ?? { planes: [], waits: [] };
    const down = view.planes.filter((j) => status.planes[j]?.state === "down");
    const waits = view.waits.filter((j) => !down.includes(j));
    const circuits = waits.length ? `to be set: ${names(waits)}` : job.fixed ? "set" : "its ranks move them";
    return el("tr", {}, el("td", {}, job.id), el("td", {}, job.name || "-"), el("td", {}, names(view.planes)),
      el("td", {}, ranges(job.ports)), el("td", {}, `since ${clock(Date.parse(job.since))}`),
      el("td", { class: down.length ? "bad" : "" }, circuits + (down.length ? `; out of service: ${names(down)}` : "")));
  });
  replaceTable($("jobs"), ["job", "name", "planes", "ports", "", "circuits"], rows, "No scheduler has begun a job.");
}

function showRole() {
  const role = $("role");
  role.dataset.role = status.leader ? "leader" : status.problem ? "lost" : "standby";
  setText(role, status.leader ? "in charge" : status.problem ? "no answer" : status.in_charge ? `standby of ${status.in_charge}` : "standby");
}

function drawPorts() {
  const rows = status.ports.map((p) => el("tr", {}, el("td", { class: "n" }, String(p.port)), el("td", {}, p.attached ? p.who || "attached" : "no rank"),
    el("td", {}, p.attached && p.since ? `since ${clock(Date.parse(p.since))}` : "")));
  replaceTable($("ports"), ["port", "rank", ""], rows, "No ports are known here.");
  const switches = (status.switches ?? []).map((s) => el("tr", {}, el("td", {}, s.name), el("td", {}, [s.driver, s.model].filter(Boolean).join(", ")),
    el("td", {}, (s.planes ?? []).join(", ")), el("td", { class: s.error ? "bad" : "" }, s.error || "well")));
  replaceTable($("switches"), ["switch", "driver", "planes", "state"], switches, "Nothing is known of switches here.");
}

function replaceTable(host, heads, rows, empty) {
  const text = rows.map((r) => r.textContent).join("\n");
  if (host.dataset.text === text && host.childElementCount) return;
  host.dataset.text = text;
  host.replaceChildren(rows.length
    ? el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))), el("tbody", {}, ...rows))
    : el("p", { class: "empty" }, empty));
}

function happened(message) {
  timeline.add(message.events);
  history.add(message.events, message.skipped);
  drawPlanes(status, (j) => timeline.lastSwitches.get(j));
  drawTimeline();
}

const drawTimeline = () => document.hidden || timeline.draw(status, now());

// recall fills the timeline with what happened before this page was opened.
async function recall() {
  const kinds = ["switched", "failed", "restored", "took-over", "commanded"].map((k) => `kind=${k}`).join("&");
  try {
    const page = await (await fetch(`api/history?since=30m&limit=5000&${kinds}`)).json();
    timeline.add((page.events ?? []).reverse());
  } catch {
    // The stream will tell; the table of the history says why it cannot be read.
  }
  drawPlanes(status, (j) => timeline.lastSwitches.get(j));
  drawTimeline();
}

function follow() {
  const stream = new EventSource("api/events");
  stream.addEventListener("open", () => {
    document.body.classList.remove("stale");
    recall();
    if (history.following) history.start();
  });
  stream.addEventListener("error", () => {
    document.body.classList.add("stale");
    $("role").dataset.role = "lost";
    setText($("role"), "not connected, trying again");
    // After an answer that is no stream the browser gives up; this page does not.
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 3000);
  });
  stream.addEventListener("status", (m) => show(JSON.parse(m.data)));
  stream.addEventListener("history", (m) => happened(JSON.parse(m.data)));
  stream.addEventListener("problem", (m) => setText($("summary"), JSON.parse(m.data).error));
}

for (const button of $("ranges").children) {
  button.addEventListener("click", () => {
    for (const b of $("ranges").children) b.setAttribute("aria-pressed", String(b === button));
    timeline.minutes = Number(button.dataset.minutes);
    drawTimeline();
  });
}
new ResizeObserver(() => { drawTimeline(); plan.draw(); }).observe($("timeline"));
setInterval(() => { drawTimeline(); if (status.uses.length) drawUses(status, now()); }, 1000);
// A standby hears of nothing: it reads the history that the controller in charge writes.
setInterval(() => { if (!status.leader && !document.hidden && history.following) { recall(); history.start(); } }, 5000);
document.addEventListener("visibilitychange", drawTimeline);
drawTimeline();
plan.start();
follow();

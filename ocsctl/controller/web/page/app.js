// The page follows /api/events: the state at first, then what of it changes, and the history as it grows. It draws at
// most once per frame.

import { clock, options, ranges, setText, Table, $ } from "./dom.js";
import { History } from "./history.js";
import { PlanView } from "./plan.js";
import { drawPlanes, summary } from "./planes.js";
import { PortsView } from "./ports.js";
import { find, parse } from "./search.js";
import { Timeline } from "./timeline.js";
import { drawUses } from "./uses.js";

let status = { planes: [], ports: [], uses: [], views: [] };
let lead = 0; // ms that the controller's clock is before this one's
let marked = null; // the ports that the search has found; null: nothing is searched
const timeline = new Timeline();
const history = new History((j, name) => status.planes[j]?.name || name || status.names?.[j] || `plane ${j}`);
const plan = new PlanView();
const ports = new PortsView((plane, port) => history.choose(plane, port));
const jobs = new Table($("jobs"), ["job", "name", "planes", "ports", "", "circuits"], "No scheduler has begun a job.");
const switches = new Table($("switches"), ["switch", "driver", "planes", "state"], "Nothing is known of switches here.");
const now = () => Date.now() + lead;

// show takes a whole state. A plane whose map is not known is drawn dark.
function show(next) {
  const ports = next.ports ?? [];
  const planes = (next.planes ?? []).map((p) => p.map ? p : { ...p, unknown: true, map: ports.map(() => -1) });
  status = { ...next, planes, ports, uses: next.uses ?? [], views: next.views ?? [] };
  lead = Date.parse(status.time) - Date.now();
  draw();
}

// change takes the fields of the state that have changed. Of a list of the same length it has the changed elements, by
// number.
function change(fields) {
  const next = { ...status };
  for (const [name, value] of Object.entries(fields)) {
    next[name] = Array.isArray(status[name]) && value && !Array.isArray(value) ? Object.assign([...status[name]], value) : value;
  }
  show(next);
}

let drawing = false;

function draw() {
  if (drawing) return;
  drawing = true;
  (document.hidden ? setTimeout : requestAnimationFrame)(() => {
    drawing = false;
    drawAll();
  });
}

function drawAll() {
  document.title = `${status.name || "Lightpath"}${status.planes.some((p) => p.state === "down") ? " (plane down)" : ""}`;
  setText($("name"), status.name || "Lightpath");
  showRole();
  setText($("token"), status.token ? String(status.token) : "-");
  setText($("version"), status.version || "-");
  setText($("asof"), status.time ? clock(Date.parse(status.time)) : "-");
  $("summary").replaceChildren(...summary(status));
  marked = search();
  drawPlanes(status, (j) => timeline.lastSwitches.get(j), marked, (j) => ports.open(j));
  ports.show(status, marked);
  drawUses(status, now());
  drawJobs();
  drawSwitches();
  drawTimeline();
  const names = (status.planes.length ? status.planes.map((p) => p.name) : (status.names ?? [])).map((name, j) => [String(j), name || String(j)]);
  if ($("history-plane").options.length !== names.length + 1) options($("history-plane"), [["", "all"], ...names]);
}

// search returns the ports that the search finds, the same set while that has not changed.
function search() {
  const found = find(parse($("search").value), status);
  return found && marked && found.size === marked.size && [...found].every((p) => marked.has(p)) ? marked : found;
}

// drawJobs shows the jobs that a scheduler has begun.
function drawJobs() {
  const names = (planes) => planes.map((j) => status.planes[j]?.name || `plane ${j}`).join(", ");
  jobs.show((status.jobs ?? []).map((job, i) => {
    const view = status.job_views?.[i] ?? { planes: [], waits: [] };
    const down = view.planes.filter((j) => status.planes[j]?.state === "down");
    const waits = view.waits.filter((j) => !down.includes(j));
    const circuits = waits.length ? `to be set: ${names(waits)}` : job.fixed ? "set" : "its ranks move them";
    return {
      key: job.id, bad: down.length ? [5] : [],
      cells: [job.id, job.name || "-", names(view.planes), ranges(job.ports), `since ${clock(Date.parse(job.since))}`,
        circuits + (down.length ? `; out of service: ${names(down)}` : "")],
    };
  }));
}

function drawSwitches() {
  switches.show((status.switches ?? []).map((s) => ({
    key: s.name, bad: s.error ? [3] : [],
    cells: [s.name, [s.driver, s.model].filter(Boolean).join(", "), (s.planes ?? []).join(", "), s.error || "well"],
  })));
}

function showRole() {
  const role = $("role");
  role.dataset.role = status.leader ? "leader" : status.problem ? "lost" : "standby";
  setText(role, status.leader ? "in charge" : status.problem ? "no answer" : status.in_charge ? `standby of ${status.in_charge}` : "standby");
}

function happened(message) {
  timeline.add(message.events);
  history.add(message.events, message.skipped);
  draw();
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
  draw();
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
  stream.addEventListener("change", (m) => change(JSON.parse(m.data)));
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
$("search").addEventListener("input", draw);
new ResizeObserver(([entry]) => {
  timeline.width = Math.max(280, entry.contentRect.width - 2);
  drawTimeline();
  plan.draw();
}).observe($("timeline"));
setInterval(() => { drawTimeline(); if (status.uses.length) drawUses(status, now()); }, 1000);
// A standby hears of nothing: it reads the history that the controller in charge writes.
setInterval(() => { if (!status.leader && !document.hidden && history.following) { recall(); history.start(); } }, 5000);
document.addEventListener("visibilitychange", drawTimeline);
drawTimeline();
plan.start();
follow();

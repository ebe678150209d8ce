// The history as a table: follows what happens, or pages back.

import { clock, duration, el, holderName, listed, many, mapName, options, setText, $ } from "./dom.js";

const pageSize = 50, followed = 100;
const kinds = ["switched", "failed", "restored", "granted", "released", "attached", "detached", "began", "ended", "commanded", "took-over", "settled", "lost", "measured", "dimmed", "brightened", "remapped", "excluded", "included"];

export class History {
  constructor(planeName) {
    this.planeName = planeName;
    this.before = 0; // where the next older page begins
    this.following = true;
    this.newest = 0;
    this.late = null; // what happens while the newest page is read
    options($("history-kind"), [["", "all"], ...kinds.map((k) => [k, k])]);
    for (const id of ["history-plane", "history-port", "history-kind"]) $(id).addEventListener("change", () => this.start());
    $("older").addEventListener("click", () => this.older());
    $("newest").addEventListener("click", () => this.start());
  }

  // choose shows the history of a port of a plane.
  choose(plane, port) {
    $("history-plane").value = String(plane);
    $("history-port").value = String(port);
    this.start();
  }

  // start shows the newest page and follows from there.
  async start() {
    this.late = [];
    const page = await this.ask();
    const late = this.late ?? [];
    this.late = null;
    if (!page) return;
    this.following = true;
    this.newest = page.events[0]?.seq ?? 0;
    $("history").replaceChildren(...page.events.map((e) => this.row(e)));
    this.turned(page);
    this.add(late);
  }

  // older appends the next older page, and stops to follow: rows must not move while they are read.
  async older() {
    const page = await this.ask(this.before);
    if (!page) return;
    this.following = false;
    $("history").append(...page.events.map((e) => this.row(e)));
    this.turned(page);
  }

  turned(page) {
    this.before = page.before ?? 0;
    $("older").disabled = !this.before;
    $("newest").disabled = this.following;
    const rows = $("history").childElementCount;
    setText($("history-note"), rows ? `${rows} shown${this.before ? "" : ", back to the beginning of what is kept"}` : "Nothing has happened so far.");
  }

  async ask(before) {
    const q = new URLSearchParams({ limit: pageSize });
    if (before) q.set("before", before);
    for (const name of ["plane", "port", "kind"]) if ($(`history-${name}`).value !== "") q.set(name, $(`history-${name}`).value);
    try {
      const answer = await fetch(`api/history?${q}`);
      const body = await answer.json();
      if (answer.ok) return body;
      setText($("history-note"), body.error);
    } catch (err) {
      setText($("history-note"), `The history cannot be read: ${err.message}`);
    }
    return null;
  }

  // add takes events as they happen, oldest first. If some are missing in between, the page is read again.
  add(events, skipped) {
    if (this.late) return this.late.push(...events);
    if (!this.following) return;
    if (skipped) return this.start();
    const body = $("history");
    const plane = $("history-plane").value, port = $("history-port").value, kind = $("history-kind").value;
    for (const e of events) {
      if (e.seq <= this.newest || (plane !== "" && String(e.plane) !== plane) || (kind !== "" && e.kind !== kind) || !ofPort(e, port)) continue;
      this.newest = e.seq;
      body.prepend(this.row(e));
    }
    while (body.childElementCount > followed) {
      body.lastElementChild.remove();
      this.before = Number(body.lastElementChild.dataset.seq);
      $("older").disabled = false;
    }
    if (body.childElementCount) setText($("history-note"), `${body.childElementCount} shown`);
  }

  row(e) {
    const t = Date.parse(e.time);
    return el("tr", { class: e.error ? "bad" : undefined, "data-kind": e.kind, "data-seq": e.seq },
      el("td", { title: e.time }, clock(t, true)), el("td", {}, e.plane >= 0 ? this.planeName(e.plane, e.name) : ""),
      el("td", { class: "n" }, e.plane >= 0 ? String(e.epoch) : ""), el("td", { class: "kind" }, e.kind),
      el("td", { class: "n" }, duration(e.took)), el("td", { class: "n" }, duration(e.waited)), el("td", {}, e.verified ?? ""), el("td", {}, this.what(e)));
  }

  what(e) {
    const parts = [];
    if (e.to?.length) parts.push(e.from?.length ? `${mapName(e.from)} \u2192 ${mapName(e.to)}` : mapName(e.to));
    if (e.holder_id) parts.push(`communicator ${holderName(e.holder_id)}`);
    if (e.planes?.length) parts.push(listed(e.planes.map((j) => this.planeName(j))));
    if (e.port >= 0 && e.kind !== "switched") parts.push(`port ${e.port}`);
    if (e.moved) parts.push(`now ${e.moved.to}, ${e.moved.from} in the fabric file`);
    if (e.baselines) parts.push(`baselines of ${many(Object.keys(e.baselines).length, "port")}`);
    if (e.trial) parts.push(`to be confirmed until ${clock(Date.parse(e.trial.until))}`);
    if (e.job) parts.push(`job ${e.job.id}`);
    if (e.who) parts.push(e.who);
    if (e.kind === "took-over" && e.token) parts.push(`token ${e.token}`);
    if (e.error) parts.push(e.error);
    return parts.join("; ");
  }
}

// ofPort says whether an event is about a port: its rank, or its circuits. "" is any port.
function ofPort(e, port) {
  const r = Number(port);
  const moved = (map, other) => (map?.[r] ?? -1) !== (other?.[r] ?? -1) || (map ?? []).indexOf(r) !== (other ?? []).indexOf(r);
  return port === "" || e.port === r || (e.to?.length > 0 && moved(e.from, e.to));
}

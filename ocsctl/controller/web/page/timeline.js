// What happened to each plane in the last minutes: a row per plane, newest at the right.

import { clock, duration, mapName, svg, $ } from "./dom.js";

const row = 24, axis = 20, kept = 20000;
const ticks = { 1: 10, 5: 60, 30: 300 }; // minutes shown: seconds between ticks

export class Timeline {
  constructor() {
    this.events = []; // oldest first
    this.minutes = 5;
    this.width = 280; // of the drawing; to ask the document for it would lay out the page
    this.lastSwitches = new Map();
  }

  // add takes events in order, older ones than those that are there too; what is known already is
  // left out.
  add(events) {
    for (const e of events) {
      if (e.kind === "switched" && !(this.lastSwitches.get(e.plane)?.seq >= e.seq)) this.lastSwitches.set(e.plane, e);
    }
    const shown = events.filter((e) => ["switched", "failed", "restored", "took-over", "commanded"].includes(e.kind));
    const last = this.events.at(-1)?.seq ?? 0;
    const older = shown.filter((e) => e.seq <= last);
    if (older.length) {
      const known = new Set(this.events.map((e) => e.seq));
      this.events = [...older.filter((e) => !known.has(e.seq)), ...this.events].sort((x, y) => x.seq - y.seq);
    }
    this.events.push(...shown.filter((e) => e.seq > last));
    if (this.events.length > kept) this.events.splice(0, this.events.length - kept);
  }

  draw(status, now) {
    const host = $("timeline");
    const names = planeNames(status, this.events);
    const w = this.width, label = Math.min(110, w * 0.2);
    const from = now - this.minutes * 60e3;
    const x = (t) => label + ((t - from) / (now - from)) * (w - label);
    const shapes = [];
    const step = ticks[this.minutes] * 1000 * (w < 500 ? 2 : 1);
    const height = names.length * row + axis;
    for (let t = Math.ceil(from / step) * step; t < now; t += step) {
      shapes.push(svg("line", { class: "grid", x1: x(t), x2: x(t), y1: 0, y2: height - axis }));
      if (x(t) < w - 22) shapes.push(svg("text", { x: x(t), y: height - 5, "text-anchor": "middle" }, clock(t)));
    }
    names.forEach((name, j) => {
      shapes.push(svg("rect", { class: "track", x: label, y: j * row + 4, width: w - label, height: row - 8, rx: 3 }));
      shapes.push(svg("text", { class: "label", x: 0, y: j * row + 16 }, name.length > label / 8 ? `${name.slice(0, label / 8 - 1)}\u2026` : name));
      shapes.push(...this.bars(j, status.planes?.[j], from, now, x, label));
    });
    for (const e of this.events) {
      const t = Date.parse(e.time);
      if (e.kind !== "took-over" || t < from) continue;
      shapes.push(svg("line", { class: "over", x1: x(t), x2: x(t), y1: 0, y2: height - axis }, svg("title", {}, `${clock(t)} ${e.who || "a controller"} took over, token ${e.token ?? "?"}`)));
    }
    host.replaceChildren(svg("svg", { viewBox: `0 0 ${w} ${height}`, width: w, height, role: "img", "aria-label": "reconfigurations by plane" }, ...shapes));
  }

  // bars draws one plane. What would fall onto a pixel that is taken is left out.
  bars(plane, state, from, now, x, left) {
    const bars = [];
    const y = plane * row + 4, h = row - 8;
    let taken = -1, downSince = null;
    const bar = (kind, start, end, title, least) => {
      const a = Math.max(left, x(start));
      bars.push(svg("rect", { class: kind, x: a.toFixed(1), y, width: Math.max(least, x(end) - a).toFixed(1), height: h }, svg("title", {}, title)));
    };
    for (const e of this.events) {
      if (e.plane !== plane) continue;
      const t = Date.parse(e.time);
      if (e.kind === "failed" || (e.kind === "commanded" && e.error)) downSince ??= t; // disabled, too
      if ((e.kind === "restored" || (e.kind === "commanded" && !e.error)) && downSince !== null) {
        if (t > from) bar("down", downSince, t, "out of service", 2);
        downSince = null;
      }
      if (t < from || t > now) continue;
      if (e.kind === "failed") bar("failed", t, t, `${clock(t, true)} failed: ${e.error ?? ""}`, 2.5);
      if (e.kind !== "switched" || x(t) < taken + 1) continue;
      const took = (e.took ?? 0) / 1e6, waited = (e.waited ?? 0) / 1e6;
      taken = x(t);
      if (waited) bar("waited", t - took - waited, t - took, `waited ${duration(e.waited)}`, 0);
      bar("took", t - took, t, `${clock(t, true)} epoch ${e.epoch}: ${mapName(e.from)} \u2192 ${mapName(e.to)}, took ${duration(e.took) || "no time"}, waited ${duration(e.waited) || "for nobody"}`, 2);
    }
    if (downSince !== null && (!state || state.state === "down")) bar("down", downSince, now, state?.reason ?? "out of service", 2);
    return bars;
  }
}

// planeNames are those of the state, or on a standby as many as the history has.
function planeNames(status, events) {
  if (status.planes?.length) return status.planes.map((p) => p.name);
  const names = [...(status.names ?? [])];
  for (const e of events) if (e.plane >= 0) names[e.plane] = e.name || `plane ${e.plane}`;
  return Array.from(names, (name, j) => name ?? `plane ${j}`);
}

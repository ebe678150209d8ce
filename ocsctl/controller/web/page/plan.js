// A plan's timeline against what happened: above what was meant, below what the history has.

import { clock, duration, mapName, options, setText, svg, $ } from "./dom.js";

const lane = 17, gap = 12, axis = 20;

export class PlanView {
  constructor() {
    this.comparison = null;
    $("plan").addEventListener("change", () => this.choose());
    $("run").addEventListener("change", () => this.draw());
    $("plan-again").addEventListener("click", () => this.start());
  }

  async start() {
    const plans = await read("api/plans");
    if (!plans) return;
    options($("plan"), plans.map((p) => [p.name, p.title || p.name]));
    $("plan").disabled = $("run").disabled = !plans.length;
    if (plans.length) return this.choose();
    this.comparison = null;
    $("plan-drawing").replaceChildren();
    setText($("plan-note"), "The controller knows no plans.");
  }

  async choose() {
    this.comparison = await read(`api/plan?name=${encodeURIComponent($("plan").value)}`);
    if (!this.comparison) return;
    options($("run"), this.comparison.runs.map((r, i) => [String(i), `${clock(Date.parse(r.start), true)}, ${duration(r.late_us * 1e3) || "0"} late`]));
    this.draw();
  }

  draw() {
    if (!this.comparison) return;
    const { plan, runs, note } = this.comparison;
    const run = runs[Number($("run").value)];
    const host = $("plan-drawing");
    const w = Math.max(280, host.clientWidth - 30), label = Math.min(110, w * 0.2);
    const end = Math.max(plan.end_us, ...(run?.happened ?? []).map((h) => h.end_us), 1e-3);
    const start = Math.min(0, ...(run?.happened ?? []).map((h) => h.start_us - h.waited_us));
    const x = (us) => label + ((us - start) / (end - start)) * (w - label - 1);
    const bar = (kind, y, from, to, title, h = lane) =>
      svg("rect", { class: kind, x: x(from).toFixed(1), y, width: Math.max(1.5, x(to) - x(from)).toFixed(1), height: h, rx: 2 }, svg("title", {}, title));
    const shapes = [];
    const planeHeight = 2 * lane + 3 + gap, height = plan.planes.length * planeHeight + axis;
    plan.planes.forEach((intervals, k) => {
      const y = k * planeHeight + 2;
      shapes.push(svg("text", { class: "label", x: 0, y: y + 12 }, `plane ${run?.planes?.[k] ?? k}`), svg("text", { x: 0, y: y + lane + 15 }, "happened"));
      shapes.push(svg("rect", { class: "track", x: label, y, width: w - label, height: 2 * lane + 3, rx: 3 }));
      for (const i of thin(intervals, x)) {
        const title = i.kind === "reconfigure" ? `planned: to ${mapName(i.to)}` : i.kind === "hold" ? "planned: hold" : `planned: step ${i.step}`;
        shapes.push(bar(i.kind === "reconfigure" ? "planned" : i.kind, y, i.start_us, i.end_us, `${title}, ${span(i)}`));
        if (i.kind === "transmit" && x(i.end_us) - x(i.start_us) > 20) {
          shapes.push(svg("text", { class: "inside", x: (x(i.start_us) + x(i.end_us)) / 2, y: y + 12.5 }, String(i.step)));
        }
      }
      for (const h of (run?.happened ?? []).filter((h) => h.plane === k)) {
        const meant = intervals[h.planned];
        const title = `happened: to ${mapName(meant.to)}, epoch ${h.epoch}, ${span(h)}, ${duration(h.late_us * 1e3) || "0"} late${h.verified ? `, verified by ${h.verified}` : ""}`;
        if (h.waited_us > 0) shapes.push(bar("waited", y + lane + 3, h.start_us - h.waited_us, h.start_us, `waited for ports ${duration(h.waited_us * 1e3)}`));
        shapes.push(bar("took", y + lane + 3, h.start_us, h.end_us, title));
        shapes.push(svg("line", { class: "link", x1: x(meant.end_us), y1: y + lane, x2: x(h.end_us), y2: y + lane + 3 }));
      }
    });
    for (let i = 0; i <= 4; i++) {
      const us = start + ((end - start) * i) / 4;
      shapes.push(svg("text", { x: x(us), y: height - 5, "text-anchor": i === 0 ? "start" : i === 4 ? "end" : "middle" }, duration(us * 1e3) || "0"));
    }
    host.replaceChildren(svg("svg", { viewBox: `0 0 ${w} ${height}`, width: w, height, role: "img", "aria-label": "the plan and what happened" }, ...shapes));
    setText($("plan-note"), run
      ? `Each plane: what was planned above (numbers are steps), what happened below. The run is laid so that its timeliest switch is in time; the latest was ${duration(run.late_us * 1e3) || "0"} late.`
      : note ?? "");
  }
}

const span = (i) => `${duration(i.start_us * 1e3) || "0"} to ${duration(i.end_us * 1e3) || "0"}`;

// thin leaves out what would fall onto a pixel that is taken.
function thin(intervals, x) {
  let taken = -1;
  return intervals.filter((i) => {
    if (x(i.end_us) < taken + 0.5) return false;
    taken = x(i.end_us);
    return true;
  });
}

async function read(url) {
  try {
    const answer = await fetch(url);
    const body = await answer.json();
    if (answer.ok) return body;
    setText($("plan-note"), body.error);
  } catch (err) {
    setText($("plan-note"), `It cannot be read: ${err.message}`);
  }
  return null;
}

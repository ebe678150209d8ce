// Who has planes and who waits for whom: a sentence for each, and the same as a graph.

import { duration, el, listed, svg, $ } from "./dom.js";
import { useName } from "./planes.js";

const shownUses = 12; // in the graph

export function drawUses(status, now) {
  const names = (planes) => listed(planes.map((j) => status.planes?.[j]?.name || `plane ${j}`));
  const uses = status.uses ?? [];
  const rows = uses.map((use) => {
    const age = duration(Math.max(0, now - Date.parse(use.since)) * 1e6) || "a moment";
    const text = use.granted
      ? ` has ${names(use.planes)} since ${age}`
      : ` waits for ${names(use.planes)} since ${age}${use.behind?.length ? `, behind ${listed(use.behind.map((h) => useName({ holder: h })))}` : ""}`;
    return el("li", { class: use.granted ? "has" : "waits" }, el("b", {}, useName(use)), text,
      el("span", { class: "who" }, ` (asked by port ${use.port}${use.who ? `, ${use.who}` : ""})`));
  });
  if (!rows.length) rows.push(el("li", { class: "empty" }, status.leader ? "No communicator has planes, and none waits." : "Not known here."));
  $("uses").replaceChildren(...rows);
  drawGraph(status, uses.slice(0, shownUses));
}

// drawGraph puts those who wait left, planes in the middle, those who have them right.
function drawGraph(status, uses) {
  const host = $("graph");
  const key = JSON.stringify([uses.map((u) => [u.granted, u.holder, u.planes]), (status.planes ?? []).map((p) => p.name)]);
  if (host.dataset.key === key) return;
  host.dataset.key = key;
  const used = [...new Set(uses.flatMap((u) => u.planes))].sort((a, b) => a - b);
  if (!used.length) return host.replaceChildren();
  const columns = [uses.filter((u) => !u.granted), used, uses.filter((u) => u.granted)];
  const rows = Math.max(...columns.map((c) => c.length));
  const step = 30, height = rows * step, w = 92, at = [0, 144, 288];
  const y = (column, i) => ((i + 0.5) * height) / columns[column].length;
  const shapes = [], lines = [];
  const node = (column, i, text, kind) =>
    shapes.push(svg("rect", { class: `node ${kind}`, x: at[column] + 0.5, y: y(column, i) - 11, width: w, height: 22, rx: 6 }),
      svg("text", { class: "inside", x: at[column] + w / 2, y: y(column, i) + 4 }, text.length > 13 ? `${text.slice(0, 12)}\u2026` : text));
  used.forEach((j, i) => node(1, i, status.planes?.[j]?.name || `plane ${j}`, ""));
  for (const column of [0, 2]) {
    columns[column].forEach((use, i) => {
      node(column, i, useName(use).slice(0, 12), use.granted ? "has" : "waits");
      for (const j of use.planes) {
        const [x1, x2] = column ? [at[1] + w, at[2]] : [at[0] + w, at[1]];
        const [y1, y2] = column ? [y(1, used.indexOf(j)), y(2, i)] : [y(0, i), y(1, used.indexOf(j))];
        lines.push(svg("path", { class: use.granted ? "edge" : "edge waits", d: `M${x1} ${y1}C${x1 + 26} ${y1} ${x2 - 26} ${y2} ${x2} ${y2}` }));
      }
    });
  }
  host.replaceChildren(svg("svg", { viewBox: `0 0 381 ${height}`, role: "img", "aria-label": "who waits for which planes, and who has them" }, ...lines, ...shapes));
}

// Planes as cards: state, circuits, who uses them, what the next switch waits for.

import { clock, duration, el, holderName, listed, many, mapName, options, ranges, setText, svg, $ } from "./dom.js";

const width = 340, top = 20, bottom = 116, edge = 12;
const freshFor = 4000; // ms that a changed circuit stays marked

const cards = new Map(); // by number of the plane

export function drawPlanes(status, lastSwitch) {
  const host = $("planes");
  const wanted = status.planes?.length ?? 0;
  if (!wanted) {
    cards.clear();
    host.replaceChildren(el("p", { class: "empty panel" }, nothing(status)));
  }
  if (wanted && (cards.size !== wanted || cards.get(0).ports !== status.planes[0].map.length)) {
    cards.clear();
    status.planes.forEach((plane, j) => cards.set(j, newCard(plane.map.length)));
    host.replaceChildren(...[...cards.values()].map((c) => c.root));
  }
  status.planes.forEach((plane, j) => cards.get(j).update(status, plane, status.views[j], lastSwitch(j)));
  const filter = $("history-plane");
  const names = (wanted ? status.planes.map((p) => p.name) : (status.names ?? [])).map((name, j) => [String(j), name || String(j)]);
  if (filter.options.length !== names.length + 1) options(filter, [["", "all"], ...names]);
}

function nothing(status) {
  if (status.problem) return `The controller cannot say: ${status.problem}`;
  if (status.in_charge && !status.leader) return `${status.in_charge} is in charge and has the planes. This controller stands by and takes over if that one stops; the history below is the same on both.`;
  if (!status.leader) return "No controller is known to be in charge.";
  return "This fabric has no planes with circuits.";
}

function newCard(ports) {
  const card = {
    ports,
    name: el("h3"), state: el("span", { class: "state" }), epoch: el("span", { class: "epoch" }),
    map: el("dd"), holder: el("dd"), last: el("dd"), note: el("p", { class: "note" }),
    drawing: newDrawing(ports),
  };
  card.root = el("article", { class: "plane" },
    el("header", {}, card.name, card.state, card.epoch), card.drawing.root,
    el("div", { class: "what", tabindex: "0" },
      el("dl", {}, el("dt", {}, "map"), card.map, el("dt", {}, "used by"), card.holder, el("dt", {}, "last move"), card.last), card.note));
  card.update = (status, plane, view, last) => {
    card.root.dataset.state = plane.state;
    setText(card.name, plane.name);
    card.name.title = plane.name;
    setText(card.state, plane.state);
    setText(card.epoch, `epoch ${plane.epoch}`);
    setText(card.map, plane.target?.length ? `${mapName(plane.map)} \u2192 ${mapName(plane.target)}` : mapName(plane.map));
    setText(card.holder, holderText(status, plane));
    card.holder.title = card.holder.textContent;
    const [short, whole] = lastTexts(plane, last);
    setText(card.last, short);
    card.last.title = whole;
    setNote(card.note, plane, view);
    card.drawing.update(status, plane, view);
  };
  return card;
}

function holderText(status, plane) {
  if (!plane.holder) return "nobody";
  const use = status.uses.find((u) => u.granted && u.planes.includes(status.planes.indexOf(plane)));
  return use ? `${useName(use)}, port ${use.port}${use.who ? ` (${use.who})` : ""}` : `port ${plane.holder.port}`;
}

export const useName = (use) => holderName(use.holder);

// lastTexts are what fits, and all.
function lastTexts(plane, last) {
  if (!last) return Array(2).fill(plane.switches ? many(plane.switches, "switch", "switches") : "none so far");
  const short = `${clock(Date.parse(last.time))} in ${duration(last.took) || "no time"}${last.waited ? `, waited ${duration(last.waited)}` : ""}`;
  const change = `${last.from?.length ? `${mapName(last.from)} \u2192 ` : ""}${mapName(last.to)}`;
  return [short, `${short}, ${change}${last.verified ? `, verified by ${last.verified}` : ""}`];
}

const arrow = ([from, to]) => `${from} \u2192 ${to}`;

// badCircuits lists the circuits of a plane that are not as they should be: without light, desired and
// not there, there and not desired.
function badCircuits(plane) {
  const pairs = (map, wanted) => (map ?? []).map((to, from) => [from, to]).filter(([from, to]) => to >= 0 && wanted(from, to));
  const unlit = new Set(plane.unlit);
  return {
    unlit: pairs(plane.map, (from) => unlit.has(from)),
    absent: pairs(plane.desired, (from, to) => plane.map[from] !== to),
    unwanted: pairs(plane.map, (from, to) => plane.desired?.length && plane.desired[from] !== to),
  };
}

// setNote says what keeps the plane.
function setNote(note, plane, view) {
  let parts = [];
  if (plane.state === "down") {
    const bad = badCircuits(plane);
    parts = [el("span", { class: "why" }, plane.reason || "no reason is known"), el("br")];
    for (const [words, list] of [["No light", bad.unlit], ["Missing", bad.absent], ["Not wanted", bad.unwanted]]) {
      if (list.length) parts.push(el("b", {}, `${words}: ${list.map(arrow).join(", ")}.`), el("br"));
    }
    parts.push(view.advice?.do ?? "");
    if (view.advice) parts.push(" Operations: ", el("b", {}, view.advice.section), ".");
  } else if (plane.state === "moving" || plane.state === "waiting") {
    if (view.waiting) parts.push(view.waiting, el("br"));
    if (plane.missing?.length) parts.push("Missing: ", el("b", {}, ranges(plane.missing)), ". ");
    if (view.gone?.length) parts.push(el("b", {}, `Port ${ranges(view.gone)} has no rank.`), " ");
    if (plane.posted?.length) parts.push(`Posted: ${ranges(plane.posted)}. `);
  }
  const text = parts.map((p) => p.textContent ?? p).join("|");
  if (note.dataset.text === text) return; // what is there may be selected or scrolled
  note.dataset.text = text;
  note.replaceChildren(...parts.filter((p) => p !== ""));
}

// newDrawing draws transmitters above, receivers below, and the circuits between them.
function newDrawing(n) {
  const x = (port) => (n === 1 ? width / 2 : edge + (port * (width - 2 * edge)) / (n - 1));
  const curve = (from, to) => `M${x(from).toFixed(1)} ${top}C${x(from).toFixed(1)} ${(top + bottom) / 2} ${x(to).toFixed(1)} ${(top + bottom) / 2} ${x(to).toFixed(1)} ${bottom}`;
  const radius = Math.min(3.4, ((width - 2 * edge) / n) * 0.36);
  const every = n <= 16 ? 1 : n <= 32 ? 4 : Math.ceil(n / 64) * 8;
  const targets = svg("g"), absent = svg("g");
  const circuits = Array.from({ length: n }, (_, r) => svg("path", { class: "circuit dark", d: curve(r, r) }, svg("title")));
  const port = (r, y) => svg("circle", { class: "port", cx: x(r).toFixed(1), cy: y, r: radius.toFixed(2) }, svg("title"));
  const above = Array.from({ length: n }, (_, r) => port(r, top));
  const below = Array.from({ length: n }, (_, r) => port(r, bottom));
  const labels = [];
  for (let r = 0; r < n; r += every) {
    for (const y of [top - 8, bottom + 15]) labels.push(svg("text", { x: x(r).toFixed(1), y, "text-anchor": "middle", class: "side" }, String(r)));
  }
  const root = svg("svg", { class: n > 24 ? "circuits many" : "circuits", viewBox: `0 0 ${width} ${bottom + 20}`, role: "img" },
    ...labels, ...circuits, absent, targets, ...above, ...below);
  let shown = null, epoch = null;

  function update(status, plane, view) {
    root.setAttribute("aria-label", `Circuits of plane ${plane.name}: ${mapName(plane.map)}`);
    const bad = badCircuits(plane);
    const unlit = new Set(bad.unlit.map(([from]) => from)), unwanted = new Set(bad.unwanted.map(([from]) => from));
    const leaving = plane.state === "moving" ? plane.target : null;
    plane.map.forEach((to, from) => {
      const path = circuits[from];
      const changed = shown && shown[from] !== to;
      if ((!shown || changed) && to >= 0) path.setAttribute("d", curve(from, to));
      setText(path.firstChild, to >= 0 ? arrow([from, to]) + (unlit.has(from) ? ", no light" : "") + (unwanted.has(from) ? ", not wanted" : "") : "");
      path.classList.toggle("dark", to < 0);
      path.classList.toggle("unlit", unlit.has(from));
      path.classList.toggle("unwanted", unwanted.has(from));
      path.classList.toggle("leaving", Boolean(leaving && leaving[from] !== to));
      if (changed && to >= 0) {
        path.classList.add("fresh");
        setTimeout(() => path.classList.remove("fresh"), freshFor);
      }
    });
    shown = plane.map;
    drawPaths(absent, bad.absent, "absent", (pair) => `${arrow(pair)} is missing`);
    const coming = (plane.target ?? []).map((to, from) => [from, to]).filter(([from, to]) => to >= 0 && to !== plane.map[from]);
    drawPaths(targets, coming, "target", arrow);
    if (epoch !== plane.epoch) root.dataset.epoch = epoch = plane.epoch;
    updatePorts(status, plane, view);
  }

  // drawPaths makes the paths of a group anew if they are others than before.
  function drawPaths(group, pairs, kind, words) {
    const key = JSON.stringify(pairs);
    if (group.dataset.key === key) return;
    group.dataset.key = key;
    group.replaceChildren(...pairs.map((pair) => svg("path", { class: kind, d: curve(...pair) }, svg("title", {}, words(pair)))));
  }

  function updatePorts(status, plane, view) {
    const posted = new Set(plane.posted), missing = new Set(plane.missing), gone = new Set(view.gone);
    for (let r = 0; r < n; r++) {
      const info = status.ports?.[r];
      const kind = gone.has(r) ? "gone" : missing.has(r) ? "missing" : posted.has(r) ? "posted" : info?.attached ? "attached" : "";
      const words = [`port ${r}`, info?.attached ? info.who || "attached" : "no rank"];
      if (kind && kind !== "attached") words.push(kind);
      for (const circle of [above[r], below[r]]) {
        circle.setAttribute("class", `port ${circle === above[r] || kind === "attached" ? kind : info?.attached ? "attached" : ""}`);
        setText(circle.firstChild, words.join(", "));
      }
    }
  }
  return { root, update };
}

// summary is the state of everything in a sentence.
export function summary(status) {
  const planes = status.planes ?? [];
  if (!planes.length) return [status.leader ? "No planes." : "The planes are not in this controller's charge."];
  const down = planes.filter((p) => p.state === "down");
  const waiting = planes.filter((p) => p.state === "waiting" || p.state === "moving");
  const attached = (status.ports ?? []).filter((p) => p.attached).length;
  const queue = status.uses.filter((u) => !u.granted).length;
  const parts = down.length
    ? [el("span", { class: "bad" }, `${listed(down.map((p) => p.name))} out of service; `), el("b", {}, `${planes.length - down.length} of ${planes.length} planes in service`)]
    : [el("b", {}, planes.length === 1 ? "The plane is in service" : `All ${planes.length} planes in service`)];
  parts.push(`, ${attached} of ${status.ports?.length ?? 0} ports attached`);
  parts.push(waiting.length ? `, ${many(waiting.length, "plane")} about to switch` : "", queue ? `, ${many(queue, "communicator")} waiting` : "", ".");
  return parts.filter((p) => p !== "");
}

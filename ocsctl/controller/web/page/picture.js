// A picture of a plane's circuits: senders above, receivers below. It has one path per kind of circuit and port, so
// 300 ports cost as many elements as 8.

import { mapName, setText, svg } from "./dom.js";

const freshFor = 4000; // ms that a changed circuit stays marked
const edge = 12, least = 4; // least: ports in the closest view

// kinds, in the order in which they are drawn: the last ones cover the first.
const kinds = ["circuit faint", "circuit", "circuit leaving", "circuit fresh", "target", "circuit unwanted", "circuit unlit", "absent"];
const portKinds = ["port", "port attached", "port posted", "port missing", "port dim", "port gone"];

export const arrow = ([from, to]) => `${from} \u2192 ${to}`;

// badCircuits lists the circuits of a plane that are not as they should be: without light, desired and
// not there, there and not desired.
export function badCircuits(plane) {
  const pairs = (map, wanted) => (map ?? []).map((to, from) => [from, to]).filter(([from, to]) => to >= 0 && wanted(from, to));
  const unlit = new Set(plane.unlit);
  return {
    unlit: pairs(plane.map, (from) => unlit.has(from)),
    absent: pairs(plane.desired, (from, to) => plane.map[from] !== to),
    unwanted: pairs(plane.map, (from, to) => plane.desired?.length && plane.desired[from] !== to),
  };
}

export class Picture {
  constructor(width, height) {
    [this.width, this.top, this.bottom] = [width, 20, height - 20];
    this.layers = svg("g");
    this.labels = svg("g");
    this.title = svg("title");
    this.root = svg("svg", { class: "circuits", viewBox: `0 0 ${width} ${height}`, role: "img" }, this.title, this.labels, this.layers);
    this.root.addEventListener("pointermove", (e) => this.point(e));
    this.paths = new Map();
    this.ports = 0;
  }

  // show draws a plane. marked holds the ports that a search has found; null: there is no search.
  show(status, plane, view, marked) {
    const before = this.plane?.name === plane.name ? this.plane.map : plane.map;
    if (this.ports !== plane.map.length) this.windows = null;
    this.ports = plane.map.length;
    this.windows ??= [[0, this.ports - 1], [0, this.ports - 1]];
    const fresh = plane.map.map((_, from) => from).filter((from) => before[from] !== plane.map[from]);
    if (fresh.length) {
      this.fresh = new Set(fresh);
      clearTimeout(this.timer);
      this.timer = setTimeout(() => { this.fresh = null; this.draw(); }, freshFor);
    }
    [this.status, this.plane, this.view, this.marked] = [status, plane, view, marked];
    this.draw();
  }

  draw() {
    const { plane, marked } = this;
    this.root.setAttribute("aria-label", `Circuits of plane ${plane.name}: ${mapName(plane.map)}`);
    this.root.classList.toggle("many", this.windows[0][1] - this.windows[0][0] >= 24);
    const bad = badCircuits(plane);
    const unlit = new Set(plane.unlit), unwanted = new Set(bad.unwanted.map(([from]) => from));
    const coming = plane.target ?? [];
    const found = new Map(kinds.map((k) => [k, []]));
    found.set("absent", bad.absent);
    plane.map.forEach((to, from) => {
      if (coming[from] >= 0 && coming[from] !== to) found.get("target").push([from, coming[from]]);
      if (to < 0) return;
      const kind = unlit.has(from) ? " unlit" : unwanted.has(from) ? " unwanted" : plane.state === "moving" && coming.length && coming[from] !== to ? " leaving"
        : marked && !marked.has(from) && !marked.has(to) ? " faint" : this.fresh?.has(from) ? " fresh" : "";
      found.get(`circuit${kind}`).push([from, to]);
    });
    const middle = (this.top + this.bottom) / 2;
    for (const [kind, pairs] of found) {
      this.path(kind, pairs.length, pairs.map(([from, to]) => `M${this.x(0, from)} ${this.top}C${this.x(0, from)} ${middle} ${this.x(1, to)} ${middle} ${this.x(1, to)} ${this.bottom}`).join(""));
    }
    const words = { "circuit unlit": "no light", "circuit unwanted": "not wanted", absent: "is missing" };
    for (const [kind, word] of Object.entries(words)) {
      const path = this.paths.get(kind);
      if (path) setText(path.firstChild, found.get(kind).map((pair) => `${arrow(pair)}${kind === "absent" ? "" : ","} ${word}`).join("; "));
    }
    this.root.dataset.epoch = plane.epoch;
    this.drawPorts();
    this.drawLabels();
  }

  drawPorts() {
    const { plane, view, status } = this;
    const posted = new Set(plane.posted), missing = new Set(plane.missing), gone = new Set(view?.gone), dim = new Set(plane.dim);
    const found = new Map(portKinds.map((k) => [k, []]));
    for (let r = 0; r < this.ports; r++) {
      const at = status.ports[r]?.attached ? "port attached" : "port";
      found.get(gone.has(r) ? "port gone" : missing.has(r) ? "port missing" : posted.has(r) ? "port posted" : at).push([0, r]);
      found.get(dim.has(r) ? "port dim" : at).push([1, r]);
    }
    const size = Math.max(1.5, Math.min(7, (this.width / (this.windows[0][1] - this.windows[0][0] + 1)) * 0.6));
    for (const [kind, at] of found) {
      this.path(kind, at.length, at.map(([row, r]) => `M${this.x(row, r)} ${row ? this.bottom : this.top}h0`).join(""));
      this.paths.get(kind)?.setAttribute("stroke-width", size);
    }
  }

  drawLabels() {
    const key = JSON.stringify(this.windows);
    if (this.labels.dataset.key === key) return;
    this.labels.dataset.key = key;
    const texts = [];
    this.windows.forEach(([low, high], row) => {
      const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((k) => (k * (this.width - 2 * edge)) / (high - low || 1) > 19);
      for (let r = Math.ceil(low / every) * every; r <= high; r += every) {
        texts.push(svg("text", { x: this.x(row, r), y: row ? this.bottom + 15 : this.top - 8, "text-anchor": "middle", class: "side" }, String(r)));
      }
    });
    this.labels.replaceChildren(...texts);
  }

  // path sets a path of n circuits or ports.
  path(kind, n, d) {
    let path = this.paths.get(kind);
    if (!n) {
      path?.remove();
      this.paths.delete(kind);
      return;
    }
    if (!path) {
      this.paths.set(kind, (path = svg("path", { class: kind }, svg("title"))));
      this.layers.replaceChildren(...[...kinds, ...portKinds].map((k) => this.paths.get(k)).filter(Boolean));
    }
    if (path.getAttribute("d") === d) return;
    path.setAttribute("d", d);
    path.dataset.n = n;
  }

  x(row, port) {
    const [low, high] = this.windows[row];
    return low === high ? this.width / 2 : +(edge + ((port - low) * (this.width - 2 * edge)) / (high - low)).toFixed(1);
  }

  // share returns where a point of the screen is between the first port of a row, 0, and the last, 1.
  share(e) {
    const box = this.root.getBoundingClientRect();
    return (((e.clientX - box.left) / box.width) * this.width - edge) / (this.width - 2 * edge);
  }

  // at returns the row and the port, with a fraction, at a point of the screen.
  at(e) {
    const box = this.root.getBoundingClientRect();
    const row = e.clientY - box.top > box.height / 2 ? 1 : 0;
    const [low, high] = this.windows[row];
    return [row, low + Math.min(1, Math.max(0, this.share(e))) * (high - low)];
  }

  // point tells about the port under the pointer.
  point(e) {
    if (!this.plane) return;
    const [row, at] = this.at(e), port = Math.round(at), rank = this.status.ports[port];
    const other = row ? this.plane.map.indexOf(port) : this.plane.map[port];
    const circuit = other < 0 ? "no circuit" : row ? `receives from ${other}` : `sends to ${other}`;
    setText(this.title, `port ${port}: ${circuit}, ${rank?.attached ? rank.who || "attached" : "no rank"}`);
  }

  // zoom shows a row's ports closer (factor < 1) or further away, around a port.
  zoom(row, factor, around) {
    const [low, high] = this.windows[row];
    const size = Math.min(this.ports - 1, Math.max(Math.min(least, this.ports) - 1, (high - low) * factor));
    this.move(row, around - ((around - low) / (high - low || 1)) * size, size);
  }

  // move shows the ports of a row from low on.
  move(row, low, size = this.windows[row][1] - this.windows[row][0]) {
    const from = Math.min(this.ports - 1 - size, Math.max(0, low));
    this.windows[row] = [from, from + size];
    this.draw();
  }

  // focus shows a sender closely, and the port that it sends to.
  focus(port) {
    const size = Math.min(this.ports - 1, 16), to = this.plane.map[port];
    this.move(0, port - size / 2, size);
    this.move(1, (to >= 0 ? to : port) - size / 2, size);
  }

  all() {
    this.windows = null;
    if (this.plane) this.show(this.status, this.plane, this.view, this.marked);
  }

  // zoomable lets the pointer move the view: drag, or turn the wheel with the control key.
  zoomable() {
    this.root.addEventListener("wheel", (e) => {
      if (!e.ctrlKey || !this.plane) return;
      e.preventDefault();
      const [row, port] = this.at(e);
      this.zoom(row, e.deltaY > 0 ? 1.25 : 0.8, port);
    }, { passive: false });
    let row = 0, held = null;
    this.root.addEventListener("pointerdown", (e) => { [row, held] = this.at(e); this.root.setPointerCapture(e.pointerId); });
    this.root.addEventListener("pointerup", () => { held = null; });
    this.root.addEventListener("pointermove", (e) => {
      if (held === null) return;
      const [low, high] = this.windows[row];
      this.move(row, held - this.share(e) * (high - low));
    });
    return this;
  }
}

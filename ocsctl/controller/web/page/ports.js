// The ports of one plane: its circuits, large, and a table with what its switch says of each port.

import { clock, el, options, setText, Table, $ } from "./dom.js";
import { Picture } from "./picture.js";
import { jobsByPort } from "./search.js";

const refresh = 5000; // ms between two readings of the switch's ports

export class PortsView {
  // chosen is called with plane and port when a port is clicked.
  constructor(chosen) {
    this.picture = new Picture(1300, 260).zoomable();
    $("picture").replaceChildren(this.picture.root);
    this.table = new Table($("ports"), ["port", "state", "sends to", "receives from", "switch port", "power", "below baseline", "job", "rank"], "No port is found.");
    this.plane = 0;
    this.readings = [];
    $("ports-plane").addEventListener("change", () => this.open(Number($("ports-plane").value)));
    $("ports").addEventListener("click", (e) => {
      const row = e.target.closest("tr[data-key]");
      if (!row) return;
      this.picture.focus(Number(row.dataset.key));
      chosen(this.plane, Number(row.dataset.key));
    });
    const windows = () => this.picture.windows.map(([low, high]) => (low + high) / 2);
    $("closer").addEventListener("click", () => windows().forEach((middle, row) => this.picture.zoom(row, 0.5, middle)));
    $("wider").addEventListener("click", () => windows().forEach((middle, row) => this.picture.zoom(row, 2, middle)));
    $("whole").addEventListener("click", () => this.picture.all());
    setInterval(() => document.hidden || this.read(), refresh);
  }

  // open shows another plane.
  open(plane) {
    this.plane = plane;
    $("ports-plane").value = String(plane);
    this.readings = [];
    this.draw();
    this.read();
  }

  // read asks for the switch's view of the ports.
  async read() {
    const plane = this.plane;
    if (!this.status?.planes[plane]) return;
    try {
      const answer = await fetch(`api/ports?plane=${plane}`);
      if (!answer.ok || plane !== this.plane) return;
      this.readings = (await answer.json()).ports ?? [];
      this.draw();
    } catch {
      // The stream says that the controller does not answer.
    }
  }

  show(status, marked) {
    const first = !this.status?.planes.length;
    [this.status, this.marked] = [status, marked];
    const planes = status.planes.map((p, j) => [String(j), p.name]);
    if ($("ports-plane").options.length !== planes.length) options($("ports-plane"), planes);
    if (this.plane >= planes.length) this.plane = 0;
    if (first && planes.length) this.read();
    const shows = [status.planes[this.plane], status.views[this.plane], status.ports, JSON.stringify(status.jobs), marked];
    if (this.shows?.every((part, i) => part === shows[i])) return;
    this.shows = shows;
    this.draw();
  }

  draw() {
    const { status, marked } = this, plane = status?.planes[this.plane];
    $("picture-panel").hidden = !plane;
    if (!plane) return this.table.show([]);
    const view = status.views[this.plane];
    this.picture.show(status, plane, view, marked);
    const from = new Map(plane.map.map((to, r) => [to, r]));
    const sets = { gone: new Set(view.gone), missing: new Set(plane.missing), posted: new Set(plane.posted), unlit: new Set(plane.unlit), out: new Set((plane.out ?? []).map((o) => o.port)) };
    const jobs = jobsByPort(status), bit = (j) => Math.floor((j.mask ?? 0) / 2 ** this.plane) % 2 === 1;
    const rows = status.ports.filter((p) => !marked || marked.has(p.port)).map((p) => {
      const r = p.port, at = this.readings[r] ?? {};
      const words = [at.failed ? `failed: ${at.state}` : "", sets.out.has(r) ? "out of service" : "", at.dim ? "fading light" : "", sets.unlit.has(from.get(r)) ? "no light" : "",
        sets.gone.has(r) ? "no rank, waited for" : sets.missing.has(r) ? "waited for" : sets.posted.has(r) ? "posted" : ""].filter(Boolean);
      const wrong = at.failed || sets.out.has(r) || at.dim || sets.unlit.has(from.get(r)) || sets.gone.has(r);
      return {
        key: String(r), bad: wrong ? [1] : [],
        cells: [String(r), words.join(", ") || at.state || (p.attached ? "in use" : "free"), end(plane.map[r]), end(from.get(r)),
          at.file ? `${at.label}, not ${at.file}` : (at.label ?? ""), at.dbm === undefined ? "" : `${at.dbm.toFixed(2)} dBm`,
          at.baseline === undefined || at.dbm === undefined ? "" : `${Math.max(0, at.baseline - at.dbm).toFixed(2)} dB of ${at.baseline.toFixed(2)} dBm`,
          (jobs.get(r) ?? []).filter(bit).map((j) => j.id).join(", "), p.attached ? `${p.who || "attached"}${p.since ? `, since ${clock(Date.parse(p.since))}` : ""}` : "no rank"],
      };
    });
    this.table.show(rows);
    setText($("ports-note"), marked ? `${rows.length} of ${status.ports.length} ports found.` : "");
  }
}

const end = (port) => (port === undefined || port < 0 ? "-" : String(port));

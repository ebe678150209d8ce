// Elements and words. Text is set as text and never parsed: what planes and ranks are called, and
// what errors say, is whatever somebody typed somewhere.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((c) => c !== undefined && c !== null && c !== ""));
  return element;
}

export const el = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

// setText touches the document only where something changes.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// options gives a select its options and keeps the choice where it is still there.
export function options(select, list) {
  const chosen = select.value;
  select.replaceChildren(...list.map(([value, text]) => el("option", { value }, text)));
  if (list.some(([value]) => value === chosen)) select.value = chosen;
}

export function duration(ns) {
  if (!ns) return "";
  if (ns < 0) return "-" + duration(-ns);
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["\u00b5s", 1e3], ["ns", 1]]) {
    if (ns >= size) return unit === "s" && ns >= 6e10 ? `${Math.floor(ns / 6e10)} min ${Math.floor((ns % 6e10) / 1e9)} s` : `${three(ns / size)} ${unit}`;
  }
  return "0";
}

const three = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));

export function clock(ms, precise) {
  const t = new Date(ms);
  const two = (x) => String(x).padStart(2, "0");
  const text = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  return precise ? `${text}.${String(t.getMilliseconds()).padStart(3, "0")}` : text;
}

export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

export const many = (n, one, more = one + "s") => `${n} ${n === 1 ? one : more}`;

// ranges writes ports shortly: 0-3, 7.
export function ranges(ports) {
  const sorted = [...ports].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let k = i;
    while (sorted[k + 1] === sorted[k] + 1) k++;
    parts.push(k > i ? `${sorted[i]}-${sorted[k]}` : `${sorted[i]}`);
    i = k + 1;
  }
  return parts.join(", ");
}

// holderName is the beginning of a communicator's number: enough to tell one from another.
export const holderName = (id) => id.replace(/^0+(?=.)/, "").slice(0, 8);

// mapName names a map: shift 1, xor 2, dark, or how many circuits it has.
export function mapName(map) {
  if (!map || !map.length) return "";
  const lit = map.map((to, from) => [from, to]).filter(([, to]) => to >= 0);
  if (!lit.length) return "dark";
  const n = map.length;
  const [from, to] = lit[0];
  const part = lit.length < n ? "part of " : "";
  if (lit.every(([r, s]) => s === r)) return part + "loops";
  if (lit.every(([r, s]) => s === (r + to - from + n) % n)) return `${part}shift ${(to - from + n) % n}`;
  if (lit.every(([r, s]) => s === (r ^ from ^ to))) return `${part}xor ${from ^ to}`;
  return many(lit.length, "circuit");
}

// Table shows rows of cells by key. It touches only rows that have changed, so that a reader may select text in others.
export class Table {
  constructor(host, heads, empty) {
    this.body = el("tbody");
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", {}, h)))), this.body);
    this.empty = el("p", { class: "empty" }, empty);
    this.rows = new Map();
    host.replaceChildren(this.table, this.empty);
  }

  // show takes rows of { key, cells, bad }: cells are texts, bad the numbers of cells that show something wrong.
  show(rows) {
    const keys = new Set(rows.map((r) => r.key));
    for (const [key, row] of this.rows) if (!keys.has(key)) (row.remove(), this.rows.delete(key));
    let next = this.body.firstElementChild;
    for (const { key, cells, bad = [] } of rows) {
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, (row = el("tr", { "data-key": key }, ...cells.map(() => el("td")))));
      const text = [...cells, bad].join("\n");
      if (row.shows !== text) {
        row.shows = text;
        cells.forEach((cell, i) => {
          setText(row.children[i], cell);
          row.children[i].classList.toggle("bad", bad.includes(i));
        });
      }
      if (row === next) next = next.nextElementSibling;
      else this.body.insertBefore(row, next);
    }
    this.table.hidden = !rows.length;
    this.empty.hidden = rows.length > 0;
  }
}

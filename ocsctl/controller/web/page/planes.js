// Planes as cards: state, circuits, who uses them, what the next switch waits for.

import { clock, duration, el, holderName, listed, many, mapName, options, ranges, setText, $ } from "./dom.js";
import { arrow, badCircuits, Picture } from "./picture.js";

const cards = new Map(); // by number of the plane

// drawPlanes draws the cards of planes that have changed. marked holds the ports that a search has found, or null;
// open is called with the plane whose picture was clicked.
export function drawPlanes(status, lastSwitch, marked, open) {
  const host = $("planes");
  if (!status.planes.length) {
    cards.clear();
    host.replaceChildren(el("p", { class: "empty panel" }, nothing(status)));
  } else if (cards.size !== status.planes.length) {
    cards.clear();
    status.planes.forEach((_, j) => cards.set(j, newCard(() => open(j))));
    host.replaceChildren(...[...cards.values()].map((c) => c.root));
  }
  status.planes.forEach((plane, j) => {
    const card = cards.get(j), shows = [plane, status.views[j], status.ports, status.uses, lastSwitch(j), marked];
    if (shows.every((part, i) => part === card.shows?.[i])) return;
    card.shows = shows;
    card.update(status, ...shows);
  });
}

function nothing(status) {
  if (status.problem) return `The controller cannot say: ${status.problem}`;
  if (status.in_charge && !status.leader) return `${status.in_charge} is in charge and has the planes. This controller stands by and takes over if that one stops; the history below is the same on both.`;
  if (!status.leader) return "No controller is known to be in charge.";
  return "This fabric has no planes with circuits.";
}

function newCard(open) {
  const card = {
    name: el("h3"), state: el("span", { class: "state" }), epoch: el("span", { class: "epoch" }),
    map: el("dd"), holder: el("dd"), last: el("dd"), note: el("p", { class: "note" }), picture: new Picture(340, 136),
  };
  const enlarge = el("a", { href: "#h-ports", title: "its ports, larger" }, card.picture.root);
  enlarge.addEventListener("click", open);
  card.root = el("article", { class: "plane" },
    el("header", {}, card.name, card.state, card.epoch), enlarge,
    el("div", { class: "what", tabindex: "0" },
      el("dl", {}, el("dt", {}, "map"), card.map, el("dt", {}, "used by"), card.holder, el("dt", {}, "last move"), card.last), card.note));
  card.update = (status, plane, view, _ports, _uses, last, marked) => {
    card.root.dataset.state = plane.state;
    setText(card.name, plane.name);
    card.name.title = plane.name;
    setText(card.state, plane.state);
    setText(card.epoch, `epoch ${plane.epoch}`);
    const map = plane.unknown ? "unknown" : mapName(plane.map);
    setText(card.map, plane.target?.length ? `${map} \u2192 ${mapName(plane.target)}` : map);
    setText(card.holder, holderText(status, plane));
    card.holder.title = card.holder.textContent;
    const [short, whole] = lastTexts(plane, last);
    setText(card.last, short);
    card.last.title = whole;
    setNote(card.note, plane, view);
    card.picture.show(status, plane, view, marked);
  };
  return card;
}

function holderText(status, plane) {
  const uses = status.uses.filter((u) => u.granted && u.planes.includes(status.planes.indexOf(plane)));
  if (!uses.length) return "nobody";
  return uses.map((u) => `${useName(u)}, port ${u.port}${u.who ? ` (${u.who})` : ""}`).join("; ");
}

export const useName = (use) => holderName(use.holder);

// lastTexts are what fits, and all.
function lastTexts(plane, last) {
  if (!last) return Array(2).fill(plane.switches ? many(plane.switches, "switch", "switches") : "none so far");
  const short = `${clock(Date.parse(last.time))} in ${duration(last.took) || "no time"}${last.waited ? `, waited ${duration(last.waited)}` : ""}`;
  const change = `${last.from?.length ? `${mapName(last.from)} \u2192 ` : ""}${mapName(last.to)}`;
  return [short, `${short}, ${change}${last.verified ? `, verified by ${last.verified}` : ""}`];
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
  if (plane.trial) parts.push(el("b", {}, `To be confirmed until ${clock(Date.parse(plane.trial.until))}`), ", otherwise undone: lightpath ocs confirm. ");
  for (const o of plane.out ?? []) parts.push(el("b", {}, `Port ${o.port} is out of service`), `: ${o.why}. `);
  if (plane.dim?.length) parts.push(el("b", {}, `Fading light at ${plane.dim.length === 1 ? "port" : "ports"} ${ranges(plane.dim)}.`));
  const text = parts.map((p) => p.textContent ?? p).join("|");
  if (note.dataset.text === text) return; // what is there may be selected or scrolled
  note.dataset.text = text;
  note.replaceChildren(...parts.filter((p) => p !== ""));
}

// summary is the state of everything in a sentence.
export function summary(status) {
  const planes = status.planes ?? [];
  if (!planes.length) return [status.leader ? "No planes." : "The planes are not in this controller's charge."];
  const down = planes.filter((p) => p.state === "down");
  const waiting = planes.filter((p) => p.state === "waiting" || p.state === "moving");
  const attached = (status.ports ?? []).filter((p) => p.attached).length;
  const queue = status.uses.filter((u) => !u.granted).length;
  const dim = planes.reduce((n, p) => n + (p.dim?.length ?? 0), 0), out = planes.reduce((n, p) => n + (p.out?.length ?? 0), 0);
  const parts = down.length
    ? [el("span", { class: "bad" }, `${listed(down.map((p) => p.name))} out of service; `), el("b", {}, `${planes.length - down.length} of ${planes.length} planes in service`)]
    : [el("b", {}, planes.length === 1 ? "The plane is in service" : `All ${planes.length} planes in service`)];
  parts.push(`, ${attached} of ${status.ports?.length ?? 0} ports attached`);
  parts.push(waiting.length ? `, ${many(waiting.length, "plane")} about to switch` : "", queue ? `, ${many(queue, "communicator")} waiting` : "", dim ? `, ${many(dim, "port")} with fading light` : "", out ? `, ${many(out, "port")} out of service` : "", ".");
  return parts.filter((p) => p !== "");
}

// Lets the reader zoom timelines: drag over a stretch of time to see it, double-click to see all of it.
'use strict';
for (const zoom of document.querySelectorAll('g.lightpath-zoom')) {
  const svg = zoom.ownerSVGElement;
  const [left, width, top, bottom, span, unit, font] =
    ['left', 'width', 'top', 'bottom', 'span', 'unit', 'font'].map((name) => Number(zoom.dataset[name]));
  const {ink, faint, grid} = zoom.dataset;
  let from = 0, to = span; // us, the stretch in view

  const add = (parent, name, attributes, text) => {
    const e = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', name));
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const x = (us) => left + width * (us - from) / (to - from);
  const clamp = (v) => Math.min(left + width, Math.max(left, v));

  // Elements with data-t span a stretch of time; groups only move.
  const timed = [...zoom.querySelectorAll('[data-t]')].map((e) => {
    const [start, end] = e.dataset.t.split(' ').map(Number);
    return {e, start, end, first: x(start)};
  });
  const ticks = zoom.querySelector('g.ticks'), labels = zoom.querySelector('g.labels');

  function place({e, start, end, first}) {
    const x0 = clamp(x(start)), x1 = clamp(x(end));
    const hidden = end < from || start > to;
    e.style.display = hidden ? 'none' : '';
    if (hidden) return;
    if (e.tagName === 'g') {
      e.setAttribute('transform', `translate(${clamp(x(start)) - first} 0)`);
    } else if (e.tagName === 'line') {
      e.setAttribute('x1', x0);
      e.setAttribute('x2', x1);
    } else {
      e.setAttribute('x', x0);
      e.setAttribute('width', Math.max(0.8, x1 - x0));
      if (e.dataset.labels) label(e, x0, x1 - x0);
    }
  }

  function label(e, x0, w) {
    const text = e.dataset.labels.split('|').find((s) => 0.61 * font * s.length + 6 <= w);
    if (!text) return;
    const y = Number(e.getAttribute('y')) + Number(e.getAttribute('height')) / 2, centre = x0 + w / 2;
    const half = 0.305 * font * text.length;
    if (e.dataset.ground) {
      add(labels, 'rect', {x: centre - half - 2, y: y - font / 2 - 2, width: 2 * half + 4, height: font + 4, fill: 'white',
        opacity: 0.85});
    }
    add(labels, 'text', {x: centre, y: y + font * 0.36, 'font-size': font, 'text-anchor': 'middle', fill: ink}, text);
  }

  function draw() {
    labels.replaceChildren();
    ticks.replaceChildren();
    timed.forEach(place);
    const raw = (to - from) / unit / Math.max(2, width / 90), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => raw <= m * power) * power;
    for (let k = Math.ceil(from / unit / step); k * step * unit <= to; k++) {
      const at = x(k * step * unit);
      add(ticks, 'line', {x1: at, y1: top, x2: at, y2: bottom + 4, stroke: grid, 'stroke-width': 0.8});
      const text = Number((k * step).toPrecision(9)).toString();
      add(ticks, 'text', {x: at, y: bottom + 17, 'font-size': 10.5, 'text-anchor': 'middle', fill: faint}, text);
    }
  }

  labels.style.pointerEvents = 'none';
  add(svg, 'text', {x: left + width, y: 26, 'font-size': 11, 'text-anchor': 'end', fill: faint},
    'drag to zoom, double-click for the whole');
  const pointer = (event) => clamp(new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x);
  let begin = null, mark = null;
  svg.addEventListener('mousedown', (event) => {
    if (event.button !== 0) return;
    event.preventDefault(); // or the browser selects text
    begin = pointer(event);
    mark = add(svg, 'rect', {x: begin, y: top, width: 0, height: bottom - top, fill: '#1d4ed8', opacity: 0.15});
  });
  window.addEventListener('mousemove', (event) => {
    if (begin === null) return;
    const now = pointer(event);
    mark.setAttribute('x', Math.min(begin, now));
    mark.setAttribute('width', Math.abs(now - begin));
  });
  window.addEventListener('mouseup', (event) => {
    if (begin === null) return;
    const ends = [begin, pointer(event)].sort((a, b) => a - b);
    mark.remove();
    begin = null;
    if (ends[1] - ends[0] < 4) return; // a click
    const us = ends.map((v) => from + (v - left) / width * (to - from));
    if (us[1] - us[0] > span * 1e-6) [from, to] = us;
    draw();
  });
  svg.addEventListener('dblclick', () => {
    [from, to] = [0, span];
    draw();
  });
}

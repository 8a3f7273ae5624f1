"use strict";
// Figures that answer: the values of curves at the place of the pointer or of the arrow keys, in all figures
// over time at the same time, and one group highlighted in all figures and tables.
const SVG = "http://www.w3.org/2000/svg", STEPS = 100;
const make = (tag, attributes = {}, text = null, space = null) => {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
};
const short = (value) => String(Number(value.toPrecision(4)));
const probability = (value) => value.toFixed(3).replace(/^0(?=\.)/, "");

// All heights of a curve at x: of a line one, of a band its ends.
function heights(curve, x) {
  const { x: xs, y: ys } = curve, found = [];
  if (curve.kind === "step") {
    const next = xs.findIndex((each) => each > x), last = next < 0 ? xs.length - 1 : next - 1;
    return last < 0 || x > xs.at(-1) ? [] : [ys[last]];
  }
  for (let k = 1; k < xs.length; k++) {
    const [a, b] = [xs[k - 1], xs[k]];
    if ((x - a) * (x - b) <= 0 && a !== b) found.push(ys[k - 1] + (ys[k] - ys[k - 1]) * (x - a) / (b - a));
  }
  return curve.kind === "band" ? found : found.slice(0, 1);
}

class Panel {
  constructor(figure, axes) {
    Object.assign(this, axes, { figure });
    this.mark = figure.svg.appendChild(make("g", { class: "mark" }, null, SVG));
    this.bands = new Map(this.curves.filter((each) => each.kind === "band").map((each) => [each.group, each]));
    this.lines = this.curves.filter((each) => each.kind !== "band");
  }

  across(x) { return this.box[0] + (this.box[2] - this.box[0]) * (x - this.x[0]) / (this.x[1] - this.x[0]); }
  down(y) { return this.box[3] - (this.box[3] - this.box[1]) * (y - this.y[0]) / (this.y[1] - this.y[0]); }
  value(place) { return this.x[0] + (this.x[1] - this.x[0]) * (place - this.box[0]) / (this.box[2] - this.box[0]); }
  has(x, y) { return x >= this.box[0] && x <= this.box[2] && y >= this.box[1] && y <= this.box[3]; }
  text(y) { return this.ratio ? short(Math.exp(y)) : this.time ? probability(y) : short(y); }

  // A line at x with a dot on each curve; what is read there, a text for each curve.
  show(x, chosen) {
    this.mark.replaceChildren();
    if (x === null || x < this.x[0] || x > this.x[1]) return [];
    const at = this.across(x), texts = [];
    let below = 0, above = null;
    this.mark.append(make("line", { x1: at, x2: at, y1: this.box[1], y2: this.box[3] }, null, SVG));
    for (const line of this.lines) {
      const [y] = heights(line, x);
      if (y === undefined || (chosen && line.group && line.group !== chosen)) continue;
      this.mark.append(make("circle", { cx: at, cy: this.down(y), r: 3, fill: line.colour }, null, SVG));
      if (this.stacked && line.group !== above) [below, above] = [0, line.group];
      const ends = line.kind === "step" || !this.time ? heights(this.bands.get(line.group) ?? { x: [], y: [] }, x) : [];
      const limits = ends.length && !this.stacked ? " (" + this.text(Math.min(...ends)) + " to " + this.text(Math.max(...ends)) + ")" : "";
      texts.push({ group: line.group, colour: line.colour, text: [line.name, this.text(y - below) + limits].filter(Boolean).join(" ") });
      below = this.stacked ? y : 0;
    }
    return texts;
  }
}

class LiveFigure {
  constructor(box) {
    this.box = box;
    this.svg = box.querySelector("svg");
    this.read = box.parentElement.querySelector(".read");
    this.panels = JSON.parse(box.parentElement.querySelector("script").textContent).map((axes) => new Panel(this, axes));
    this.at = this.panels[0] ?? null;
    if (!this.at) return;
    box.tabIndex = 0;
    box.addEventListener("pointermove", (event) => this.point(event));
    box.addEventListener("keydown", (event) => this.key(event));
  }

  point(event) {
    const matrix = this.svg.getScreenCTM().inverse();
    const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const found = this.panels.find((each) => each.has(x, y));
    if (found) move(found, found.value(x));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step && !turn) return;
    event.preventDefault();
    const n = this.panels.length;
    if (turn) this.at = this.panels[(this.panels.indexOf(this.at) + turn + n) % n];
    const { x: [low, high] } = this.at, now = this.at.time ? state.time : this.place;
    const next = now == null || turn ? (now ?? (low + high) / 2) : now + step * (high - low) / STEPS;
    move(this.at, Math.min(Math.max(next, low), high));
  }

  show() {
    const parts = [];
    for (const panel of this.panels) {
      const x = panel.time ? state.time : panel === this.at ? this.place ?? null : null;
      const texts = panel.show(x, state.pinned);
      if (texts.length) parts.push([panel, x, texts]);
    }
    this.read.replaceChildren(...parts.map(([panel, x, texts]) => {
      const line = make("span", {}, panel.name + " " + short(x) + ": ");
      for (const { group, colour, text } of texts) {
        const each = make("span", { class: "value" });
        each.append(make("i", { style: "background:" + colour }), (group ? "group " + group + " " : "") + text);
        line.append(each);
      }
      return line;
    }));
  }
}

const state = { pinned: 0, time: null };
const figures = [...document.querySelectorAll(".live")].map((box) => new LiveFigure(box));
const marked = [...document.querySelectorAll("[data-group]")].filter((each) => each.dataset.group !== "0");
const timed = figures.flatMap((each) => each.panels).filter((each) => each.time);

function move(panel, x) {
  panel.figure.at = panel;
  if (panel.time) { state.time = x; slider.value = x; } else panel.figure.place = x;
  show();
}

function highlight(group) {
  for (const each of marked) each.classList.toggle("off", group > 0 && Number(each.dataset.group) !== group);
}

function show() {
  for (const figure of figures) if (figure.at) figure.show();
  when.textContent = state.time === null ? "" : short(state.time);
}

const bar = make("div", { class: "bar", role: "group", "aria-label": "Figures" });
const numbers = [...new Set(marked.map((each) => Number(each.dataset.group)))].sort((a, b) => a - b);
const buttons = [0, ...numbers].map((group) => {
  const button = make("button", { type: "button", "aria-pressed": group === 0 }, group ? "group " + group : "all groups");
  button.addEventListener("click", () => {
    state.pinned = group;
    buttons.forEach((each) => each.setAttribute("aria-pressed", each === button));
    highlight(group);
    show();
  });
  return button;
});
if (numbers.length > 1) bar.append(...buttons);
const end = Math.min(...timed.map((each) => each.x[1]));
const slider = make("input", { type: "range", min: 0, max: Number.isFinite(end) ? end : 1, step: "any" });
const when = make("output");
if (timed.length) {
  const label = make("label");
  label.append("values at ", timed[0].name, " ", slider, when);
  slider.addEventListener("input", () => { state.time = Number(slider.value); show(); });
  bar.append(label);
}
const first = document.querySelector(".live")?.closest("section");
if (first && bar.childElementCount) first.before(bar);
// Bands overlap: they dim, but the pointer passes through them.
for (const each of marked) {
  each.addEventListener("pointerenter", () => highlight(Number(each.dataset.group)));
  each.addEventListener("pointerleave", () => highlight(state.pinned));
}

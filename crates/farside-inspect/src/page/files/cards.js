// A card shows one area.

import { MAP_NAMES, drawCells, drawLines, drawScale, elements, rangeOf, sharp, short } from "/draw.js";

// Makes an element. Texts never become markup.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// The units behind a number. Numbers without units have the units 1.
const unitsOf = (area) => area.units && area.units !== "1" ? ` ${area.units}` : "";

export const shapeOf = (area) =>
  area.type + (area.shape.length ? `[${area.shape.join(", ")}]` : "") + unitsOf(area);

// The most places of a dimension that are shown unless more are asked for.
const PLACES_MAX = 1024;
const HISTORY_MAX = 2000;
const RATES = { "1 a second": 1000, "5 a second": 200, "20 a second": 50, "60 a second": 16 };

// What is shown at first: two dimensions of the area, and not too many places.
function firstSelection(shape) {
  const parts = shape.map((length, at) => {
    if (at < shape.length - 2) return "0";
    const step = Math.ceil(length / PLACES_MAX);
    return step > 1 ? `::${step}` : ":";
  });
  return parts.length ? `[${parts.join(", ")}]` : "";
}

// The places that a selection means, by dimension: only what the cursor needs. The server checks it.
function spansOf(text, shape) {
  const inner = text.trim().replace(/^\[|\]$/g, "").trim().replace(/,$/, "");
  let parts = inner ? inner.split(",").map((part) => part.trim()) : [];
  const dots = parts.indexOf("...");
  const missing = Array(Math.max(0, shape.length - parts.length + (dots < 0 ? 0 : 1))).fill(":");
  parts = dots < 0 ? [...parts, ...missing] : [...parts.slice(0, dots), ...missing, ...parts.slice(dots + 1)];
  return shape.map((length, at) => {
    const [start, , step] = (parts[at] ?? ":").split(":").map((word) => word.trim());
    const from = Number(start) || 0;
    return { start: from < 0 ? length + from : from, step: Number(step) || 1, keeps: (parts[at] ?? ":").includes(":") };
  });
}

export class Card {
  constructor(area, onChange, onClose) {
    this.area = area;
    this.onChange = onChange;
    this.options = { select: firstSelection(area.shape), period: 50, map: "heat", range: null, parts: false };
    this.history = [];
    this.skipped = 0;
    this.drawn = [];
    this.build(onClose);
    new ResizeObserver(() => this.redraw()).observe(this.picture);
  }

  topic(job, key) {
    return { key, watch: "area", job, area: this.area.name, select: this.options.select, period_ms: this.options.period };
  }

  build(onClose) {
    const { area, options } = this;
    const choose = (label, names, now, chosen) => el("select", { "aria-label": label, title: label, onchange: chosen },
      ...names.map((name) => el("option", { value: name, selected: name === now }, name)));
    this.facts = el("div", { class: "facts" });
    this.message = el("div", { class: "facts wrong", role: "alert" });
    this.select = el("input", { type: "text", "aria-label": "Selection", title: "Selection, as numpy writes it",
      value: options.select, placeholder: "[...]", spellcheck: "false", onchange: () => this.change({ select: this.select.value }) });
    const [least, most] = ["least", "most"].map((label) => el("input", { type: "number", step: "any", "aria-label": label,
      title: `${label} value of the range; empty: as the values are`, placeholder: label,
      onchange: () => {
        const [a, b] = [least.valueAsNumber, most.valueAsNumber];
        options.range = Number.isNaN(a) && Number.isNaN(b) ? null : [a, b];
        this.redraw();
      } }));
    const rates = Object.keys(RATES);
    this.colours = choose("Colours", MAP_NAMES, options.map, (event) => {
      options.map = event.target.value;
      this.redraw();
    });
    const tools = el("details", {}, el("summary", {}, "Options"), el("div", { class: "tools" },
      area.shape.length ? this.select : "",
      choose("Frames", rates, "20 a second", (event) => this.change({ period: RATES[event.target.value] })),
      this.colours, least, most,
      area.parts.length > 1 && area.shape.length ? el("label", {}, el("input", { type: "checkbox", onchange: (event) => {
        options.parts = event.target.checked;
        this.redraw();
      } }), "parts") : ""));
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `Picture of ${area.name}` });
    this.over = el("canvas", { class: "over" });
    this.picture = el("div", { class: "picture" }, this.canvas, this.over);
    this.scale = [el("span"), el("canvas"), el("span")];
    this.scaleBar = el("div", { class: "scale" }, ...this.scale);
    this.readout = el("output", { "aria-live": "off" });
    this.number = el("p", { class: "big" });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { if (document.activeElement !== this.canvas) this.moveTo(null); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.element = el("article", { "data-area": area.name },
      el("header", {}, el("h2", {}, area.name), el("span", { class: "room" }),
        el("button", { title: "Close", "aria-label": `Close ${area.name}`, onclick: onClose }, "×")),
      this.facts, this.message, this.number, this.picture, this.scaleBar, this.readout, tools);
    this.describe();
  }

  change(options) {
    Object.assign(this.options, options);
    this.history = [];
    this.record = null;
    this.onChange();
  }

  // What the list says of the area may have changed.
  update(area) {
    this.area = area;
  }

  take(record) {
    if (record.head.error) {
      // The last frame stays.
      this.message.textContent = record.head.error;
      return;
    }
    this.message.textContent = "";
    this.record = record;
    this.values = elements(record);
    this.skipped += record.head.skipped;
    this.drawn = [...this.drawn.filter((at) => at > performance.now() - 2000), performance.now()];
    if (record.head.shape.length === 0) {
      const x = record.head.step ?? this.history.length;
      if (this.history.at(-1)?.x >= x) this.history = [];
      this.history.push({ x, y: this.values[0] });
      if (this.history.length > HISTORY_MAX) this.history.shift();
    }
    this.redraw();
  }

  describe() {
    const { area, record } = this;
    const words = [shapeOf(area)];
    if (record) {
      if (record.head.step != null) words.push(`step ${record.head.step}`);
      words.push(`${(this.drawn.length / 2).toFixed(this.drawn.length < 20 ? 1 : 0)} frames/s`);
    }
    if (this.skipped) words.push(`${this.skipped} skipped`);
    this.facts.textContent = words.join(" · ");
  }

  redraw() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      if (this.record && this.element.isConnected) this.draw();
      this.describe();
    });
  }

  range() {
    const found = rangeOf(this.values);
    const fixed = this.options.range ?? found;
    return fixed.map((value, at) => Number.isNaN(value) ? found[at] : value);
  }

  draw() {
    const shape = this.record.head.shape;
    const isHeat = shape.length === 2;
    this.number.textContent = shape.length ? "" : short(this.values[0]) + unitsOf(this.area);
    this.number.hidden = shape.length > 0;
    this.scaleBar.hidden = this.over.hidden = this.colours.hidden = !isHeat;
    this.canvas.className = isHeat ? "cells" : "lines";
    if (shape.length > 2) {
      this.message.textContent = `${shape.length} dimensions are selected: select two, such as [0, :, :]`;
    } else if (isHeat) {
      this.drawHeat(shape);
    } else {
      this.drawLine(shape);
    }
    this.say();
  }

  drawHeat([rows, columns]) {
    const range = this.range();
    // Very long arrays are drawn less long.
    const ratio = Math.min(Math.max(columns / rows, 0.6), 4);
    this.canvas.style.height = "";
    this.canvas.style.aspectRatio = String(ratio);
    drawCells(this.canvas, this.values, rows, columns, range, this.options.map);
    drawScale(this.scale[1], this.options.map);
    [this.scale[0].textContent, this.scale[2].textContent] = range.map(short);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const context = sharp(this.over, width, height);
    const [w, h] = [width / columns, height / rows];
    const kept = this.spans().filter((span) => span.keeps);
    if (this.options.parts) {
      const dimensions = this.spans().flatMap((span, at) => span.keeps ? [at] : []);
      context.strokeStyle = "#00d0d0";
      for (const part of this.area.parts) {
        const [y, x] = dimensions.map((at, n) => (part.origin[at] - kept[n].start) / kept[n].step);
        const [high, wide] = dimensions.map((at, n) => part.shape[at] / kept[n].step);
        context.strokeRect(Math.ceil(x) * w + 0.5, Math.ceil(y) * h + 0.5, Math.ceil(wide) * w - 1, Math.ceil(high) * h - 1);
      }
    }
    if (this.cursor) {
      const [row, column] = this.cursor;
      for (const [colour, grow] of [["#000000", 1.5], ["#ffffff", 0.5]]) {
        context.strokeStyle = colour;
        context.strokeRect(column * w - grow, row * h - grow, w + 2 * grow, h + 2 * grow);
      }
    }
  }

  drawLine(shape) {
    this.canvas.style.aspectRatio = "";
    this.canvas.style.height = "14rem";
    const kept = this.spans().find((span) => span.keeps);
    const line = shape.length
      ? { xs: Array.from(this.values, (_, at) => kept.start + kept.step * at), ys: this.values }
      : { xs: this.history.map(({ x }) => x), ys: this.history.map(({ y }) => y) };
    const range = this.options.range ? this.range() : rangeOf(line.ys);
    this.find = drawLines(this.canvas, [line], range, this.cursor?.[0]);
    this.line = line;
  }

  spans() {
    return spansOf(this.options.select, this.area.shape);
  }

  // Where an element of the picture is in the area.
  placeOf(cursor) {
    const kept = [...cursor];
    return this.spans().map((span) => span.start + (span.keeps ? span.step * kept.shift() : 0));
  }

  point(event) {
    if (!this.record) return;
    const shape = this.record.head.shape;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (shape.length === 2) this.moveTo([y / box.height * shape[0], x / box.width * shape[1]].map(Math.floor));
    else if (this.find) this.moveTo([this.find(x)]);
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move || !this.record) return;
    event.preventDefault();
    const dimensions = this.record.head.shape.length;
    const from = this.cursor ?? (dimensions === 2 ? [0, 0] : [0]);
    this.moveTo(dimensions === 2 ? [from[0] + move[0], from[1] + move[1]] : [from[0] + move[1] - move[0]]);
  }

  moveTo(cursor) {
    const shape = this.record?.head.shape ?? [];
    const lengths = shape.length ? shape : [this.history.length];
    this.cursor = cursor && cursor.map((place, at) => Math.min(Math.max(place, 0), lengths[at] - 1));
    this.redraw();
  }

  // Says what is below the cursor.
  say() {
    if (!this.cursor) {
      this.readout.textContent = "";
      return;
    }
    const { shape } = this.record.head;
    if (shape.length === 0) {
      const { x, y } = this.history[Math.min(this.cursor[0], this.history.length - 1)];
      this.readout.textContent = `step ${x}: ${y}${unitsOf(this.area)}`;
      return;
    }
    if (this.cursor.some((place, at) => place >= shape[at])) return;
    const value = this.values[shape.length === 2 ? this.cursor[0] * shape[1] + this.cursor[1] : this.cursor[0]];
    const place = this.placeOf(this.cursor);
    const part = this.area.parts.find(({ origin, shape }) =>
      place.every((at, n) => at >= origin[n] && at < origin[n] + shape[n]));
    const owner = part ? ` · worker ${part.worker}, process ${part.process}` : "";
    this.readout.textContent = `[${place.join(", ")}] = ${value}${unitsOf(this.area)}${owner}`;
  }
}

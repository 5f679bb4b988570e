// A card shows one area.

import { ask } from "/stream.js";
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
const LINES_MAX = 8;
const TABLE_MAX = 40;
// The most strokes of the mouse that wait for the job.
const STROKES_MAX = 64;
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
  constructor(area, job, onChange, onClose) {
    this.area = area;
    this.job = job;
    this.onChange = onChange;
    this.strokes = [];
    this.options = { select: firstSelection(area.shape), period: 50, map: "heat", range: null, parts: false };
    this.history = [];
    this.skipped = 0;
    this.drawn = [];
    this.build(onClose);
    new ResizeObserver(() => this.redraw()).observe(this.picture);
  }

  topic(key) {
    return { key, watch: "area", job: this.job, area: this.area.name, select: this.options.select, period_ms: this.options.period };
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
    this.table = el("table", { hidden: true });
    this.scale = [el("span"), el("canvas"), el("span")];
    this.scaleBar = el("div", { class: "scale" }, ...this.scale);
    this.readout = el("output", { "aria-live": "off" });
    this.number = el("p", { class: "big" });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.point(event);
      if (this.isDrawing()) {
        event.preventDefault();
        this.canvas.setPointerCapture(event.pointerId);
        this.stroke();
      }
    });
    this.canvas.addEventListener("pointerleave", () => { if (document.activeElement !== this.canvas) this.moveTo(null); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.element = el("article", { "data-area": area.name },
      el("header", {}, el("h2", {}, area.name), el("span", { class: "room" }),
        el("button", { title: "Close", "aria-label": `Close ${area.name}`, onclick: onClose }, "×")),
      this.facts, this.message, this.number, this.slider(), this.picture, el("div", { class: "wide" }, this.table), this.scaleBar, this.readout, this.pen(), tools);
    this.describe();
  }

  // What sets a parameter.
  slider() {
    if (!this.area.bounds) return "";
    const [least, most] = this.area.bounds;
    const bounds = { min: String(least), max: String(most), "aria-label": `Value of ${this.area.name}` };
    this.range_ = el("input", { type: "range", step: String((most - least) / 1000 || 1), ...bounds });
    this.exact = el("input", { type: "number", step: "any", ...bounds });
    this.range_.addEventListener("input", () => this.set(this.range_.valueAsNumber));
    this.exact.addEventListener("change", () => this.set(this.exact.valueAsNumber));
    return el("div", { class: "slider" }, this.range_, this.exact);
  }

  // Sets the parameter. While one change is under way, only the newest value waits.
  async set(value) {
    this.wanted = value;
    if (this.isSetting) return;
    this.isSetting = true;
    while (this.wanted !== undefined) {
      const value = this.wanted;
      this.wanted = undefined;
      await this.tell({ do: "set", job: this.job, parameter: this.area.name, value });
    }
    this.isSetting = false;
  }

  async tell(question) {
    try {
      await ask(question);
      this.refusal = "";
    } catch (error) {
      this.refusal = error.message;
    }
    this.complain();
  }

  complain() {
    this.message.textContent = this.refusal || this.trouble || "";
  }

  // What writes elements by mouse.
  pen() {
    if (!this.area.writable || this.area.bounds || !this.area.shape.length) return "";
    this.draws = el("button", { "aria-pressed": "false", title: "Write with the mouse, or with Enter at the cursor",
      onclick: () => {
        this.draws.setAttribute("aria-pressed", String(!this.isDrawing()));
        this.canvas.classList.toggle("drawn-on", this.isDrawing());
      } }, "Draw");
    this.ink = el("input", { type: "number", step: "any", value: "1", "aria-label": "Value to write", title: "Value to write" });
    this.width = el("select", { "aria-label": "Width", title: "Width in elements" },
      ...["1", "3", "5", "9", "17"].map((width) => el("option", { value: width }, width)));
    return el("div", { class: "tools" }, this.draws, this.ink, this.width);
  }

  isDrawing() {
    return this.draws?.getAttribute("aria-pressed") === "true";
  }

  // Writes the value around the cursor.
  async stroke() {
    const value = this.ink.valueAsNumber;
    if (!this.cursor || Number.isNaN(value)) return;
    const reach = (Number(this.width.value) - 1) / 2;
    const spans = this.spans();
    let dimension = 0;
    const parts = spans.map((span, at) => {
      if (!span.keeps) return String(span.start);
      const place = span.start + span.step * this.cursor[dimension++];
      return `${Math.max(0, place - reach * span.step)}:${Math.min(this.area.shape[at], place + reach * span.step + 1)}`;
    });
    const select = `[${parts.join(", ")}]`;
    if (this.strokes.at(-1)?.select === select || this.strokes.length >= STROKES_MAX) return;
    this.strokes.push({ select, value });
    if (this.isWriting) return;
    this.isWriting = true;
    while (this.strokes.length) {
      const { select, value } = this.strokes[0];
      await this.tell({ do: "put", job: this.job, area: this.area.name, select, values: value });
      this.strokes.shift();
    }
    this.isWriting = false;
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
      this.trouble = record.head.error;
      this.complain();
      return;
    }
    this.trouble = "";
    this.complain();
    this.record = record;
    this.values = elements(record);
    this.skipped += record.head.skipped;
    this.drawn = [...this.drawn.filter((at) => at > performance.now() - 2000), performance.now()];
    if (record.head.shape.length === 0) {
      // Numbers without steps stand over the time, in seconds.
      const x = record.head.step ?? Math.round(performance.now()) / 1000;
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
      for (const { worker } of record.head.missing ?? []) words.push(worker == null ? "a part is missing" : `worker ${worker} is gone`);
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
    const isTable = this.area.kind === "table" && shape.length > 0 && shape.length < 3;
    const isHeat = shape.length === 2 && !isTable && this.area.kind !== "line";
    this.picture.hidden = isTable;
    this.table.hidden = !isTable;
    this.number.textContent = shape.length ? "" : short(this.values[0]) + unitsOf(this.area);
    this.number.hidden = shape.length > 0;
    this.scaleBar.hidden = this.over.hidden = this.colours.hidden = !isHeat;
    this.canvas.className = (isHeat ? "cells" : "lines") + (this.isDrawing() ? " drawn-on" : "");
    if (this.range_ && !this.isSetting && document.activeElement !== this.exact) {
      this.range_.value = this.exact.value = String(this.values[0]);
    }
    if (shape.length > 2) {
      this.trouble = `${shape.length} dimensions are selected: select two, such as [0, :, :]`;
      this.complain();
    } else if (isTable) {
      this.drawTable(shape);
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
    // Of two dimensions, each row is a line.
    const [rows, columns] = shape.length === 2 ? [Math.min(shape[0], LINES_MAX), shape[1]] : [1, this.values.length];
    const along = shape.length === 2 ? this.spans().filter((span) => span.keeps)[1] : kept;
    const lines = shape.length
      ? Array.from({ length: rows }, (_, row) => ({
        xs: Array.from({ length: columns }, (_, at) => along.start + along.step * at),
        ys: this.values.subarray(row * columns, (row + 1) * columns) }))
      : [{ xs: this.history.map(({ x }) => x), ys: this.history.map(({ y }) => y) }];
    const range = this.options.range ? this.range() : rangeOf(shape.length ? this.values : lines[0].ys);
    this.find = drawLines(this.canvas, lines, range, this.cursor?.at(-1));
  }

  drawTable(shape) {
    const [rows, columns] = shape.length === 2 ? shape : [1, shape[0]];
    const [high, wide] = [Math.min(rows, TABLE_MAX), Math.min(columns, TABLE_MAX)];
    this.table.replaceChildren(...Array.from({ length: high }, (_, row) =>
      el("tr", {}, ...Array.from({ length: wide }, (_, column) => el("td", {}, short(this.values[row * columns + column]))))));
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
    const isPressed = event.buttons & 1;
    if (shape.length === 2 && this.canvas.className.startsWith("cells")) this.moveTo([y / box.height * shape[0], x / box.width * shape[1]].map(Math.floor));
    else if (this.find) this.moveTo(shape.length === 2 ? [0, this.find(x)] : [this.find(x)]);
    if (isPressed && event.type === "pointermove" && this.isDrawing()) this.stroke();
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" && this.isDrawing()) this.stroke();
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
      const when = this.record.head.step == null ? `${x.toFixed(1)} s` : `step ${x}`;
      this.readout.textContent = `${when}: ${y}${unitsOf(this.area)}`;
      return;
    }
    if (this.cursor.some((place, at) => place >= shape[at])) return;
    const value = this.values[shape.length === 2 ? this.cursor[0] * shape[1] + this.cursor[1] : this.cursor[0]];
    const place = this.placeOf(this.cursor);
    const part = this.area.parts.find(({ origin, shape }) =>
      place.every((at, n) => at >= origin[n] && at < origin[n] + shape[n]));
    const owner = part ? ` · worker ${part.worker}, process ${part.process}` : "";
    const { origin, spacing } = this.area;
    const coordinates = spacing ? ` at (${place.map((at, n) => short((origin?.[n] ?? 0) + spacing[n] * at)).join(", ")})` : "";
    this.readout.textContent = `[${place.join(", ")}] = ${value}${unitsOf(this.area)}${coordinates}${owner}`;
  }
}

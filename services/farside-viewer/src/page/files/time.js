// A card shows where the time of the workers goes, and who waits for whom.

import { el } from "/cards.js";
import { LINE_COLOURS, sharp } from "/draw.js";

const RING_MAX = 64;
const WAIT_COLOURS = LINE_COLOURS.slice(3).concat(LINE_COLOURS[1]);
// A wait that is younger is not drawn as an arrow.
const ARROW_AGE_S = 0.02;

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const placeOf = ({ doing, file, line }) => `${doing} at ${file}:${line}`;

// What a worker does at this moment.
function doingOf({ call, wait }) {
  if (call) return call.site ? `runs a ${placeOf(call.site)}` : "runs a call";
  if (wait) return `${placeOf(wait)}, for ${wait.for}, ${wait.seconds.toFixed(1)} s`;
  return "computes";
}

// A size of memory.
const sizeOf = (bytes) => bytes < 10000 ? `${bytes} B` : bytes < 1e7 ? `${Math.round(bytes / 1024)} KiB`
  : `${Math.round(bytes / 1048576)} MiB`;

// What a worker has counted since the last look: calls, their bytes, stalls and queues.
function countsOf({ counted_seconds, sent, sent_bytes, ran, stalls, queued, replies_pending, ring_bytes }) {
  const words = [];
  if (counted_seconds > 0) {
    const rate = (count) => Math.round(count / counted_seconds);
    words.push(`${rate(sent)} calls/s`, `${sizeOf(rate(sent_bytes))}/s`, `${rate(ran)} run/s`, `${stalls} stalls`,
      `${queued} queued`);
  }
  if (replies_pending != null) words.push(`${replies_pending} pending`, `rings ${sizeOf(ring_bytes)}`);
  return words.join(" · ");
}

export class TimeCard {
  constructor(job, onClose) {
    this.job = job;
    // Each place of a wait keeps its colour.
    this.colours = new Map();
    this.facts = el("div", { class: "facts wrong", role: "alert" });
    this.rows = el("div", { class: "workers" });
    this.canvas = el("canvas", { class: "ring", role: "img", "aria-label": "Who waits for whom" });
    this.legend = el("ul", { class: "legend" });
    this.element = el("article", { "data-area": " time" },
      el("header", {}, el("h2", {}, "Where time goes"), el("span", { class: "room" }),
        el("button", { title: "Close", "aria-label": "Close where time goes", onclick: onClose }, "×")),
      this.facts, this.rows, this.canvas, this.legend);
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
  }

  topic(key) {
    return { key, watch: "workers", job: this.job };
  }

  update() {}

  take(record) {
    this.facts.textContent = record.head.error ?? "";
    if (record.head.error) return;
    this.head = record.head;
    this.redraw();
  }

  redraw() {
    if (!this.head) return;
    requestAnimationFrame(() => {
      this.drawBars();
      this.drawRing();
    });
  }

  colourOf(place) {
    if (!this.colours.has(place)) this.colours.set(place, WAIT_COLOURS[this.colours.size % WAIT_COLOURS.length]);
    return this.colours.get(place);
  }

  drawBars() {
    const seen = new Map();
    const part = (share, colour, title) => {
      const made = el("span", { title: `${title}: ${percent(share)}` });
      made.style.width = `${100 * share}%`;
      made.style.background = colour;
      return made;
    };
    this.rows.replaceChildren(...this.head.workers.flatMap((worker) => {
      const waits = worker.waits ?? [];
      for (const wait of waits) seen.set(placeOf(wait), Math.max(seen.get(placeOf(wait)) ?? 0, wait.share));
      const parts = worker.program === undefined ? [] : [
        part(worker.program, LINE_COLOURS[0], "program"), part(worker.calls, LINE_COLOURS[2], "calls"),
        ...waits.map((wait) => part(wait.share, this.colourOf(placeOf(wait)), placeOf(wait)))];
      return [el("b", {}, `${worker.worker}${worker.is_of_pool ? "p" : ""}`), el("div", { class: "bar" }, ...parts),
        el("small", {}, doingOf(worker), el("span", { class: "counts" }, countsOf(worker)))];
    }));
    const entry = (colour, text) => {
      const mark = el("span", { class: "mark" });
      mark.style.background = colour;
      return el("li", {}, mark, text);
    };
    const cycles = this.head.cycles.map((cycle) =>
      el("li", { class: "wrong" }, `workers wait for each other: ${[...cycle, cycle[0]].join(" → ")}`));
    this.legend.replaceChildren(...cycles, entry(LINE_COLOURS[0], "program"), entry(LINE_COLOURS[2], "calls"),
      ...[...seen].filter(([, share]) => share >= 0.01).sort((a, b) => b[1] - a[1]).slice(0, 8)
        .map(([place]) => entry(this.colourOf(place), place)));
  }

  // The workers on a circle, with an arrow to the one that is waited for.
  drawRing() {
    const workers = this.head.workers.filter((worker) => !worker.is_of_pool);
    this.canvas.hidden = workers.length < 2 || workers.length > RING_MAX;
    if (this.canvas.hidden) return;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const context = sharp(this.canvas, width, height);
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    const radius = Math.min(width, height) / 2 - 18;
    const places = new Map(workers.map((worker, at) => {
      const angle = 2 * Math.PI * at / workers.length - Math.PI / 2;
      return [worker.worker, [width / 2 + radius * Math.cos(angle), height / 2 + radius * Math.sin(angle)]];
    }));
    const inCycle = new Set(this.head.cycles.flat());
    context.lineWidth = 2;
    for (const { worker, wait } of workers) {
      if (!wait || wait.seconds < ARROW_AGE_S) continue;
      const [kind, number] = wait.for.split(" ");
      const first = kind === "process" ? workers.find((other) => other.process === Number(number))?.worker : Number(number);
      const to = places.get(first);
      if (!to || first === worker) continue;
      const from = places.get(worker);
      const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
      const [x, y] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
      const tip = [to[0] - 13 * x, to[1] - 13 * y];
      context.strokeStyle = context.fillStyle = inCycle.has(worker) ? colour("--wrong") : colour("--faint");
      context.beginPath();
      context.moveTo(from[0] + 13 * x, from[1] + 13 * y);
      context.lineTo(...tip);
      context.stroke();
      context.beginPath();
      context.moveTo(...tip);
      context.lineTo(tip[0] - 9 * x + 5 * y, tip[1] - 9 * y - 5 * x);
      context.lineTo(tip[0] - 9 * x - 5 * y, tip[1] - 9 * y + 5 * x);
      context.fill();
    }
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = "12px system-ui, sans-serif";
    for (const { worker, wait } of workers) {
      const [x, y] = places.get(worker);
      context.beginPath();
      context.arc(x, y, 12, 0, 2 * Math.PI);
      context.fillStyle = wait ? colour("--ground") : colour("--plot");
      context.fill();
      context.strokeStyle = inCycle.has(worker) ? colour("--wrong") : colour("--faint");
      context.stroke();
      context.fillStyle = wait ? colour("--ink") : "#ffffff";
      context.fillText(String(worker), x, y);
    }
  }
}

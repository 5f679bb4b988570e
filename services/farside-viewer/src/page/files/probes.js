// A card shows what a probe answers: a tree, a board of Hex, or a text.

import { el } from "/cards.js";
import { LINE_COLOURS, sharp, short } from "/draw.js";
import { ask } from "/stream.js";

const TREE_DEPTH = 12;
const TREE_NODES = 1000;
const PERIOD_MS = 500;
const LEVEL_HIGH = 34;

// How far a key goes to the right and down.
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const keyOf = (node) => String(node.id ?? node.name);

export class ProbeCard {
  constructor(area, job, onChange, onClose) {
    Object.assign(this, { area, job, onChange, root: null });
    this.facts = el("div", { class: "facts" });
    this.message = el("div", { class: "facts wrong", role: "alert" });
    this.canvas = el("canvas", { class: "probe", tabindex: "0", role: "img", "aria-label": `Picture of ${area.name}` });
    this.text = el("pre");
    this.readout = el("output");
    this.up = el("button", { hidden: true, onclick: () => this.zoom(null) }, "Whole tree");
    // Other probes are asked when a person wants to, with a question of the program's own.
    this.isPicture = area.kind === "tree" || area.kind === "hex-board";
    this.question = el("input", { type: "text", "aria-label": "Question", placeholder: "question" });
    const form = this.isPicture ? "" : el("form", { class: "tools", onsubmit: (event) => {
      event.preventDefault();
      this.askOnce();
    } }, this.question, el("button", {}, "Ask"));
    this.element = el("article", { "data-area": area.name },
      el("header", {}, el("h2", {}, area.name), el("span", { class: "room" }), this.up,
        el("button", { title: "Close", "aria-label": `Close ${area.name}`, onclick: onClose }, "×")),
      this.facts, this.message, this.isPicture ? this.canvas : "", form, this.text, this.readout);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => {
      this.point(event);
      this.open();
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.redraw());
    this.canvas.addEventListener("blur", () => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
  }

  topic(key) {
    // A probe without a picture is not asked again and again.
    if (!this.isPicture) return null;
    const question = this.area.kind === "tree" ? JSON.stringify({ limit: TREE_NODES }) : "";
    return { key, watch: "probe", job: this.job, probe: this.area.name, question, period_ms: PERIOD_MS };
  }

  update(area) {
    this.area = area;
  }

  async askOnce() {
    try {
      const { head } = await ask({ do: "ask", job: this.job, probe: this.area.name, question: this.question.value });
      this.message.textContent = "";
      this.text.textContent = head.answers.map(({ worker, answer }) =>
        `worker ${worker}: ${typeof answer === "string" ? answer : JSON.stringify(answer)}`).join("\n");
    } catch (error) {
      this.message.textContent = error.message;
    }
  }

  take(record) {
    if (!this.isPicture) return;
    this.message.textContent = record.head.error ?? "";
    if (record.head.error) return;
    this.answers = record.head.answers;
    this.redraw();
  }

  // Shows the part of a tree below the place that was found, or all again.
  open() {
    if (this.area.kind === "tree" && this.found) this.zoom(this.found.id === this.root ? null : this.found.id);
  }

  zoom(root) {
    this.root = root;
    this.up.hidden = root === null;
    this.redraw();
  }

  redraw() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      if (!this.answers || !this.element.isConnected) return;
      this.places = [];
      try {
        if (this.area.kind === "tree") this.drawTree(); else this.drawBoard();
        if (this.found) this.outline();
      } catch (error) {
        this.message.textContent = `the program's answer is no ${this.area.kind}: ${error.message}`;
      }
    });
  }

  colour(name) {
    const style = getComputedStyle(this.canvas);
    return name.startsWith("var") ? style.getPropertyValue(name.slice(4, -1)).trim() : name;
  }

  // Each node is a bar as wide as its share of visits, below its parent. Its colour is its owner's.
  drawTree() {
    const nodes = new Map();
    for (const { answer } of this.answers) for (const node of answer.nodes) nodes.set(String(node.id), { ...node, children: [] });
    const tops = [];
    for (const node of nodes.values()) (nodes.get(String(node.parent))?.children ?? tops).push(node);
    const top = nodes.get(String(this.root)) ?? tops.sort((a, b) => b.visits - a.visits)[0];
    if (!top) throw new Error("it has no node");
    const depth = (node, level = 1) => level > TREE_DEPTH ? level : Math.max(level, ...node.children.map((child) => depth(child, level + 1)));
    const levels = Math.min(depth(top), TREE_DEPTH + 1);
    this.canvas.style.height = `${levels * LEVEL_HIGH}px`;
    const width = this.canvas.clientWidth;
    const context = sharp(this.canvas, width, levels * LEVEL_HIGH);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const draw = (node, x, wide, level) => {
      if (wide < 0.5 || level >= levels) return;
      const y = level * LEVEL_HIGH;
      context.fillStyle = this.colour(LINE_COLOURS[(node.owner ?? 0) % LINE_COLOURS.length]);
      context.globalAlpha = 0.35 + 0.6 * Math.min(Math.max(Number(node.value) || 0, 0), 1);
      context.fillRect(x, y, Math.max(wide - 1, 0.5), LEVEL_HIGH - 2);
      context.globalAlpha = 1;
      this.places.push({ node, x, y, wide, high: LEVEL_HIGH });
      if (wide > 28) {
        context.save();
        context.beginPath();
        context.rect(x, y, wide - 4, LEVEL_HIGH);
        context.clip();
        context.fillStyle = this.colour("var(--ink)");
        context.fillText(`${node.label} ${node.visits}`, x + 4, y + LEVEL_HIGH / 2);
        context.restore();
      }
      const sum = Math.max(node.visits, node.children.reduce((sum, child) => sum + child.visits, 0), 1);
      let at = x;
      for (const child of node.children.sort((a, b) => b.visits - a.visits)) {
        const share = wide * child.visits / sum;
        draw(child, at, share, level + 1);
        at += share;
      }
    };
    draw(top, 0, width, 0);
    const owners = [...new Set([...nodes.values()].map((node) => node.owner ?? 0))].sort((a, b) => a - b);
    this.facts.textContent = `${nodes.size} nodes shown · ${top.visits} visits · owners ${owners.join(", ")}`;
  }

  drawBoard() {
    const board = this.answers[0].answer;
    const { size, stones } = board;
    if (!(size >= 1 && size <= 32) || stones.length !== size * size) throw new Error("its stones do not fit its size");
    const width = this.canvas.clientWidth;
    // A row is half a cell further right than the one above it.
    const wide = width / (size * 1.5 + 0.7);
    const radius = wide / Math.sqrt(3);
    const height = radius * 1.5 * (size - 1) + 2 * radius + 8;
    this.canvas.style.height = `${height}px`;
    const context = sharp(this.canvas, width, height);
    const nameOf = (row, column) => String.fromCharCode(97 + column) + (row + 1);
    const visits = board.visits ?? [];
    const most = Math.max(1, ...visits.filter(Number.isFinite));
    const expected = new Map((board.line ?? []).map((move, at) => [move, at + 1]));
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < size; column++) {
        const at = row * size + column;
        const x = wide * (column + row / 2 + 0.85);
        const y = radius * (1.5 * row + 1) + 4;
        const corner = (number) => [x + radius * Math.sin(number * Math.PI / 3), y - radius * Math.cos(number * Math.PI / 3)];
        context.beginPath();
        for (let number = 0; number < 6; number++) context.lineTo(...corner(number));
        context.closePath();
        context.fillStyle = this.colour("var(--ground)");
        context.fill();
        if (stones[at] === "." && visits[at]) {
          context.fillStyle = this.colour("var(--plot)");
          context.globalAlpha = 0.08 + 0.6 * visits[at] / most;
          context.fill();
          context.globalAlpha = 1;
        }
        context.strokeStyle = this.colour("var(--line)");
        context.lineWidth = 1;
        context.stroke();
        this.borders(context, corner, row, column, size);
        if (stones[at] === "x" || stones[at] === "o") {
          context.beginPath();
          context.arc(x, y, radius * 0.62, 0, 2 * Math.PI);
          context.fillStyle = stones[at] === "x" ? "#16181c" : "#ffffff";
          context.fill();
          context.strokeStyle = "#808890";
          context.stroke();
        } else {
          const rate = board.rates?.[at];
          context.fillStyle = this.colour("var(--ink)");
          context.font = `${Math.max(7, radius * 0.52)}px system-ui, sans-serif`;
          const number = expected.get(nameOf(row, column));
          if (Number.isFinite(rate)) context.fillText(String(Math.round(rate * 100)), x, y - (number ? radius * 0.25 : 0));
          if (number) {
            context.font = `bold ${Math.max(7, radius * 0.5)}px system-ui, sans-serif`;
            context.fillStyle = "#d9730d";
            context.fillText(`#${number}`, x, y + (Number.isFinite(rate) ? radius * 0.35 : 0));
          }
        }
        const node = { name: nameOf(row, column), stone: stones[at], rate: board.rates?.[at], visits: visits[at] };
        this.places.push({ node, x: x - radius * 0.8, y: y - radius * 0.8, wide: radius * 1.6, high: radius * 1.6 });
      }
    }
    const line = (board.line ?? []).length ? ` · expected ${board.line.join(" ")}` : "";
    this.facts.textContent = `${board.to_move === "x" ? "black" : "white"} to move${line}`;
  }

  // Thick edges: black joins the top with the bottom, white the left with the right.
  borders(context, corner, row, column, size) {
    const edge = (colour, ...corners) => {
      context.beginPath();
      corners.forEach((number) => context.lineTo(...corner(number)));
      context.strokeStyle = colour;
      context.lineWidth = 3;
      context.stroke();
    };
    const [black, white] = ["#16181c", "#c9ced6"];
    if (row === 0) edge(black, 5, 0, 1);
    if (row === size - 1) edge(black, 2, 3, 4);
    if (column === 0) edge(white, 3, 4, 5);
    if (column === size - 1) edge(white, 0, 1, 2);
  }

  // The place at which the cursor is. Each answer has new places for the same nodes.
  here() {
    return this.found && this.places.find((place) => keyOf(place.node) === keyOf(this.found));
  }

  // Says what is at the cursor now, and marks it for those who use keys.
  outline() {
    const place = this.here();
    this.say(place);
    if (!place || document.activeElement !== this.canvas) return;
    const context = this.canvas.getContext("2d");
    context.strokeStyle = this.colour("var(--ink)");
    context.lineWidth = 2;
    context.strokeRect(place.x + 1, place.y + 1, Math.max(place.wide - 3, 1), place.high - 4);
  }

  key(event) {
    if (event.key === "Backspace") this.zoom(null);
    else if (event.key === "Enter") this.open();
    else if (ARROWS[event.key] && this.places?.length) {
      const here = this.here();
      const walk = this.area.kind === "tree" ? this.inTree : this.onBoard;
      this.say((here && walk.call(this, here, ...ARROWS[event.key])) ?? here ?? this.places[0]);
      this.redraw();
    } else return;
    event.preventDefault();
  }

  // Up to the parent, down to the child with the most visits, or to the neighbour of the same level.
  inTree(here, right, down) {
    if (down) {
      return this.places.find(({ node }) => down > 0 ? String(node.parent) === String(here.node.id)
        : String(node.id) === String(here.node.parent));
    }
    const level = this.places.filter((place) => place.y === here.y).sort((a, b) => a.x - b.x);
    return level[level.indexOf(here) + right];
  }

  onBoard(here, right, down) {
    const size = Math.sqrt(this.places.length);
    const at = this.places.indexOf(here);
    const [row, column] = [Math.floor(at / size) + down, at % size + right];
    return Math.min(row, column) >= 0 && Math.max(row, column) < size ? this.places[row * size + column] : undefined;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const place = this.places?.find((place) => x >= place.x && x < place.x + place.wide && y >= place.y && y < place.y + place.high);
    this.say(place);
  }

  // Says what is at a place.
  say(place) {
    this.found = place?.node;
    if (!place) {
      this.readout.textContent = "";
    } else if (this.area.kind === "tree") {
      const { label, visits, value, owner } = place.node;
      this.readout.textContent = `${label}: ${visits} visits, value ${short(value)}, worker ${owner ?? 0}`;
    } else {
      const { name, stone, rate, visits } = place.node;
      const what = stone === "x" ? "black" : stone === "o" ? "white"
        : `wins ${Number.isFinite(rate) ? (rate * 100).toFixed(1) + " %" : "?"}, ${visits ?? 0} visits`;
      this.readout.textContent = `${name}: ${what}`;
    }
  }
}

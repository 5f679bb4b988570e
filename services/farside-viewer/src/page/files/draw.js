// Pictures of numbers: colours, heat maps, lines.

const MAPS = {
  heat: ["#000004", "#1b0c41", "#4a0c6b", "#781c6d", "#a52c60", "#cf4446", "#ed6925", "#fb9b06", "#f7d13d", "#fcffa4"],
  viridis: ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"],
  "blue–red": ["#1f4e98", "#8fb3dc", "#f2f2f2", "#e6a07c", "#a62a20"],
  grey: ["#000000", "#ffffff"],
};
export const MAP_NAMES = Object.keys(MAPS);
export const LINE_COLOURS = ["var(--plot)", "#d9730d", "#2e9e5b", "#c2410c", "#8b5cf6", "#0d9488", "#be185d", "#7c7c1c"];
// What is no number has a colour that no map has.
const NOT_A_NUMBER = 0xff7a8a7a;

const tables = new Map();

// 256 colours of a map, as pixels.
function table(name) {
  if (!tables.has(name)) {
    const anchors = MAPS[name].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const pixels = new Uint32Array(256);
    for (let at = 0; at < 256; at++) {
      const place = at / 255 * (anchors.length - 1);
      const low = Math.min(Math.floor(place), anchors.length - 2);
      const [r, g, b] = [0, 1, 2].map((c) =>
        Math.round(anchors[low][c] + (anchors[low + 1][c] - anchors[low][c]) * (place - low)));
      pixels[at] = 0xff000000 | b << 16 | g << 8 | r;
    }
    tables.set(name, pixels);
  }
  return tables.get(name);
}

const ARRAYS = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array, u32: Uint32Array,
  i32: Int32Array, u64: BigUint64Array, i64: BigInt64Array, f32: Float32Array, f64: Float64Array,
};

// The elements of a record. Of complex numbers, the absolute values; of structs, the first field.
// Those of processes that are gone are no numbers.
export function elements(record) {
  const values = present(record);
  const { shape, missing } = record.head;
  if (!missing) return values;
  const marked = Float64Array.from(values, Number);
  const mark = ({ origin, shape: lengths }, dimension, before) => {
    if (dimension === shape.length) marked[before] = NaN;
    else for (let at = 0; at < lengths[dimension]; at++) {
      mark({ origin, shape: lengths }, dimension + 1, before * shape[dimension] + origin[dimension] + at);
    }
  };
  missing.forEach((part) => mark(part, 0, 0));
  return marked;
}

function present({ head, body }) {
  if (head.type === "struct") return firstField(head, body);
  if (head.type !== "c64" && head.type !== "c128") return new ARRAYS[head.type](body.buffer);
  const parts = new ARRAYS[head.type === "c64" ? "f32" : "f64"](body.buffer);
  return Float64Array.from({ length: parts.length / 2 }, (_, at) => Math.hypot(parts[2 * at], parts[2 * at + 1]));
}

function firstField({ fields: [field], bytes_each }, body) {
  const size = { c64: 8, c128: 16 }[field.type] ?? ARRAYS[field.type].BYTES_PER_ELEMENT;
  const first = new Uint8Array(body.length / bytes_each * size);
  for (let at = 0; at * bytes_each < body.length; at++) {
    first.set(body.subarray(at * bytes_each, at * bytes_each + size), at * size);
  }
  return present({ head: { type: field.type }, body: first });
}

// The least and the greatest number.
export function rangeOf(values) {
  let [least, most] = [Infinity, -Infinity];
  for (let at = 0; at < values.length; at++) {
    const value = Number(values[at]);
    if (value < least && value > -Infinity) least = value;
    if (value > most && value < Infinity) most = value;
  }
  return least <= most ? [least, most] : [0, 1];
}

// Draws one pixel for each element.
export function drawCells(canvas, values, rows, columns, [least, most], map) {
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = table(map);
  const factor = most > least ? 255 / (most - least) : 0;
  for (let at = 0; at < pixels.length; at++) {
    const value = Number(values[at]);
    const place = Math.round((value - least) * factor);
    pixels[at] = place !== place ? NOT_A_NUMBER : colours[place < 0 ? 0 : place > 255 ? 255 : place];
  }
  context.putImageData(image, 0, 0);
}

// Draws the colours of a map from left to right.
export function drawScale(canvas, map) {
  drawCells(canvas, Uint8Array.from({ length: 256 }, (_, at) => at), 1, 256, [0, 255], map);
}

// A canvas with as many pixels as the screen has there. Returns its context, in pixels of CSS.
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Numbers for an axis: at most `count` steps of 1, 2 or 5 times a power of ten.
function ticks(least, most, count) {
  const rough = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const found = [];
  for (let at = Math.ceil(least / step); at * step <= most + step * 1e-9; at++) found.push(at * step);
  return found;
}

export const short = (value) => {
  if (typeof value === "bigint") return value.toString();
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return Number.isFinite(value) ? Number(value.toPrecision(6)).toString() : String(value);
};

const MARGIN = { left: 58, right: 8, top: 8, bottom: 22 };

// Draws lines: each has `xs` and `ys`. Returns what finds the place in the data below a pixel.
export function drawLines(canvas, lines, range, cursor) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const context = sharp(canvas, width, height);
  const style = getComputedStyle(canvas);
  const colour = (name) => name.startsWith("var") ? style.getPropertyValue(name.slice(4, -1)).trim() : name;
  let [least, most] = range;
  if (!(most > least)) [least, most] = [least - 0.5, least + 0.5];
  const xs = lines[0].xs;
  const [first, last] = [xs[0], xs[xs.length - 1] > xs[0] ? xs[xs.length - 1] : xs[0] + 1];
  const plot = { w: width - MARGIN.left - MARGIN.right, h: height - MARGIN.top - MARGIN.bottom };
  const toX = (x) => MARGIN.left + (x - first) / (last - first) * plot.w;
  const toY = (y) => MARGIN.top + (most - y) / (most - least) * plot.h;
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = colour("var(--line)");
  context.fillStyle = colour("var(--faint)");
  context.lineWidth = 1;
  context.beginPath();
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const y of ticks(least, most, 5)) {
    context.moveTo(MARGIN.left, toY(y));
    context.lineTo(width - MARGIN.right, toY(y));
    context.fillText(short(y), MARGIN.left - 5, toY(y));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const x of ticks(first, last, Math.max(2, Math.floor(plot.w / 90)))) {
    context.fillText(short(x), toX(x), height - MARGIN.bottom + 5);
  }
  if (cursor !== undefined) {
    context.moveTo(toX(xs[cursor]), MARGIN.top);
    context.lineTo(toX(xs[cursor]), MARGIN.top + plot.h);
  }
  context.stroke();
  context.lineWidth = 1.5;
  lines.forEach((line, number) => {
    context.strokeStyle = colour(LINE_COLOURS[number % LINE_COLOURS.length]);
    context.beginPath();
    let isDown = false;
    for (let at = 0; at < line.ys.length; at++) {
      const y = Number(line.ys[at]);
      if (!Number.isFinite(y)) { isDown = false; continue; }
      if (isDown) context.lineTo(toX(line.xs[at]), toY(y)); else context.moveTo(toX(line.xs[at]), toY(y));
      isDown = true;
    }
    context.stroke();
  });
  return (pixel) => Math.round(Math.min(Math.max((pixel - MARGIN.left) / plot.w, 0), 1) * (xs.length - 1));
}

// The page: the job, what it shows, and the cards of what is watched.

import { Card, el, shapeOf } from "/cards.js";
import { ProbeCard } from "/probes.js";
import { Stream, ask } from "/stream.js";
import { TimeCard } from "/time.js";

const at = (id) => document.getElementById(id);
const LISTED_MAX = 500;
const WITHOUT_ELEMENTS = ["action", "probe"];
// The number of areas that are watched without being chosen, when a job is first shown.
const FIRST_MAX = 3;
// No area has this name: names of areas are no symbols.
const TIME = Symbol("time");

const cards = new Map();
let jobs = [];
let job = null;
let areas = [];
let isFresh = true;
let paused = null;
// When each area's step last changed: [step, time].
const moved = new Map();

const stream = new Stream(take, (message) => {
  say(message || "connected", message !== "");
});

const nameOf = (job) => `${job.name}/${job.id}`;

function watch() {
  const topics = [{ key: "jobs", watch: "jobs" }];
  if (job) topics.push({ key: "list", watch: "list", job });
  for (const [name, card] of cards) topics.push(card.topic(name === TIME ? "time" : `area ${name}`));
  stream.watch(topics.filter(Boolean));
}

function take(record) {
  const { key } = record.head;
  if (key === "jobs") takeJobs(record.head);
  else if (key === "list") takeList(record.head);
  else cards.get(key === "time" ? TIME : key.slice(5))?.take(record);
}

function takeJobs(head) {
  if (head.error) {
    at("state").textContent = head.error;
    return;
  }
  jobs = head.jobs;
  const names = jobs.map(nameOf);
  // The page stays at a job that has ended, with its last frames, until another one is chosen.
  if (!job && names.length) choose(names[0]);
  const shown = job && !names.includes(job) ? [job, ...names] : names;
  const options = shown.map((name) =>
    el("option", { value: name, selected: name === job }, names.includes(name) ? name : `${name} (ended)`));
  at("job").replaceChildren(...options);
  if (!shown.length) at("state").textContent = "no job shows anything";
  const ours = jobs.find((found) => nameOf(found) === job);
  at("processes").querySelector("summary").textContent = ours
    ? `Processes: ${ours.processes.length} of ${ours.process_count}` : "Processes";
  at("processes").querySelector("ul").replaceChildren(...(ours?.processes ?? []).map((process) =>
    el("li", {}, `process ${process.process}: number ${process.system_process} in the system`)),
    ...(ours?.by_launcher ?? []).map((process) =>
      el("li", {}, `process ${process.process}, seen through its launcher (${process.system_process})`)),
    ...(ours?.silent ?? []).map((process) => el("li", { class: "wrong" }, `process ${process} does not answer`)));
}

function choose(name) {
  job = name;
  areas = [];
  isFresh = true;
  moved.clear();
  cards.forEach((card) => card.element.remove());
  cards.clear();
  shown();
}

function takeList(head) {
  if (head.error) {
    say(head.error, true);
    return;
  }
  areas = head.areas;
  showPaused(head.paused ?? null);
  at("control").hidden = false;
  at("pause").title = areas.some((area) => area.role === "view") ? "Have the job pause, or go on (space)"
    : "This job cannot be paused: none of its workers publishes steps";
  if (!at("state").dataset.said) say(paused ? `paused after step ${paused.step ?? "?"}` : "connected");
  for (const area of areas) {
    if (moved.get(area.name)?.[0] !== area.step) moved.set(area.name, [area.step, Date.now()]);
    cards.get(area.name)?.update(area);
  }
  if (isFresh && areas.length) {
    isFresh = false;
    areas.filter((area) => area.role !== "action").slice(0, FIRST_MAX).forEach((area) => toggle(area.name));
  }
  list();
}

// The list of areas. What has not changed keeps its element, and so the focus.
function list() {
  const wanted = at("filter").value.toLowerCase();
  const found = areas.filter((area) => area.name.toLowerCase().includes(wanted));
  const known = new Map([...at("areas").children].map((item) => [item.dataset.key, item]));
  const items = found.slice(0, LISTED_MAX).map((area) => {
    const key = `${area.name} ${shapeOf(area)}`;
    const item = known.get(key) ?? el("li", { "data-key": key }, el("button", { "aria-pressed": "false",
      "data-area": area.name, onclick: () => toggle(area.name) }, el("span", { class: "name" }, area.name), el("small")));
    const button = item.firstChild;
    button.setAttribute("aria-pressed", String(cards.has(area.name)));
    const [step, since] = moved.get(area.name);
    const age = Math.round((Date.now() - since) / 1000);
    const words = WITHOUT_ELEMENTS.includes(area.role) ? [area.role] : [shapeOf(area)];
    if (area.role === "parameter") words.push(`parameter from ${area.bounds[0]} to ${area.bounds[1]}`);
    else if (area.role === "gauge" || area.role === "memory") words.push(area.role);
    if (area.role === "view" || area.role === "memory") words.push(area.writable ? "writable" : "read only");
    if (step != null) words.push(`step ${step}` + (age > 2 ? `, ${age} s ago` : ""));
    else if (area.role === "view") words.push("nothing published");
    if (area.parts.length > 1) words.push(`${area.parts.length} parts`);
    button.lastChild.textContent = words.join(" · ");
    return item;
  });
  if (found.length > LISTED_MAX) items.push(el("li", {}, el("small", {}, `and ${found.length - LISTED_MAX} more`)));
  const current = [...at("areas").children];
  if (items.length !== current.length || items.some((item, n) => item !== current[n])) at("areas").replaceChildren(...items);
}

// Says how a question of a person ended, for a while.
function say(text, isWrong) {
  at("state").textContent = text;
  at("state").classList.toggle("wrong", Boolean(isWrong));
}

async function tell(question, done) {
  try {
    say(done(await ask({ job, ...question })), false);
  } catch (error) {
    say(error.message, true);
  }
  at("state").dataset.said = "yes";
  clearTimeout(tell.later);
  tell.later = setTimeout(() => { delete at("state").dataset.said; }, 4000);
}

const pause = () => paused
  ? tell({ do: "resume" }, () => { showPaused(null); return "the job goes on"; })
  : tell({ do: "pause" }, ({ head }) => { showPaused(head); return `paused after step ${head.step ?? "?"}`; });
// Another viewer may have made the pause, and the list may not say so yet.
const next = () => tell({ do: "next" }, ({ head }) => { showPaused(head); return `paused after step ${head.step ?? "?"}`; });

function showPaused(head) {
  paused = head;
  at("pause").textContent = paused ? "▶ Go on" : "❚❚ Pause";
  at("pause").setAttribute("aria-pressed", String(paused !== null));
  at("next").disabled = !paused;
}

function toggle(name) {
  const card = cards.get(name);
  const area = areas.find((area) => area.name === name);
  if (area?.role === "action") {
    tell({ do: "act", action: name }, () => `${name}: started`);
    return;
  }
  if (card) {
    card.element.remove();
    cards.delete(name);
  } else {
    const made = new (area.role === "probe" ? ProbeCard : Card)(area, job, watch, () => toggle(name));
    cards.set(name, made);
    at("cards").append(made.element);
  }
  shown();
}

// The cards have changed.
function shown() {
  at("empty").hidden = cards.size > 0;
  at("time").setAttribute("aria-pressed", String(cards.has(TIME)));
  list();
  watch();
}

function toggleTime() {
  const card = cards.get(TIME);
  if (card) {
    card.element.remove();
    cards.delete(TIME);
  } else if (job) {
    const made = new TimeCard(job, toggleTime);
    cards.set(TIME, made);
    at("cards").prepend(made.element);
  }
  shown();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  cards.forEach((card) => card.redraw());
}

const dark = matchMedia("(prefers-color-scheme: dark)");
theme(localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light"));
const switchTheme = () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  localStorage.setItem("theme", document.documentElement.dataset.theme);
};

at("time").addEventListener("click", toggleTime);
at("pause").addEventListener("click", pause);
at("next").addEventListener("click", next);
at("theme").addEventListener("click", switchTheme);
at("help").addEventListener("click", () => at("keys").showModal());
at("job").addEventListener("change", () => choose(at("job").value));
at("filter").addEventListener("input", list);
addEventListener("hashchange", () => stream.again());
addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, button, summary") && event.key === " ") return;
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const does = { "/": () => at("filter").focus(), d: switchTheme, t: toggleTime, " ": pause, n: next, "?": () => at("keys").showModal() }[event.key];
  if (does) {
    event.preventDefault();
    does();
  }
});
// Ages grow also when nothing arrives.
setInterval(list, 1000);
watch();

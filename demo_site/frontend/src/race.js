// The race: the page asks Python for frames, a few steps at a time, and draws what comes back.
import { lineChart, short } from "./lib/chart.js";
import { create, everyFrame, find, onTheme, setStatus, setText } from "./lib/dom.js";
import { PythonWorker } from "./lib/runtime.js";
import "./lib/url.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";
import { Terrain, drawRacers } from "./pages/terrain.js";

const MOST_STEPS = 2000;
const ARRIVED = 0.01; // the height at which a racer is there
const LOWEST_DRAWN = 1e-4; // a logarithm has no zero
const FIRST_RACERS = ["sgd", "momentum", "adam", "amsgrad"];

const canvas = find("#map");
const context = canvas.getContext("2d");
const status = find("#status");
const py = { worker: null };
const fields = Object.fromEntries(["surface", "start-x", "start-y", "noise"].map((id) => [id, find(`#${id}`)]));
const buttons = Object.fromEntries(["play", "step", "reset"].map((id) => [id, find(`#${id}`)]));

let offered; // surfaces and kinds of racers, as Python describes them
let terrain = null;
let racers = []; // {kind, label, number, color, box, rate, points, height, arrived, row, cells}
let chart = null;
let steps = 0;
let playing = false;
let generation = 0; // of the race; frames of an older one are dropped

const call = (expression, globals) =>
  py.worker.run(`import optirs_web as ow\nimport race\n${expression}`, { name: "race page", globals });

// Setting up.

function fillForm() {
  for (const [name, { label }] of Object.entries(offered.surfaces)) {
    fields.surface.append(create("option", { value: name }, label));
  }
  Object.entries(offered.kinds).forEach(([kind, { label }], index) => {
    const number = index + 1;
    const name = `series-${index + 1}`;
    const bib = create("span", { class: "bib", "aria-hidden": "true" }, String(number));
    bib.style.background = `var(--${name})`;
    const box = create("input", { type: "checkbox", value: kind, checked: FIRST_RACERS.includes(kind) });
    const rate = create("input", {
      class: "input", type: "number", min: "0", step: "any", required: true, "aria-label": `Learning rate of ${label}`,
    });
    const row = create("div", { class: "racer", data: { kind } }, create("label", {}, box, bib, label), rate);
    find("#racers").append(row);
    racers.push({ kind, label, number, color: name, box, rate, points: [], height: null, arrived: null, row: null, cells: [] });
  });
}

const running = () => racers.filter(({ box }) => box.checked);

async function chooseSurface() {
  pause();
  const name = fields.surface.value;
  const surface = offered.surfaces[name];
  [fields["start-x"].value, fields["start-y"].value] = surface.start;
  fields.noise.value = surface.noise;
  for (const { kind, rate } of racers) rate.value = surface.rates[kind] ?? 0.01;
  setText(find("#about"), surface.about);
  setText(find("#formula"), surface.formula);
  canvas.setAttribute("aria-label", `Contour map of ${surface.label}, with the tracks of the racers; the table has their positions`);
  const heights = await call("(await race.heights(ow.device(), name)).cast('B').cast('f')", { name });
  terrain = new Terrain({ ...surface, heights, grid: offered.grid });
  await begin();
}

/** A new race with what the form says. */
async function begin() {
  pause();
  if (!find("#setup").reportValidity()) return;
  const mine = ++generation;
  const start = [Number(fields["start-x"].value), Number(fields["start-y"].value)];
  steps = 0;
  for (const racer of racers) {
    racer.points = [start];
    racer.height = racer.arrived = null;
  }
  setText(find("#steps"), 0);
  listRacers();
  chart?.destroy();
  find("#heights").replaceChildren();
  chart = lineChart(find("#heights"), {
    series: running().map(({ label, color }) => ({ label, color })),
    scales: { y: { log: true } },
    height: 280,
  });
  draw();
  const options = {
    surface: fields.surface.value,
    racers: running().map(({ kind, rate }) => ({ kind, lr: Number(rate.value) })),
    start,
    noise: Number(fields.noise.value),
  };
  for (const button of Object.values(buttons)) button.disabled = true;
  setText(buttons.play, "Start");
  if (options.racers.length === 0) return setStatus(status, "idle", "Choose a racer");
  setStatus(status, "busy", "Preparing the race");
  await call("race.running = race.Race(ow.device(), **options)", { options });
  if (mine !== generation) return;
  for (const button of Object.values(buttons)) button.disabled = false;
  setStatus(status, "idle", "Ready");
}

function listRacers() {
  find("#standing tbody").replaceChildren(
    ...running().map((racer) => {
      const bib = create("span", { class: "bib", "aria-hidden": "true" }, String(racer.number));
      bib.style.background = `var(--${racer.color})`;
      const cells = Array.from({ length: 4 }, () => create("td", { class: "number" }, "–"));
      racer.cells = cells;
      racer.row = create("tr", { data: { kind: racer.kind } },
        create("th", { scope: "row" }, create("span", {}, bib, racer.label)), ...cells);
      return racer.row;
    }),
  );
}

// Running.

async function frame(count) {
  const mine = generation;
  count = Math.min(count, MOST_STEPS - steps);
  const track = await call("await race.running.frame(count)", { count });
  if (mine !== generation) return;
  for (const positions of track) {
    const heights = {};
    running().forEach((racer, index) => {
      const [x, y, height] = positions[index];
      racer.points.push([x, y]);
      racer.height = height;
      if (height <= ARRIVED) racer.arrived ??= steps;
      heights[racer.label] = Math.max(height, LOWEST_DRAWN);
    });
    chart.push(steps++, heights);
  }
  draw();
  if (isOver()) finish();
}

async function play() {
  playing = true;
  setText(buttons.play, "Pause");
  setStatus(status, "running", "Running");
  while (playing) {
    await frame(Number(find("#speed input:checked").value));
    await new Promise(requestAnimationFrame);
  }
}

function finish() {
  playing = false;
  setText(buttons.play, "Start");
  buttons.play.disabled = buttons.step.disabled = true;
  setStatus(status, "done", `Finished: ${verdict()}`);
}

/** The racers from the first to the last: who arrived, by the step, then the others by their height. */
function ranked() {
  const result = ({ arrived, height }) => (arrived !== null ? arrived - MOST_STEPS : Number.isFinite(height) ? height : Infinity);
  return running().sort((one, other) => Math.sign(result(one) - result(other)) || 0);
}

const isOver = () => steps >= MOST_STEPS || (steps > 0 && running().every(({ arrived }) => arrived !== null));

function verdict() {
  const [{ label, arrived, height }] = ranked();
  if (arrived !== null) return `${label} arrives first, at step ${arrived.toLocaleString("en")}`;
  return `nobody has arrived, ${label} is lowest, at ${short(height)}`;
}

function pause() {
  if (!playing) return;
  playing = false;
  setText(buttons.play, "Go on");
  setStatus(status, "idle", "Paused");
}

const draw = everyFrame(() => {
  if (!terrain) return;
  const scale = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  terrain.draw(context);
  drawRacers(context, terrain, running(), scale);
  setText(find("#steps"), steps.toLocaleString("en"));
  for (const { points, height, arrived, cells } of running()) {
    const [x, y] = points.at(-1);
    const texts = [x.toFixed(3), y.toFixed(3), height === null ? "–" : short(height), arrived === null ? "–" : `step ${arrived}`];
    texts.forEach((text, index) => setText(cells[index], text));
  }
  const rows = ranked().map(({ row }) => row);
  const table = find("#standing tbody");
  if (rows.some((row, place) => table.rows[place] !== row)) table.replaceChildren(...rows);
});

/** Errors of Python end up in the status line. */
const guarded = (action) => async (...values) => {
  try {
    await action(...values);
  } catch (error) {
    playing = false;
    setStatus(status, "failed", error.message);
  }
};

async function main() {
  py.worker = new PythonWorker({ programs: ["race"] });
  await py.worker.ready;
  offered = await call("race.described()");
  fillForm();
  fields.surface.disabled = false;
  fields.surface.addEventListener("change", guarded(chooseSurface));
  find("#setup").addEventListener("change", guarded(async ({ target }) => {
    if (target !== fields.surface && target.name !== "speed") await begin();
  }));
  find("#setup").addEventListener("submit", (event) => event.preventDefault());
  buttons.play.addEventListener("click", guarded(() => (playing ? pause() : play())));
  buttons.step.addEventListener("click", guarded(async () => {
    pause();
    setStatus(status, "running", "One step");
    await frame(1);
    if (!isOver() && !playing) setStatus(status, "idle", "Paused");
  }));
  buttons.reset.addEventListener("click", guarded(begin));
  canvas.addEventListener("click", guarded(async (event) => {
    const box = canvas.getBoundingClientRect();
    const point = terrain.at((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    [fields["start-x"].value, fields["start-y"].value] = point.map((value) => value.toFixed(2));
    await begin();
  }));
  new ResizeObserver(draw).observe(canvas);
  onTheme(() => {
    terrain?.refresh();
    draw();
  });
  await guarded(chooseSurface)();
}

if (!(await stopWithoutWebgpu(find("#stage")))) guarded(main)();

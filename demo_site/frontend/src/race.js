// The race: the page asks Python for frames, a few steps at a time, and draws what comes back.
import { lineChart, short } from "./lib/chart.js";
import { create, everyFrame, find, onTheme, setStatus, setText } from "./lib/dom.js";
import { loadPython } from "./lib/loading.js";
import { pictureButton } from "./lib/picture.js";
import { loadRecording, playRecording } from "./lib/recording.js";
import { PythonWorker } from "./lib/runtime.js";
import { bindUrl, number, numbers, numbersOf, oneOf, whole } from "./lib/url.js";
import { explainWithoutWebgpu } from "./lib/webgpu.js";
import { Terrain, drawRacers } from "./pages/terrain.js";

const MOST_STEPS = 2000;
const LOWEST_DRAWN = 1e-4; // a logarithm has no zero; the legend has the heights themselves
const FIRST_RACERS = ["sgd", "momentum", "adam", "amsgrad"];

const canvas = find("#map");
const context = canvas.getContext("2d");
const status = find("#status");
const fields = Object.fromEntries(["surface", "start-x", "start-y", "noise", "seed"].map((id) => [id, find(`#${id}`)]));
const buttons = Object.fromEntries(["play", "step", "reset"].map((id) => [id, find(`#${id}`)]));

let python = null;
let lastCall = Promise.resolve();
let offered; // surfaces and kinds of racers, as Python describes them
let terrain = null;
const racers = []; // {kind, label, number, color, box, rate, points, height, arrived, out, row, cells}
let racing = []; // those of the race that is on
let chart = null;
let steps = 0;
let playing = false;
let generation = 0; // of the race; frames of an older one are dropped
let lastState = {}; // for the address, of a form that was valid

/** The value of an expression in Python, which computes one at a time. */
function call(expression, globals) {
  const value = lastCall.then(() => python.run(`import optirs_web as ow\nimport race\n${expression}`, { name: "race page", globals }));
  lastCall = value.catch(() => {});
  return value;
}

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
    racers.push({ kind, label, number, color: name, box, rate, points: [], height: null, arrived: null, out: null, row: null, cells: [] });
  });
}

/** What is raced on a surface, unless the visitor or the address says otherwise. */
function usual(name) {
  const { start, noise, rates } = offered.surfaces[name];
  return { start, noise, seed: 0, racers: new Map(FIRST_RACERS.map((kind) => [kind, rates[kind]])) };
}

/** What the form says, in the same form. */
function chosen() {
  const [x, y, noise, seed] = ["start-x", "start-y", "noise", "seed"].map((id) => Number(fields[id].value));
  return { start: [x, y], noise, seed, racers: new Map(racers.filter(({ box }) => box.checked).map(({ kind, rate }) => [kind, Number(rate.value)])) };
}

const ADDRESS = {
  surface: oneOf(() => Object.keys(offered.surfaces), { push: true }),
  racers: numbersOf(() => Object.keys(offered.kinds), 0, Number.MAX_VALUE),
  start: numbers(2, -1e6, 1e6),
  noise: number(0, 100),
  seed: whole(0, 2 ** 32 - 1),
};

/** What the address has to say: what is not as usual. Of a value that cannot be raced with it says nothing. */
function state() {
  if (!find("#setup").checkValidity()) return lastState;
  const surface = fields.surface.value;
  const [now, before] = [chosen(), usual(surface)];
  const same = (key) => ADDRESS[key].format(now[key]) === ADDRESS[key].format(before[key]);
  const others = Object.keys(now).map((key) => [key, same(key) || now[key].size === 0 ? undefined : now[key]]);
  lastState = { surface: surface === Object.keys(offered.surfaces)[0] ? undefined : surface, ...Object.fromEntries(others) };
  return lastState;
}

async function open({ surface = Object.keys(offered.surfaces)[0], ...others }) {
  fields.surface.value = surface;
  await chooseSurface({ ...usual(surface), ...others });
}

/** What the form and the text say of the landscape that is chosen. */
function fillSurface(changed = {}) {
  const name = fields.surface.value;
  const surface = offered.surfaces[name];
  const { start, noise, seed, racers: rates } = { ...usual(name), ...changed };
  [fields["start-x"].value, fields["start-y"].value] = start;
  [fields.noise.value, fields.seed.value] = [noise, seed];
  for (const { kind, box, rate } of racers) {
    rate.value = rates.get(kind) ?? surface.rates[kind] ?? 0.01;
    if (changed.racers) box.checked = rates.has(kind);
  }
  setText(find("#about"), surface.about);
  setText(find("#formula"), surface.formula);
  setText(find("#goal"), `A racer has arrived when its height stays at or below ${surface.goal} for ${offered.stay} steps, and is out when it leaves the map by more than the map’s width.`);
  canvas.setAttribute("aria-label", `Contour map of ${surface.label}, with the racers’ tracks; the table lists their positions`);
}

async function chooseSurface(changed = {}) {
  pause();
  fillSurface(changed);
  const name = fields.surface.value;
  const heights = await call("(await race.heights(ow.device(), name)).cast('B').cast('f')", { name });
  if (fields.surface.value !== name) return; // another one was chosen meanwhile
  terrain = new Terrain({ ...offered.surfaces[name], heights, grid: offered.grid });
  await begin();
}

/** A new race with what the form says. */
async function begin() {
  pause();
  const mine = ++generation;
  if (!find("#setup").reportValidity()) return refuse(find("#setup input:invalid"));
  const { start, noise, seed } = chosen();
  lineUp(start);
  const options = {
    surface: fields.surface.value,
    racers: racing.map(({ kind, rate }) => ({ kind, lr: Number(rate.value) })),
    start,
    noise,
    seed,
  };
  for (const button of Object.values(buttons)) button.disabled = true;
  setText(buttons.play, "Start");
  if (options.racers.length === 0) return setStatus(status, "idle", "Choose a racer");
  setStatus(status, "busy", "Preparing the race");
  try {
    await call("race.running = race.Race(ow.device(), **options)", { options });
    if (mine !== generation) return;
    buttons.play.disabled = buttons.step.disabled = false;
    setStatus(status, "idle", "Ready");
  } finally {
    if (mine === generation) buttons.reset.disabled = false;
  }
}

/** Says what is wrong with a field. There is nothing to run until it is corrected: the race before is not what the form says. */
function refuse(field) {
  setText(buttons.play, "Start");
  buttons.play.disabled = buttons.step.disabled = true;
  setStatus(status, "failed", `${field.ariaLabel ?? field.labels[0].textContent.trim()}: ${field.validationMessage}`);
}

/** The racers that are chosen, at the start. */
function lineUp(start) {
  steps = 0;
  racing = racers.filter(({ box }) => box.checked);
  for (const racer of racing) {
    racer.points = [start];
    racer.height = racer.arrived = racer.out = null;
  }
  listRacers();
  chart?.destroy();
  find("#heights").replaceChildren();
  chart = lineChart(find("#heights"), {
    series: racing.map(({ label, color }) => ({ label, color })),
    scales: { y: { log: true, lowest: LOWEST_DRAWN } },
    height: 280,
  });
  draw();
}

function listRacers() {
  find("#standing tbody").replaceChildren(
    ...racing.map((racer) => {
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
  const { points, results } = await call("await race.advance(race.running, count)", { count });
  if (mine !== generation) return;
  racing.forEach((racer, index) => {
    racer.arrived = results[index].arrived ?? null; // Python's None is undefined here
    racer.out = results[index].out ?? null;
  });
  follow(points);
  if (isOver()) finish();
}

/** Shows where the racers were at some steps, [x, y, height] of each. */
function follow(points) {
  for (const row of points) {
    const heights = {};
    racing.forEach((racer, index) => {
      const [x, y, height] = row[index];
      if (racer.out !== null && steps > racer.out) return;
      if (Number.isFinite(x) && Number.isFinite(y)) racer.points.push([x, y]);
      racer.height = height;
      if (racer.out === null) heights[racer.label] = height;
    });
    chart.push(steps++, heights);
  }
  draw();
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

/** The racers from the first to the last: who has arrived, by the step, then by height, then who is out, the latest first. */
function ranked() {
  const rank = ({ arrived, out, height }) => (arrived !== null ? [0, arrived] : out !== null ? [2, -out] : [1, height]);
  return racing.map((racer) => [rank(racer), racer])
    .sort(([[group, one]], [[otherGroup, other]]) => group - otherGroup || one - other)
    .map(([, racer]) => racer);
}

const isOver = () => steps >= MOST_STEPS || (steps > 0 && racing.every(({ arrived, out }) => arrived !== null || out !== null));

function verdict() {
  const [{ label, arrived, out, height }] = ranked();
  const losers = racing.filter((racer) => racer.out !== null).map((racer) => racer.label);
  if (out !== null) return "no racer arrived; all are out";
  const result = arrived !== null
    ? `${label} arrived first, at step ${arrived.toLocaleString("en")}`
    : `no racer arrived; ${label} is lowest, at ${short(height)}`;
  return losers.length ? `${result}; out: ${losers.join(", ")}` : result;
}

function pause() {
  if (!playing) return;
  playing = false;
  setText(buttons.play, "Continue");
  setStatus(status, "idle", "Paused");
}

const coordinate = (value) => (Math.abs(value) < 1e4 ? value.toFixed(3) : value.toExponential(1));

const draw = everyFrame(() => {
  if (!terrain) return;
  const scale = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  terrain.draw(context);
  drawRacers(context, terrain, racing, scale);
  setText(find("#steps"), steps.toLocaleString("en"));
  for (const { points, height, arrived, out, cells } of racing) {
    const [x, y] = points.at(-1);
    const result = arrived !== null ? `step ${arrived}` : out !== null ? `out at step ${out}` : "–";
    const texts = [coordinate(x), coordinate(y), Number.isFinite(height) ? short(height) : "–", result];
    texts.forEach((text, index) => setText(cells[index], text));
  }
  const rows = ranked().map(({ row }) => row);
  const table = find("#standing tbody");
  if (rows.some((row, place) => table.rows[place] !== row)) table.replaceChildren(...rows);
});

pictureButton(find("#picture"), () => ({
  name: `race-${fields.surface.value}-${steps}-steps`,
  title: `Race on ${offered.surfaces[fields.surface.value].label}, ${steps.toLocaleString("en")} steps`,
  canvases: [canvas],
  legend: ranked().map(({ number, label, color, arrived, out, height }) => {
    const result = arrived !== null ? `arrived at step ${arrived}` : out !== null ? `out at step ${out}` : height === null ? "" : `height ${short(height)}`;
    return { label: `${number} ${label}${result && `: ${result}`}`, color };
  }),
}));

/** Errors of Python end up in the status line. After one that lost the device, the next race has a new Python. */
const guarded = (action) => async (...values) => {
  try {
    await action(...values);
  } catch (error) {
    playing = false;
    generation++;
    if (/DeviceLostError|^stopped/.test(error.message)) {
      python.restart();
    }
    setText(buttons.play, "Start");
    buttons.play.disabled = buttons.step.disabled = true;
    buttons.reset.disabled = false;
    setStatus(status, "failed", error.message);
  }
};

async function main() {
  python = new PythonWorker({ programs: ["race"] });
  await loadPython(python, status);
  recorded.stop();
  offered = await call("race.described()");
  fields.surface.disabled = find("#picture").disabled = find("#setup").inert = false;
  fields.surface.addEventListener("change", guarded(() => chooseSurface()));
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
  await bindUrl(ADDRESS, { state, open: guarded(open) });
}

// The recorded race, and then Python.

const recordedEvents = {
  described(report) {
    offered = report;
    fillForm();
  },
  heights({ surface, grid }, buffer) {
    fields.surface.value = surface;
    fillSurface();
    terrain = new Terrain({ ...offered.surfaces[surface], heights: new Float32Array(buffer), grid });
  },
  race: ({ start }) => lineUp(start),
  track: ({ positions }) => follow(positions),
};

new ResizeObserver(draw).observe(canvas);
onTheme(() => {
  terrain?.refresh();
  draw();
});
const recorded = playRecording(await loadRecording("race"), find("#steps").parentElement, (kind, report, buffer) => recordedEvents[kind](report, buffer));
if (await explainWithoutWebgpu(find("#stage"))) setStatus(status, "idle", "Not running: no GPU available");
else guarded(main)();

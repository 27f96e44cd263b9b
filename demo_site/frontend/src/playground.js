// The playground: an editor, a Python to run its text, and what comes out.
import { getText } from "./lib/api.js";
import { lineChart } from "./lib/chart.js";
import { create, everyFrame, find, sentence, setStatus, setText, toast } from "./lib/dom.js";
import { createEditor } from "./lib/editor.js";
import { loadPython } from "./lib/loading.js";
import { nativeTab } from "./lib/native_tab.js";
import { loadRecording, playRecording } from "./lib/recording.js";
import { PythonWorker } from "./lib/runtime.js";
import { explainWithoutWebgpu, deviceName } from "./lib/webgpu.js";
import { bindUrl, fragment, oneOf, text } from "./lib/url.js";
import { Drafts } from "./pages/drafts.js";

const NAME = "main.py"; // of the program, in tracebacks; no file that Python could find has it
const PATIENCE = 1500; // milliseconds for a program to heed an interrupt
const MOST_OUTPUT = 200_000; // characters
const MOST_PROGRAM = 200_000; // bytes

const status = find("#status");
const output = find("#output");
const buttons = { run: find("#run"), stop: find("#stop") };
const drafts = new Drafts();
let editor;
let isSetting = false; // the editor's text, which the visitor has not changed
let recording = null; // of the examples; null once a program has run
let recorded = null; // the example's part of it, as it is shown
let worker = null;
let current = null; // the run that is on: {isStopping, isDraining}
let unchanged = ""; // the example as it was loaded
let asked = null; // the example on its way into the editor

// Output.

let unwritten = [];
const flush = everyFrame(() => {
  const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 24;
  output.append(...unwritten.map(({ text, kind }) => (kind ? create("span", { class: kind }, text) : text)));
  unwritten = [];
  for (let extra = output.textContent.length - MOST_OUTPUT; extra > 0 && output.firstChild; ) {
    extra -= output.firstChild.textContent.length;
    output.firstChild.remove();
  }
  if (atEnd) output.scrollTop = output.scrollHeight;
});

function write(text, kind = null) {
  unwritten.push({ text, kind });
  flush();
}

function clear() {
  unwritten = [];
  output.replaceChildren();
  lines.length = 0;
  drawPlot();
}

/** What the example that is chosen printed and plotted when it was recorded, until a program has run here. */
function playExample() {
  if (!recording) return;
  recorded?.stop();
  clear();
  recorded = playRecording(recording, find("#output-title"), (kind, { example, ...payload }) => {
    if (example !== find("#example").value) return;
    if (kind === "output") write(payload.text);
    else onEvent(kind, payload);
  });
}

// Plots: all lines of a run in one chart.

const lines = [];
let chart = null;
const drawPlot = everyFrame(() => {
  chart?.destroy();
  chart = null;
  find("#plot").hidden = lines.length === 0;
  if (lines.length === 0) return;
  const xs = [...new Set(lines.flatMap(({ x }) => x))].sort((one, other) => one - other);
  const heights = lines.map(({ x, y }) => {
    const at = new Map(x.map((value, index) => [value, y[index]]));
    return xs.map((value) => (at.has(value) ? at.get(value) : undefined));
  });
  chart = lineChart(find("#plot-area"), {
    x: "x",
    whole: false,
    series: lines.map(({ label }, number) => ({ label: label || `line ${number + 1}` })),
    height: 280,
  });
  chart.set([xs, ...heights]);
});

// Running.

/** Starts Python, again if it has ended, and says when programs can run. */
async function start() {
  buttons.run.disabled = true;
  if (worker?.isDead) worker.restart();
  worker ??= new PythonWorker({
    programs: ["playground"],
    onOutput: (text, stream) => write(text, stream === "stderr" ? "error" : null),
    onEvent,
  });
  const { python, device, jspi } = await loadPython(worker, status);
  setStatus(status, "idle", `Python ${python} on ${deviceName(device)}`);
  find("#no-jspi").hidden = jspi;
  buttons.run.disabled = false;
}

function onEvent(kind, payload) {
  if (kind !== "plot") return;
  lines.push(payload);
  drawPlot();
}

async function run() {
  if (current || buttons.run.disabled) return;
  const mine = { isStopping: false, isDraining: false };
  current = mine;
  recorded?.stop();
  recording = null;
  clear();
  editor.clearErrors();
  buttons.run.disabled = true;
  buttons.stop.disabled = false;
  setStatus(status, "running", "Running");
  const began = performance.now();
  try {
    await asked;
    const value = await worker.run(editor.text, { name: NAME });
    if (value !== undefined && value !== null) write(`${typeof value === "string" ? value : JSON.stringify(value)}\n`);
    setStatus(status, "done", `Finished in ${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (error) {
    await ended(mine, error);
  }
  current = null;
  buttons.stop.disabled = true;
  if (worker.isDead) await start();
  else buttons.run.disabled = false;
}

/** Says how a program ended. After it was stopped, the GPU has nothing left to do, or the device is gone with its Python. */
async function ended(mine, error) {
  if (mine.isStopping && (worker.isDead || error.message.startsWith("KeyboardInterrupt"))) {
    mine.isDraining = true;
    if (!worker.isDead && !(await isDrained())) worker.terminate();
    if (worker.isDead) write("The program did not stop, so Python was terminated and is restarting.\n", "error");
    return setStatus(status, "idle", "Stopped");
  }
  report(error);
  if (/DeviceLostError/.test(error.message)) worker.terminate(); // the next run has a new device
}

const late = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds, false));

/** Whether all that was submitted is done, waiting for it a little. */
function isDrained() {
  const done = worker.run("import optirs_web as ow\nawait ow.device().synchronize_async()", { name: "stop" });
  return Promise.race([done.then(() => true, () => false), late(PATIENCE)]);
}

function report({ message, traceback, line }) {
  write(`${ownFrames(traceback) || message}\n`, "error");
  if (line !== null) editor.showError(line, message);
  setStatus(status, "failed", line === null ? "Failed" : `Failed at line ${line}`);
}

/** A traceback without the frames of the library: what is wrong in the program stands in the program. */
function ownFrames(traceback) {
  let inside = false;
  return traceback.split("\n").filter((text) => {
    const frame = /^ {2}File "(.*?)"/.exec(text);
    if (frame) inside = frame[1] !== NAME;
    else if (!text.startsWith("    ")) inside = false;
    return !inside;
  }).join("\n");
}

/** Asks the program to stop, and ends its Python if it does not. `run` says when it has stopped. */
async function stop() {
  const mine = current;
  if (!mine || mine.isStopping) return;
  mine.isStopping = true;
  buttons.stop.disabled = true;
  setStatus(status, "running", "Stopping");
  worker.interrupt();
  await late(PATIENCE);
  if (current === mine && !mine.isDraining) worker.terminate();
}

// Programs.

/** Puts an example into the editor, as the visitor left it, unless another one is asked for meanwhile. */
function loadExample(name) {
  const mine = getText(`programs/examples/${name}.py`).then(
    (program) => {
      if (mine !== asked) return;
      unchanged = program;
      find("#example").value = name;
      find("#shared").hidden = true;
      show(drafts.get(name) ?? program);
      playExample();
    },
    (error) => toast(`The example could not be loaded. ${sentence(error.message)}`),
  );
  asked = mine;
  return mine;
}

/** Puts a text into the editor, which is no edit of the visitor's. */
function show(text) {
  isSetting = true;
  editor.text = text;
  isSetting = false;
  showReset();
}

/** Keeps what is in the editor, if it differs from the example. */
function keep(text) {
  const name = find("#example").value;
  if (text === unchanged) drafts.remove(name);
  else drafts.set(name, text);
  showReset();
}

function showReset() {
  find("#restore").hidden = !find("#example").value || editor.text === unchanged;
}

const examples = [...find("#example").options].map(({ value }) => value).filter(Boolean);

/** What the address has: #spirals is an example, #code=… a program, which somebody else may have written. */
const ADDRESS = { example: fragment(oneOf(examples, { push: true })), code: text(MOST_PROGRAM) };

function state() {
  if (editor.text !== unchanged) return { code: editor.text };
  const example = find("#example").value;
  return { example: example === examples[0] ? undefined : example };
}

/** Shows what the address asks for: a program, which is not run, or an example; without either the first one. */
async function open({ code, example = examples[0] }) {
  const draft = code === undefined ? example : drafts.nameOf(code);
  if (draft) return loadExample(draft);
  asked = null;
  unchanged = "";
  find("#example").value = "";
  find("#shared").hidden = draft === ""; // the visitor's own, in the address since it was written here
  show(code);
}

async function main() {
  nativeTab(find(".playground .code"), () => editor.text, NAME);
  editor = createEditor(find("#editor"), {
    label: "Python program",
    onRun: run,
    onChange: (text) => {
      editor.clearErrors();
      if (!isSetting) keep(text);
    },
  });
  editor.view.contentDOM.tabIndex = 0; // what can be edited can be focused anyway; axe-core wants to see it
  find("#example").addEventListener("change", async ({ target }) => {
    await loadExample(target.value);
    editor.focus();
  });
  find("#restore").addEventListener("click", () => {
    drafts.remove(find("#example").value);
    show(unchanged);
    editor.focus();
  });
  buttons.run.addEventListener("click", run);
  buttons.stop.addEventListener("click", stop);
  find("#clear").addEventListener("click", clear);
  addEventListener("keydown", (event) => {
    if (event.key === "." && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      stop();
    }
  });
  recording = await loadRecording("playground");
  await bindUrl(ADDRESS, { state, open });
  if (await explainWithoutWebgpu(find("#stage"))) setStatus(status, "idle", "Programs cannot run: no GPU available");
  else await start();
}

await main();

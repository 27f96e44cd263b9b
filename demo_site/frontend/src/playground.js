// The playground: an editor, a Python to run its text, and what comes out.
import { address } from "./lib/api.js";
import { lineChart } from "./lib/chart.js";
import { create, everyFrame, find, setStatus, setText, toast } from "./lib/dom.js";
import { createEditor } from "./lib/editor.js";
import { PythonWorker } from "./lib/runtime.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";
import { bindUrl, fragment, oneOf, text } from "./lib/url.js";

const NAME = "main.py"; // of the program, in tracebacks; no file that Python could find has it
const PATIENCE = 1500; // milliseconds for a program to heed an interrupt
const MOST_OUTPUT = 200_000; // characters
const MOST_PROGRAM = 200_000; // bytes

const status = find("#status");
const output = find("#output");
const buttons = { run: find("#run"), stop: find("#stop") };
let editor;
let worker;
let running = false;
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

function startWorker() {
  worker = new PythonWorker({
    programs: ["playground"],
    more: true,
    onOutput: (text, stream) => write(text, stream === "stderr" ? "error" : null),
    onEvent: (kind, payload) => {
      if (kind === "loading" && !running) setStatus(status, "busy", `Loading ${payload.step}…`);
      if (kind === "plot") {
        lines.push(payload);
        drawPlot();
      }
    },
  });
  const mine = worker;
  worker.ready.then(
    ({ python, device, jspi }) => {
      if (mine !== worker) return;
      setStatus(status, "idle", `Python ${python} on ${device.description}`);
      find("#no-jspi").hidden = jspi;
      buttons.run.disabled = false;
    },
    (error) => {
      if (mine === worker) setStatus(status, "failed", error.message);
    },
  );
}

async function run() {
  if (running || buttons.run.disabled) return;
  running = true;
  clear();
  editor.clearErrors();
  buttons.run.disabled = true;
  buttons.stop.disabled = false;
  setStatus(status, "running", "Running");
  const began = performance.now();
  const mine = worker;
  try {
    await asked;
    const value = await worker.run(editor.text, { name: NAME });
    if (value !== undefined && value !== null) write(`${typeof value === "string" ? value : JSON.stringify(value)}\n`);
    setStatus(status, "done", `Finished in ${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (error) {
    if (mine === worker) report(error);
  } finally {
    running = false;
    buttons.stop.disabled = true;
    if (mine === worker) buttons.run.disabled = false;
  }
}

function report({ message, traceback, line }) {
  if (message.startsWith("KeyboardInterrupt")) return setStatus(status, "idle", "Stopped");
  write(`${ownFrames(traceback) || message}\n`, "error");
  if (line !== null) editor.showError(line, message);
  setStatus(status, "failed", line === null ? "Failed" : `Failed in line ${line}`);
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

/** Asks the program to stop, and ends its Python if it does not. */
async function stop() {
  if (!running) return;
  const mine = worker;
  worker.interrupt();
  await new Promise((resolve) => setTimeout(resolve, PATIENCE));
  if (!running || mine !== worker) return;
  startWorker();
  mine.terminate();
  write("The program was ended, and Python started anew.\n", "error");
}

// Programs.

/** Puts an example into the editor, unless another one is asked for meanwhile. */
function loadExample(name) {
  const mine = fetchExample(name).then(
    (program) => {
      if (mine !== asked) return;
      unchanged = program;
      editor.text = unchanged;
      find("#example").value = name;
      find("#shared").hidden = true;
    },
    (error) => toast(error.message),
  );
  asked = mine;
  return mine;
}

async function fetchExample(name) {
  const response = await fetch(address(`programs/examples/${name}.py`));
  if (!response.ok) throw new Error(`The example could not be loaded: ${response.status}`);
  return response.text();
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
  if (code === undefined) return loadExample(example);
  asked = null;
  unchanged = "";
  editor.text = code;
  find("#example").value = "";
  find("#shared").hidden = false;
}

async function main() {
  startWorker();
  editor = createEditor(find("#editor"), {
    label: "Python program",
    onRun: run,
    onChange: (text) => {
      editor.clearErrors();
      if (text !== unchanged) find("#example").value = "";
    },
  });
  editor.view.contentDOM.tabIndex = 0; // what can be edited can be focused anyway; axe-core wants to see it
  find("#example").addEventListener("change", async ({ target }) => {
    await loadExample(target.value);
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
  await bindUrl(ADDRESS, { state, open });
}

if (!(await stopWithoutWebgpu(find("#stage")))) await main();

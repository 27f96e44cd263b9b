// The first page: the program in the editor is the one that is running.
import { getText } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { stopIfNotFinite } from "./lib/diverged.js";
import { copyButton, create, everyFrame, find, onTheme, setStatus, setText } from "./lib/dom.js";
import { createEditor } from "./lib/editor.js";
import { drawClasses } from "./lib/field.js";
import { loadPython } from "./lib/loading.js";
import { nativeTab } from "./lib/native_tab.js";
import { pictureButton } from "./lib/picture.js";
import { loadRecording, playRecording } from "./lib/recording.js";
import { PythonWorker } from "./lib/runtime.js";
import { bindUrl, text } from "./lib/url.js";
import { explainWithoutWebgpu, runningOn } from "./lib/webgpu.js";

const REACH = 1.2; // of programs/home.py
const PATIENCE = 5000; // milliseconds that a program has to stop by itself

const status = find("#status");
const toggle = find("#toggle");
const runButton = find("#run");
const output = find("#console");
const map = find("#map");

copyButton(find("#copy-install"), () => find("#install").textContent);
const original = (await getText("programs/first_page/ten_lines.py").catch((error) => {
  setStatus(status, "failed", error.message);
  throw error;
})).trimEnd();
nativeTab(find(".code-and-chart .code"), () => editor.text);
const editor = createEditor(find("#editor"), { text: original, label: "Running program", onRun: start, onChange });

function onChange(text) {
  find("#restore").hidden = text === original;
}

find("#restore").addEventListener("click", () => {
  editor.text = original;
  start();
});
runButton.addEventListener("click", start);
toggle.addEventListener("click", () => (running ? stop() : start()));

pictureButton(find("#picture"), () => ({
  name: "home",
  title: "A network’s decision map",
  canvases: [map],
  figures: [["Loss", find("#loss").textContent], ["Accuracy", find("#accuracy").textContent], ["On", find("#device").textContent]],
}));

// What Python reports.

let python = null; // the worker
let running = null; // the promise of the current run
let isLoading = false; // Python is, for that run
let isStopping = false;
let starts = 0;
const chart = lineChart(find("#chart"), {
  series: [
    { label: "loss", scale: "y", color: "series-1" },
    { label: "accuracy", scale: "%", color: "series-2" },
  ],
  scales: { y: { log: true, label: "cross-entropy" }, "%": { range: [0, 102], side: "right", label: "accuracy, %" } },
  height: 280,
});
let scene = { points: null, labels: [], reach: REACH };
let field = null;
const draw = everyFrame(() => drawClasses(map, field, scene));
onTheme(draw);

function onEvent(kind, report, buffer) {
  if (kind === "points") {
    scene = { points: new Float32Array(buffer), labels: report.labels, reach: REACH };
    field = null;
    draw();
  } else if (kind === "map") {
    const [places, classes] = report.shape;
    field = { logits: new Float32Array(buffer), side: Math.sqrt(places), classes };
    draw();
    show(report);
  }
}

function show(report) {
  setText(find("#loss"), report.loss === null ? "NaN" : short(report.loss));
  setText(find("#accuracy"), `${(100 * report.accuracy).toFixed(1)}%`);
  setText(find("#rate"), short(report.steps_per_second));
  setText(find("#submits"), short(report.submits));
  setText(find("#bytes"), short(report.bytes_down));
  chart.push(report.step, { loss: report.loss || null, accuracy: 100 * report.accuracy });
  if (!running) return; // this is the recorded run
  const stopped = { stop: () => python.send("stop"), when: `at step ${report.step}`, advice: "Change the program (try a smaller lr) and run it again." };
  if (!stopIfNotFinite(report.loss, status, stopped) && report.step >= report.steps) {
    const seconds = report.seconds.toFixed(1);
    setStatus(status, "done", `${report.steps} steps in ${seconds} s, accuracy ${(100 * report.accuracy).toFixed(1)}%`);
  }
}

/** Takes away what the run before has shown; its points stay until there are others. */
function clear() {
  chart.clear();
  field = null;
  draw();
  for (const name of ["loss", "accuracy", "rate", "submits", "bytes"]) setText(find(`#${name}`), "–");
}

function print(text, kind = null) {
  output.hidden = false;
  output.append(kind ? create("span", { class: kind }, text) : text);
  output.scrollTop = output.scrollHeight;
}

// Running and stopping.

/** Runs the program in the editor; one that is running is stopped first. Of several requests the last one counts. */
async function start() {
  if (!python || isLoading) return; // what is being loaded will run the text as it is then
  const mine = ++starts;
  find("#shared").hidden = true;
  if (running) await stop();
  if (mine !== starts) return;
  editor.clearErrors();
  output.replaceChildren();
  output.hidden = true;
  const run = execute();
  running = run;
  await run;
  running = null;
  isStopping = false;
  setText(toggle, "Run again");
}

async function execute() {
  toggle.disabled = runButton.disabled = isLoading = true;
  try {
    if (python.isDead) python.restart();
    const { device } = await loadPython(python, status);
    isLoading = false;
    recorded.stop();
    clear();
    setText(find("#device"), device.description);
    setStatus(status, "running", runningOn(device));
    setText(toggle, "Stop");
    setText(runButton, "Run again");
    toggle.disabled = runButton.disabled = false;
    await python.run(editor.text, { name: "program.py" });
    if (status.dataset.state === "running") setStatus(status, isStopping ? "idle" : "done", isStopping ? "Stopped" : "Finished");
  } catch (error) {
    if (/DeviceLostError/.test(error.message)) python.terminate(); // the next run has a new Python
    const wasStopped = isStopping && (python.isDead || error.message.startsWith("KeyboardInterrupt"));
    setStatus(status, wasStopped ? "idle" : "failed", wasStopped ? "Stopped" : error.message);
    print(error.traceback || `${error.message}\n`, "error");
    if (error.line) editor.showError(error.line, error.message);
  } finally {
    toggle.disabled = runButton.disabled = isLoading = false;
  }
}

/** Asks the program to stop; one that does not listen is interrupted, and then ended with its Python. */
async function stop() {
  const run = running;
  if (!isStopping) {
    isStopping = true;
    setStatus(status, "running", "Stopping");
    python.send("stop");
    const late = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds, true));
    if ((await Promise.race([run, late(PATIENCE)])) && (!python.interrupt() || (await Promise.race([run, late(PATIENCE)])))) {
      python.terminate();
    }
  }
  await run;
}

// The recorded run, and then Python.

const recorded = playRecording(await loadRecording("home"), find(".chart figcaption"), onEvent);
if (await explainWithoutWebgpu(find("#live"))) {
  setText(find("#code-title"), "what would run");
  setStatus(status, "idle", "Not training: no GPU available");
} else {
  python = new PythonWorker({ programs: ["home"], onEvent, onOutput: (text) => print(text) });
}

/** Runs the page's own program. One from the address waits until it is asked for: somebody else may have written it. */
async function open({ code }) {
  editor.text = code ?? original;
  find("#shared").hidden = code === undefined;
  if (code === undefined) start();
  else if (python) wait();
}

async function wait() {
  if (running) await stop();
  if (python.isDead) python.restart();
  await loadPython(python, status);
  if (running) return;
  setStatus(status, "idle", "Press Run to start the program");
  for (const button of [toggle, runButton]) {
    setText(button, "Run");
    button.disabled = false;
  }
}

await bindUrl({ code: text(200_000) }, { state: () => ({ code: editor.text === original ? undefined : editor.text }), open });

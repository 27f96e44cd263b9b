// The first page: the program in the editor is the one that is running.
import { address } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { copyButton, create, everyFrame, find, onTheme, setStatus, setText } from "./lib/dom.js";
import { createEditor } from "./lib/editor.js";
import { drawClasses } from "./lib/field.js";
import { pictureButton } from "./lib/picture.js";
import { PythonWorker } from "./lib/runtime.js";
import { bindUrl, text } from "./lib/url.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";

const REACH = 1.2; // of programs/home.py
const PATIENCE = 5000; // milliseconds that a program has to stop by itself

const status = find("#status");
const toggle = find("#toggle");
const runButton = find("#run");
const output = find("#console");
const map = find("#map");

copyButton(find("#copy-install"), () => find("#install").textContent);
const response = await fetch(address("programs/first_page/ten_lines.py"));
const original = (await response.text()).trimEnd();
const editor = createEditor(find("#editor"), { text: original, label: "The program that is running", onRun: start, onChange });

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
let chart = null;
let scene = { points: null, labels: [], reach: REACH };
let field = null;
const draw = everyFrame(() => drawClasses(map, field, scene));
onTheme(draw);

function connect() {
  return new PythonWorker({ programs: ["home"], onEvent, onOutput: (text) => print(text) });
}

function onEvent(kind, report, buffer) {
  if (kind === "loading") {
    setStatus(status, "busy", `Loading ${report.step}`);
  } else if (kind === "points") {
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
  setText(find("#loss"), report.loss === null ? "not a number" : short(report.loss));
  setText(find("#accuracy"), `${(100 * report.accuracy).toFixed(1)}%`);
  setText(find("#rate"), short(report.steps_per_second));
  setText(find("#submits"), short(report.submits));
  setText(find("#bytes"), short(report.bytes_down));
  chart?.push(report.step, { loss: report.loss || null, accuracy: 100 * report.accuracy });
  if (report.step >= report.steps) {
    const seconds = report.seconds.toFixed(1);
    setStatus(status, "done", `${report.steps} steps in ${seconds} s, accuracy ${(100 * report.accuracy).toFixed(1)}%`);
  }
}

function print(text, kind = null) {
  output.hidden = false;
  output.append(kind ? create("span", { class: kind }, text) : text);
  output.scrollTop = output.scrollHeight;
}

// Running and stopping.

async function start() {
  if (!python) return;
  find("#shared").hidden = true;
  if (running) await stop();
  editor.clearErrors();
  output.replaceChildren();
  output.hidden = true;
  chart ??= lineChart(find("#chart"), {
    series: [
      { label: "loss", scale: "y", color: "series-1" },
      { label: "accuracy", scale: "%", color: "series-2" },
    ],
    scales: { y: { log: true, label: "cross-entropy" }, "%": { range: [0, 102], side: "right", label: "% right" } },
    height: 280,
  });
  chart.clear();
  const run = execute();
  running = run;
  await run;
  if (running === run) running = null;
  setText(toggle, running ? "Stop" : "Run again");
}

async function execute() {
  try {
    const { device } = await python.ready;
    setText(find("#device"), device.description);
    setStatus(status, "running", "Training on your GPU");
    setText(toggle, "Stop");
    setText(runButton, "Run again");
    toggle.disabled = runButton.disabled = false;
    await python.run(editor.text, { name: "program.py" });
    if (status.dataset.state === "running") setStatus(status, "idle", "Stopped");
  } catch (error) {
    setStatus(status, "failed", error.message);
    print(error.traceback || error.message, "error");
    if (error.line) editor.showError(error.line, error.message);
  }
}

/** Asks the program to stop; one that does not listen is interrupted, and then replaced. */
async function stop() {
  const run = running;
  setStatus(status, "running", "Stopping");
  python.send("stop");
  const late = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds, true));
  if ((await Promise.race([run, late(PATIENCE)])) && python.interrupt() && (await Promise.race([run, late(PATIENCE)]))) {
    python.terminate();
    python = connect();
  }
  await run;
}

if (await stopWithoutWebgpu(find("#stage"))) {
  find("#live .stats").hidden = true;
  find(".code-and-chart").classList.add("code-alone");
  setText(find("#code-title"), "what would be running");
} else {
  python = connect();
}

/** Runs the page's own program. One from the address waits until it is asked for: somebody else may have written it. */
async function open({ code }) {
  editor.text = code ?? original;
  find("#shared").hidden = code === undefined;
  if (code === undefined) start();
  else if (python) await wait();
}

async function wait() {
  if (running) await stop();
  python.ready.then(() => {
    if (running) return;
    setStatus(status, "idle", "Press Run to run the program");
    for (const button of [toggle, runButton]) {
      setText(button, "Run");
      button.disabled = false;
    }
  }, (error) => setStatus(status, "failed", error.message));
}

await bindUrl({ code: text(200_000) }, { state: () => ({ code: editor.text === original ? undefined : editor.text }), open });

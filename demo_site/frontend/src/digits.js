// The digits: the knobs, the curves, what is read wrong, and the drawing area.
import { getBytes } from "./lib/api.js";
import { barChart, lineChart, short } from "./lib/chart.js";
import { create, everyFrame, find, onTheme, optionGroups, setStatus, setText } from "./lib/dom.js";
import { drawInk, Pad } from "./lib/pad.js";
import { rateSlider } from "./lib/rate.js";
import { PythonWorker } from "./lib/runtime.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";

const status = find("#status");
const toggle = find("#toggle");
const optimizer = find("#optimizer");
const schedule = find("#schedule");
const missing = await stopWithoutWebgpu(find("#stage"));
if (!missing) await begin();

async function begin() {
  const chart = lineChart(find("#chart"), {
    series: [
      { label: "training loss", scale: "y", color: "series-8", width: 1 },
      { label: "test loss", scale: "y", color: "series-1" },
      { label: "test accuracy", scale: "%", color: "series-2" },
    ],
    scales: { y: { log: true, label: "cross-entropy" }, "%": { range: (_, low) => [Math.min(80, 10 * Math.floor((low ?? 80) / 10)), 100.5], side: "right", label: "% right" } },
    height: 300,
  });
  const bars = barChart(find("#bars"), { label: "Probability of each digit", max: 1, format: (value) => `${(100 * value).toFixed(1)}%` });
  const seen = find("#seen").getContext("2d");
  let seenInk = null;
  let state = "busy"; // busy, running, paused, done, diverged
  let wrong = [];
  let epochs = 0;

  const data = getBytes("data/digits.bin");
  const python = new PythonWorker({ programs: ["digit_images", "recipes", "digits"], onEvent: (kind, report) => handlers[kind]?.(report) });
  const sendDrawing = everyFrame((strokes) => python.send("draw", strokes));
  const pad = new Pad(find("#pad"), drawn);
  showBars(null);
  onTheme(everyFrame(() => {
    showSeen();
    showWrong();
    for (const canvas of document.querySelectorAll("#samples canvas")) redraw(canvas);
  }));

  const handlers = {
    loading: ({ step }) => setStatus(status, "busy", `Loading ${step}`),
    choices(report) {
      epochs = report.epochs;
      optimizer.replaceChildren(...optionGroups(report.optimizers));
      schedule.replaceChildren(...report.schedules.map((name) => new Option(name)));
      optimizer.value = report.optimizer;
      schedule.value = report.schedule;
      showRate(report.lr);
      showSamples(report.samples);
      find("#settings").disabled = toggle.disabled = find("#reset").disabled = false;
      setState("running");
    },
    chosen: ({ lr }) => showRate(lr),
    steps({ step, losses, lr, steps_per_second: speed }) {
      losses.forEach((loss, number) => chart.push(step - losses.length + number + 1, { "training loss": loss }));
      setText(find("#loss"), short(losses.reduce((sum, loss) => sum + loss, 0) / losses.length));
      setText(find("#speed"), short(speed));
      setText(find("#rate-now"), short(lr));
    },
    epoch(report) {
      epochs = report.epochs;
      chart.push(report.step, { "test loss": report.test_loss, "test accuracy": 100 * report.accuracy });
      setText(find("#accuracy"), percent(report.accuracy));
      setText(find("#epoch"), `${report.epoch}/${epochs}`);
      find("#progress").max = epochs;
      find("#progress").value = report.epoch;
      wrong = report.wrong;
      setText(find("#wrong-count"), `${report.wrong_count} of ${report.test_images}`);
      setText(find("#wrong-note"), wrong.length
        ? "Test images that the network misreads, the surest mistakes first."
        : "Not one of the test images: every one is read right.");
      showWrong();
      if (report.epoch === epochs) setState("done", report);
    },
    diverged({ epoch, lr, optimizer: name }) {
      setState("diverged");
      setStatus(status, "failed", `The loss is no number any more in epoch ${epoch}: ${name} with ${short(lr)} steps too far. Choose a smaller learning rate and start over.`);
    },
    recognised({ ink, probabilities }) {
      seenInk = ink;
      showSeen();
      showBars(probabilities);
    },
  };

  // The state, and what the buttons do in it.

  function setState(next, report) {
    state = next;
    setText(toggle, next === "paused" ? "Go on" : "Pause");
    toggle.disabled = next !== "running" && next !== "paused";
    find("#more").hidden = find("#more").disabled = next !== "done";
    if (next === "running") setStatus(status, "running", "Training on your GPU");
    if (next === "paused") setStatus(status, "idle", "Paused");
    if (next === "done") setStatus(status, "done", `${report.epoch} epochs done: ${percent(report.accuracy)} of ${report.test_images} unseen images read right`);
  }

  toggle.addEventListener("click", () => {
    python.send(state === "paused" ? "resume" : "pause");
    setState(state === "paused" ? "running" : "paused");
  });
  find("#more").addEventListener("click", () => {
    python.send("more", 10);
    setState("running");
  });
  find("#reset").addEventListener("click", () => {
    python.send("reset");
    chart.clear();
    find("#progress").value = 0;
    for (const name of ["accuracy", "epoch", "loss", "speed", "rate-now"]) setText(find(`#${name}`), "–");
    setState("running");
  });
  optimizer.addEventListener("change", () => python.send("optimizer", optimizer.value));
  schedule.addEventListener("change", () => python.send("schedule", schedule.value));
  const showRate = rateSlider((value) => python.send("lr", value));

  // Recognising.

  function drawn(strokes) {
    sendDrawing(strokes);
    find("#undo").disabled = find("#clear").disabled = pad.isEmpty;
  }
  find("#undo").addEventListener("click", () => pad.undo());
  find("#clear").addEventListener("click", () => pad.clear());

  function showSamples(samples) {
    find("#samples").replaceChildren(...samples.map((ink, digit) => {
      const canvas = thumbnail(ink);
      const choose = () => {
        pad.show(ink);
        find("#clear").disabled = false;
        python.send("sample", ink);
      };
      return create("button", { class: "sample", type: "button", onclick: choose, "aria-label": `a ${digit}` }, canvas);
    }));
  }

  function showSeen() {
    seen.clearRect(0, 0, 80, 80);
    if (seenInk) drawInk(seen, seenInk, 80);
  }

  function showBars(probabilities) {
    const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
    bars.set(Array.from({ length: 10 }, (_, digit) => ({ name: String(digit), value: probabilities?.[digit] ?? null, strong: digit === best })));
    setText(find("#verdict"), best < 0 ? "?" : best);
    const sure = best < 0 ? 0 : probabilities[best];
    setText(find("#verdict-text"), best < 0 ? "Write a digit, as large as you like." : `${sure > 0.9 ? "This is a" : sure > 0.6 ? "Probably a" : "Perhaps a"} ${best}`);
  }

  function showWrong() {
    find("#wrong").replaceChildren(...wrong.map(({ ink, label, predicted, sure }) => create(
      "li",
      {},
      thumbnail(ink),
      create("span", {}, create("b", {}, String(label)), ` read as ${predicted}`, create("small", {}, percent(sure))),
    )));
  }

  // Python.

  try {
    const { device } = await python.ready;
    setText(find("#device"), `on ${device.description}`);
    setStatus(status, "busy", "Preparing the images");
    await python.run("import digits\nawait digits.run_in_page(data)", { name: "digits", globals: { data: await data } });
  } catch (error) {
    setStatus(status, "failed", error.message);
    console.error(error.traceback);
  }
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

function thumbnail(ink) {
  const canvas = create("canvas", { width: 64, height: 64, "aria-hidden": "true" });
  canvas.ink = ink;
  redraw(canvas);
  return canvas;
}

function redraw(canvas) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  drawInk(context, canvas.ink, canvas.width);
}

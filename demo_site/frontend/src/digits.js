// The digits page: settings, curves, misread images, and the drawing area.
import { getBytes } from "./lib/api.js";
import { barChart, lineChart, short } from "./lib/chart.js";
import { divergedSentence } from "./lib/diverged.js";
import { create, everyFrame, find, onTheme, optionGroups, sentence, setStatus, setText } from "./lib/dom.js";
import { drawInk, Pad } from "./lib/pad.js";
import { pictureButton } from "./lib/picture.js";
import { rateSlider } from "./lib/rate.js";
import { loadRecording, playRecording } from "./lib/recording.js";
import { PythonWorker } from "./lib/runtime.js";
import { serve } from "./lib/serve.js";
import { bindUrl, number, oneOf, text, updateUrl, whole } from "./lib/url.js";
import { explainWithoutWebgpu, runningOn } from "./lib/webgpu.js";

const MOST_POINTS = 4000; // of a drawing in an address

/** A drawing in an address: two hexadecimal digits for each coordinate, and a period between strokes. */
const DRAWING = text(4 * MOST_POINTS + 1000, {
  parse(packed) {
    const strokes = packed.split(".");
    if (!strokes.every((one) => /^([0-9a-f]{4})+$/.test(one))) throw new RangeError("this is not a drawing");
    return strokes.map((one) => one.match(/.{4}/g).map((point) => [point.slice(0, 2), point.slice(2)].map((part) => parseInt(part, 16) / 255)));
  },
  format: (strokes) => strokes.map((one) => one.map((point) => point.map((value) =>
    Math.round(255 * Math.min(1, Math.max(0, value))).toString(16).padStart(2, "0")).join("")).join("")).join("."),
});

const status = find("#status");
const toggle = find("#toggle");
const optimizer = find("#optimizer");
const schedule = find("#schedule");
await begin();

async function begin() {
  const chart = lineChart(find("#chart"), {
    series: [
      { label: "training loss", scale: "y", color: "series-8", width: 1 },
      { label: "test loss", scale: "y", color: "series-1" },
      { label: "test accuracy", scale: "%", color: "series-2" },
    ],
    scales: { y: { log: true, label: "cross-entropy" }, "%": { range: (_, low) => [Math.min(80, 10 * Math.floor((low ?? 80) / 10)), 100.5], side: "right", label: "accuracy, %" } },
    height: 300,
  });
  const bars = barChart(find("#bars"), { label: "Probability of each digit", max: 1, format: (value) => `${(100 * value).toFixed(1)}%` });
  const seen = find("#seen").getContext("2d");
  let seenInk = null;
  let state = "busy"; // busy, running, paused, done, diverged, failed
  let device = null; // on which it trains, when it does
  let wrong = [];
  const beforeFirstEpoch = find("#wrong-note").textContent;
  let epochs = 0;
  let usual = null; // what is trained, unless the visitor or the address says otherwise
  let live = null; // the latest choices of the program
  let asked = null; // what the address says, until the program has begun with it

  let program = null; // what trains, once there is a device
  const sendDrawing = everyFrame((strokes) => program?.send("draw", strokes));
  const pad = new Pad(find("#pad"), drawn);
  showBars(null);
  onTheme(everyFrame(() => {
    showSeen();
    showWrong();
    for (const canvas of document.querySelectorAll("#samples canvas")) redraw(canvas);
  }));

  const handlers = {
    choices(report) {
      epochs = report.epochs;
      optimizer.replaceChildren(...optionGroups(report.optimizers));
      schedule.replaceChildren(...report.schedules.map((name) => new Option(name)));
      optimizer.value = report.optimizer;
      schedule.value = report.schedule;
      showRate(report.lr);
      showSamples(report.samples);
    },
    chosen({ lr }) {
      if (live) live.lr = lr;
      showRate(lr);
      updateUrl();
    },
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
        ? "Test images that the network misreads, most confident mistakes first."
        : "None: every test image is classified correctly.");
      showWrong();
      if (device && report.epoch === epochs) setState("done", report);
    },
    diverged({ epoch, lr, optimizer: name }) {
      setState("diverged");
      setStatus(status, "failed", divergedSentence({ when: `in epoch ${epoch}`, optimizer: name, lr }));
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
    setText(toggle, { paused: "Continue", failed: "Restart" }[next] ?? "Pause");
    toggle.disabled = !["running", "paused", "failed"].includes(next);
    find("#more").hidden = find("#more").disabled = next !== "done";
    if (next === "running") setStatus(status, "running", runningOn(device));
    if (next === "paused") setStatus(status, "idle", "Paused");
    if (next === "done") setStatus(status, "done", `${report.epoch} epochs: ${percent(report.accuracy)} of ${report.test_images} unseen images classified correctly`);
  }

  toggle.addEventListener("click", () => {
    program.send(state === "running" ? "pause" : "resume");
    if (state !== "failed") setState(state === "running" ? "paused" : "running"); // else the program says so when it runs
  });
  find("#more").addEventListener("click", () => {
    program.send("more", 10);
    setState("running");
  });
  find("#reset").addEventListener("click", () => {
    program.send("reset");
    clear();
    if (state !== "failed") setState("running");
  });
  optimizer.addEventListener("change", () => program.send("optimizer", optimizer.value));
  schedule.addEventListener("change", () => program.send("schedule", schedule.value));
  const showRate = rateSlider((value) => {
    live.lr = value;
    program.send("lr", value);
  });

  function clear() {
    chart.clear();
    find("#progress").value = 0;
    for (const name of ["accuracy", "epoch", "loss", "speed", "rate-now"]) setText(find(`#${name}`), "–");
    wrong = [];
    setText(find("#wrong-count"), "");
    setText(find("#wrong-note"), beforeFirstEpoch);
    showWrong();
  }

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
        program.send("sample", ink);
      };
      return create("button", { class: "sample", type: "button", disabled: !device, onclick: choose, "aria-label": `a ${digit}` }, canvas);
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

  pictureButton(find("#picture"), () => ({
    name: `digits-${find("#epoch").textContent.replace("/", "-of-")}`,
    title: "Training on handwritten digits",
    canvases: [find("#chart canvas"), ...(pad.isEmpty ? [] : [pad.canvas])],
    legend: [{ label: "training loss", color: "series-8" }, { label: "test loss", color: "series-1" }, { label: "test accuracy", color: "series-2" }],
    figures: [
      ["Epoch", find("#epoch").textContent], ["Test accuracy", find("#accuracy").textContent],
      ["Optimizer", optimizer.value], ...(pad.isEmpty ? [] : [["Drawn:", find("#verdict-text").textContent]]),
    ],
  }));

  // The recorded run, and then Python.

  const recorded = playRecording(await loadRecording("digits"), find(".chart figcaption"), (kind, report) => handlers[kind](report));
  setStatus(status, "busy", "Looking for a GPU");
  if (await explainWithoutWebgpu(find("#stage"))) {
    setStatus(status, "idle", "Not training: no GPU available");
    setText(find("#verdict-text"), "Recognising digits needs a GPU.");
    return;
  }
  const data = await getBytes("data/digits.bin").catch((error) => {
    setStatus(status, "failed", `The images could not be loaded. ${sentence(error.message)} Reload the page to try again.`);
    throw error;
  });
  const python = new PythonWorker({
    programs: ["digit_images", "recipes", "digits"],
    onEvent(kind, report) {
      if (kind === "choices") startLive(report);
      handlers[kind]?.(report);
      if (kind === "choices") updateUrl();
    },
  });
  program = serve(python, status, {
    source: "import digits\nawait digits.run_in_page(data)",
    name: "digits",
    globals: { data },
    onReady(info) {
      device = info.device;
      setText(find("#device"), `on ${device.description}`);
      setStatus(status, "busy", "Preparing the images");
    },
    onError: () => setState("failed"),
  });

  /** The program trains: what was recorded makes room. */
  function startLive(choices) {
    live = choices;
    asked = null;
    recorded.stop();
    clear();
    find("#settings").disabled = find("#reset").disabled = false;
    setState("running");
    if (!pad.isEmpty) sendDrawing(pad.strokes);
    if (usual === null) bind();
  }

  // The address.

  function bind() {
    const { optimizer: first, schedule: firstSchedule, seed } = live;
    usual = { optimizer: first, schedule: firstSchedule, seed };
    const table = {
      optimizer: oneOf(live.optimizers.map(({ name }) => name)),
      lr: number(0, 10),
      schedule: oneOf(live.schedules),
      seed: whole(0, 2 ** 32 - 1),
      drawing: DRAWING,
    };
    bindUrl(table, { state: chosen, open });
  }

  function chosen() {
    if (asked) return asked;
    const own = live.optimizers.find(({ name }) => name === optimizer.value).lr;
    const now = { optimizer: optimizer.value, schedule: schedule.value, seed: live.seed };
    return {
      ...Object.fromEntries(Object.entries(now).map(([key, value]) => [key, value === usual[key] ? undefined : value])),
      lr: live.lr === own ? undefined : live.lr,
      drawing: pad.isEmpty ? undefined : pad.strokes,
    };
  }

  /** A run from the start, with what the address says. */
  function open({ drawing, ...choices }) {
    if (drawing) pad.draft(drawing);
    const isUsual = Object.keys(choices).length === 0 && Object.values({ ...chosen(), drawing: undefined }).every((value) => value === undefined);
    if (isUsual) return;
    asked = { drawing, ...choices };
    program.send("begin", { ...usual, ...choices });
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

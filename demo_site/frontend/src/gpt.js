// The writer: a GPT trains, and what it writes is shown as it learns. All text of models and visitors is textContent.
import { address, getBytes } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { create, find, optionGroups, setStatus, setText } from "./lib/dom.js";
import { highlight } from "./lib/editor.js";
import { rateSlider } from "./lib/rate.js";
import { PythonWorker } from "./lib/runtime.js";
import "./lib/url.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";

const LARGEST_FILE = 4_000_000; // bytes: a million characters of any kind
const EARLIER = 60; // samples that are kept
const FIGURES = ["step", "loss", "held-out", "speed", "characters"];

const status = find("#status");
const toggle = find("#toggle");
const [size, optimizer, temperature] = ["size", "optimizer", "temperature"].map((id) => find(`#${id}`));
const errors = { prompt: find("#prompt-error"), text: find("#text-error") };
if (!(await stopWithoutWebgpu(find("#stage")))) await begin();

async function begin() {
  const chart = lineChart(find("#chart"), {
    series: [
      { label: "training loss", scale: "y", color: "series-8", width: 1 },
      { label: "held-out loss", scale: "y", color: "series-1", points: true },
    ],
    scales: { y: { label: "cross-entropy a character" } },
    height: 320,
  });
  const book = getBytes("data/book.txt");
  const python = new PythonWorker({
    programs: ["gpt", "recipes", "pen", "writer"],
    more: true,
    onEvent: (kind, report) => handlers[kind]?.(report),
  });
  let sizes = [];
  let state = "busy"; // busy, running, paused, diverged
  let latest = null; // the sample that is shown large

  const handlers = {
    loading: ({ step }) => setStatus(status, "busy", `Loading ${step}`),
    begun() {
      chart.clear();
      for (const id of FIGURES) setText(find(`#${id}`), "–");
      latest = null;
      find("#earlier").replaceChildren();
      for (const id of ["latest", "latest-note", "answer", "answer-prompt", "answer-note"]) setText(find(`#${id}`), "");
    },
    choices(report) {
      sizes = report.sizes;
      size.replaceChildren(...sizes.map(({ name, weights }) => new Option(`${name}: ${weights.toLocaleString("en")} weights`, name)));
      optimizer.replaceChildren(...optionGroups(report.optimizers));
      size.value = report.size;
      optimizer.value = report.optimizer;
      const { layers, width, heads, block, batch } = sizes.find(({ name }) => name === report.size);
      setText(find("#size-note"), `${layers} ${layers === 1 ? "layer" : "layers"}, ${width} wide, ${heads} heads; ${batch} × ${block} characters a step`);
      find("#software-note").hidden = !report.software;
      showRate(report.lr);
      showText(report.text);
      highlight(find("#lines"), report.lines, "python");
      for (const id of ["settings", "prompt-fields", "text-fields", "toggle", "reset"]) find(`#${id}`).disabled = false;
      if (!report.paused) setState("running");
      else if (state !== "diverged") setState("paused");
    },
    lines: ({ lines }) => highlight(find("#lines"), lines, "python"),
    steps({ step, losses, speed, characters }) {
      losses.forEach((loss, number) => chart.push(step - losses.length + number + 1, { "training loss": loss }));
      setText(find("#step"), step.toLocaleString("en"));
      setText(find("#loss"), short(losses.reduce((sum, loss) => sum + loss, 0) / losses.length));
      setText(find("#speed"), short(speed));
      setText(find("#characters"), short(characters));
    },
    held_out({ step, loss }) {
      chart.push(step, { "held-out loss": loss });
      setText(find("#held-out"), short(loss));
    },
    written(report) {
      if (report.name === "answer") showAnswer(report);
      else showSample(report);
    },
    refused({ what, message }) {
      if (what in errors) showError(what, message);
      else setStatus(status, "failed", message);
    },
    diverged({ step, lr, optimizer: name }) {
      setState("diverged");
      setStatus(status, "failed", `The loss is no number any more at step ${step}: ${name} with ${short(lr)} steps too far. Choose a smaller learning rate and start over.`);
    },
  };

  // The state, and what the buttons do in it.

  function setState(next) {
    state = next;
    setText(toggle, next === "paused" ? "Go on" : "Pause");
    toggle.disabled = next === "diverged";
    if (next === "running") setStatus(status, "running", "Training on your GPU");
    if (next === "paused") setStatus(status, "idle", "Paused");
  }

  function restart(kind, value = null) {
    setStatus(status, "busy", "Beginning with new weights");
    python.send(kind, value);
  }

  toggle.addEventListener("click", () => {
    python.send(state === "paused" ? "resume" : "pause");
    setState(state === "paused" ? "running" : "paused");
  });
  find("#reset").addEventListener("click", () => restart("reset"));
  size.addEventListener("change", () => restart("size", size.value));
  optimizer.addEventListener("change", () => python.send("optimizer", optimizer.value));
  const showRate = rateSlider((value) => python.send("lr", value));
  temperature.addEventListener("input", () => setText(find("#temperature-value"), temperature.value));

  // What it writes.

  /** The latest sample is shown large; when the next one begins, it moves to the head of the earlier ones. */
  function showSample(report) {
    if (latest && latest.number !== report.number) {
      find("#earlier").prepend(create("li", {}, create("span", { class: "soft small mono" }, caption(latest)), create("p", {}, latest.text)));
      find("#earlier").children[EARLIER]?.remove();
    }
    latest = report;
    setText(find("#latest-note"), caption(report));
    setText(find("#latest"), report.text);
  }

  function caption({ step, loss, until }) {
    return `${step === until ? `step ${step}` : `steps ${step} to ${until}`}, held-out loss ${short(loss)}`;
  }

  function showAnswer({ step, until, prompt, text, done }) {
    setText(find("#answer-prompt"), prompt);
    setText(find("#answer"), text);
    setText(find("#answer-note"), step === until ? `step ${step}` : `steps ${step} to ${until}`);
    if (done) setText(find("#answer-said"), `It goes on: ${text}`);
  }

  find("#prompt-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const prompt = find("#prompt").value;
    errors.prompt.hidden = true;
    python.send("prompt", { text: prompt, temperature: Number(temperature.value) });
  });

  find("#prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("#prompt-form").requestSubmit();
  });

  // What it learns from.

  function showText({ characters, different, is_book: isBook }) {
    const counts = `${characters.toLocaleString("en")} characters, ${different} kinds; the last tenth is held out`;
    setText(find("#text-note"), isBook ? `It learns from the first half of Northanger Abbey by Jane Austen: ${counts}.` : `It learns from your text: ${counts}.`);
    find("#book").hidden = isBook;
  }

  // Of a file and a pasted text the later one counts.
  find("#file").addEventListener("change", () => {
    find("#text").value = "";
  });
  find("#text").addEventListener("input", () => {
    find("#file").value = "";
  });
  find("#text-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    errors.text.hidden = true;
    const [file] = find("#file").files;
    try {
      restart("text", file ? await readText(file) : find("#text").value);
    } catch (error) {
      showError("text", error.message);
    }
  });
  find("#book").addEventListener("click", () => {
    find("#text").value = find("#file").value = "";
    errors.text.hidden = true;
    restart("text");
  });

  function showError(what, message) {
    errors[what].hidden = false;
    setText(errors[what], message);
    if (what === "text") setState(state);
  }

  // Python.

  try {
    const { device } = await python.ready;
    setText(find("#device"), `on ${device.description}`);
    setStatus(status, "busy", "Preparing the text");
    fetch(address("programs/gpt.py")).then((response) => response.text()).then((text) => highlight(find("#model"), text, "python"));
    await python.run("import writer\nawait writer.run_in_page(book)", { name: "writer", globals: { book: await book } });
  } catch (error) {
    setStatus(status, "failed", error.message);
    console.error(error.traceback);
  }
}

/** A file's text, or an error that people understand. */
async function readText(file) {
  if (file.size > LARGEST_FILE) throw new Error(`The file has ${file.size.toLocaleString("en")} bytes; at most ${LARGEST_FILE.toLocaleString("en")} are read.`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("The file is no plain text in UTF-8.");
  }
}

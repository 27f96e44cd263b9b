// The writer: a GPT trains, and what it writes is shown as it learns. Text of models and visitors is only set as textContent.
import { getBytes, getText } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { create, find, optionGroups, setStatus, setText } from "./lib/dom.js";
import { divergedSentence } from "./lib/diverged.js";
import { highlight } from "./lib/editor.js";
import { loadPython } from "./lib/loading.js";
import { rateSlider } from "./lib/rate.js";
import { loadRecording, playRecording } from "./lib/recording.js";
import { PythonWorker } from "./lib/runtime.js";
import { bindUrl, number, oneOf, text as packed, updateUrl, whole } from "./lib/url.js";
import { explainWithoutWebgpu, runningOn } from "./lib/webgpu.js";

const LARGEST_FILE = 4_000_000; // bytes: a million characters of any kind
const EARLIER = 60; // samples that are listed
const FIGURES = ["step", "loss", "held-out", "speed", "characters"];

const status = find("#status");
const toggle = find("#toggle");
const [size, optimizer, temperature] = ["size", "optimizer", "temperature"].map((id) => find(`#${id}`));
const errors = { prompt: find("#prompt-error"), text: find("#text-error") };
await begin();

async function begin() {
  const chart = lineChart(find("#chart"), {
    series: [
      { label: "training loss", scale: "y", color: "series-8", width: 1 },
      { label: "held-out loss", scale: "y", color: "series-1", points: true },
    ],
    scales: { y: { label: "cross-entropy per character" } },
    height: 320,
  });
  let python;
  let device = null; // on which it trains; until then a recorded run is shown
  let sizes = [];
  let state = "busy"; // busy, running, paused, diverged, ended: Python is gone, and what is asked for next starts it again
  let unsent = []; // messages for a Python that is being started
  let ownText = null; // what is learned instead of the book
  let sentText = null; // the same, as long as nobody knows whether it can be learned
  let longestText = Infinity;
  let divergence = ""; // the sentence that says so
  let latest = null; // the sample that is shown large
  let choices = null; // the latest of Python's
  let asked = null; // what the address says, until Python has begun with it
  let usual = null; // what is trained and asked for, unless the visitor or the address says otherwise

  const handlers = {
    begun() {
      chart.clear();
      for (const id of FIGURES) setText(find(`#${id}`), "–");
      latest = null;
      find("#earlier").replaceChildren();
      for (const id of ["latest", "latest-note", "answer", "answer-prompt", "answer-note"]) setText(find(`#${id}`), "");
    },
    choices(report) {
      if (unsent.length) {
        for (const [kind, value] of unsent.splice(0)) python.send(kind, value);
        return python.send("choices"); // not all messages lead to them: a prompt does not, nor what is refused
      }
      sizes = report.sizes;
      longestText = report.longest_text;
      ownText = report.text.is_book ? null : sentText ?? ownText;
      size.replaceChildren(...sizes.map(({ name, weights }) => new Option(`${name}: ${weights.toLocaleString("en")} weights`, name)));
      optimizer.replaceChildren(...optionGroups(report.optimizers));
      size.value = report.size;
      optimizer.value = report.optimizer;
      const { layers, width, heads, block, batch } = sizes.find(({ name }) => name === report.size);
      setText(find("#size-note"), `${layers} ${layers === 1 ? "layer" : "layers"}, ${width} wide, ${heads} heads; ${batch} × ${block} characters per step`);
      find("#software-note").hidden = !report.software;
      showRate(report.lr);
      showText(report.text);
      highlight(find("#lines"), report.lines, "python");
      if (!device) return;
      for (const id of ["settings", "prompt-fields", "text-fields", "toggle", "reset"]) find(`#${id}`).disabled = false;
      if (!report.paused) setState("running");
      else if (state !== "diverged") setState("paused");
      choices = report;
      asked = null;
      if (usual === null) bind();
      updateUrl();
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
      setState(state);
      if (what in errors) showError(what, message);
      else setStatus(status, "failed", message);
    },
    failed({ message }) {
      asked = null;
      setState("paused");
      setStatus(status, "failed", message);
    },
    diverged({ step, lr, optimizer: name }) {
      divergence = divergedSentence({ when: `at step ${step}`, optimizer: name, lr });
      setState("diverged");
    },
  };

  // The state, and what the buttons do in it.

  function setState(next) {
    state = next;
    setText(toggle, { paused: "Continue", ended: "Restart" }[next] ?? "Pause");
    toggle.disabled = next === "busy" || next === "diverged";
    if (next === "ended") find("#reset").disabled = false;
    if (next === "diverged") setStatus(status, "failed", divergence);
    if (next === "running") setStatus(status, "running", runningOn(device));
    if (next === "paused") setStatus(status, "idle", "Paused");
  }

  /** Tells Python, which is started first where it has ended: then it learns the text that it learned before. */
  function send(kind, value = null) {
    if (state !== "ended") return unsent.length ? unsent.push([kind, value]) : python.send(kind, value);
    if (ownText !== null && kind !== "text") unsent.push(["text", ownText]);
    if (kind !== "reset" && kind !== "pause") unsent.push([kind, value]);
    handlers.begun();
    return connect();
  }

  function restart(kind, value = null) {
    setStatus(status, "busy", "Starting with new weights");
    send(kind, value);
  }

  toggle.addEventListener("click", () => {
    if (state === "ended") return restart("reset");
    send(state === "paused" ? "resume" : "pause");
    setState(state === "paused" ? "running" : "paused");
  });
  find("#reset").addEventListener("click", () => restart("reset"));
  size.addEventListener("change", () => restart("size", size.value));
  optimizer.addEventListener("change", () => send("optimizer", optimizer.value));
  const showRate = rateSlider((value) => {
    choices.lr = value;
    send("lr", value);
  });
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
    if (done) setText(find("#answer-said"), `The model continues: ${text}`);
  }

  find("#prompt-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const prompt = find("#prompt").value;
    errors.prompt.hidden = true;
    send("prompt", { text: prompt.toWellFormed(), temperature: Number(temperature.value) });
  });

  find("#prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("#prompt-form").requestSubmit();
  });

  // The text that it is trained on.

  function showText({ characters, different, replaced, is_held_out: isHeldOut, is_book: isBook }) {
    const sentences = [
      `The model trains on ${isBook ? "the first half of Northanger Abbey by Jane Austen" : "your text"}: ${characters.toLocaleString("en")} characters, ${different.toLocaleString("en")} distinct.`,
      isHeldOut ? "The last tenth is held out." : "It is too short to hold any out, so the held-out loss is measured on the training text.",
      ...(replaced ? [`The ${replaced.toLocaleString("en")} rarest characters are replaced by \ufffd.`] : []),
    ];
    setText(find("#text-note"), sentences.join(" "));
    find("#book").hidden = isBook;
  }

  /** An error where a text has more characters than can be learned. A character has at most two units. */
  function checkLength(text) {
    if (text.length <= longestText || (text.length <= 2 * longestText && [...text].length <= longestText)) return;
    throw new Error(`The text has more than ${longestText.toLocaleString("en")} characters, the most this page can train on.`);
  }

  // A text far too long is not put into the field at all: to lay it out would take the page minutes.
  for (const [kind, content] of [["paste", "clipboardData"], ["drop", "dataTransfer"]]) {
    find("#text").addEventListener(kind, (event) => {
      errors.text.hidden = true;
      try {
        checkLength(event[content]?.getData("text/plain") ?? "");
      } catch (error) {
        event.preventDefault();
        showError("text", error.message);
      }
    });
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
      const text = file ? await readText(file) : find("#text").value.toWellFormed();
      checkLength(text);
      sentText = text;
      restart("text", text);
    } catch (error) {
      showError("text", error.message);
    }
  });
  find("#book").addEventListener("click", () => {
    find("#text").value = find("#file").value = "";
    errors.text.hidden = true;
    ownText = sentText = null;
    restart("text");
  });

  function showError(what, message) {
    errors[what].hidden = false;
    setText(errors[what], message);
  }

  // The address.

  function bind() {
    usual = { size: choices.size, optimizer: choices.optimizer, seed: choices.seed, temperature: temperature.value, prompt: find("#prompt").value };
    const table = {
      size: oneOf(sizes.map(({ name }) => name)),
      optimizer: oneOf(choices.optimizers.map(({ name }) => name)),
      lr: number(0, 10),
      seed: whole(0, 2 ** 32 - 1),
      temperature: number(0.1, 1.5),
      prompt: packed(2000),
    };
    bindUrl(table, { state: chosen, open });
  }

  /** What is not as usual, and then the size too, which depends on the adapter. */
  function chosen() {
    if (asked) return asked;
    const own = choices.optimizers.find(({ name }) => name === choices.optimizer).lr;
    const now = { optimizer: choices.optimizer, seed: choices.seed, temperature: temperature.value, prompt: find("#prompt").value };
    const changed = Object.fromEntries(Object.entries(now).filter(([key, value]) => value !== usual[key]));
    if (choices.lr !== own) changed.lr = choices.lr;
    if (choices.size !== usual.size || Object.keys(changed).length) changed.size = choices.size;
    return changed;
  }

  /** Shows the prompt, and trains from the start what the address says. */
  function open({ temperature: degree = usual.temperature, prompt = usual.prompt, ...training }) {
    temperature.value = degree;
    setText(find("#temperature-value"), temperature.value);
    find("#prompt").value = prompt.slice(0, find("#prompt").maxLength);
    const { size: _size = usual.size, optimizer: name = usual.optimizer, seed = usual.seed, lr = null } = training;
    const now = chosen();
    const isRunning = _size === choices.size && name === choices.optimizer && seed === choices.seed && lr === (now.lr ?? null);
    if (isRunning) return;
    asked = { temperature: degree === usual.temperature ? undefined : degree, prompt: prompt === usual.prompt ? undefined : prompt, ...training };
    restart("begin", { size: _size, optimizer: name, seed, lr });
  }

  // Python.

  /** Starts Python, and trains until it ends, which only an error that leaves nothing to continue makes it do. */
  async function connect() {
    setState("busy");
    const book = getBytes("data/book.txt");
    book.catch(() => {}); // reported where it is awaited
    python ??= new PythonWorker({
      programs: ["gpt", "recipes", "pen", "writer"],
      onEvent: (kind, report) => handlers[kind]?.(report),
    });
    if (python.isDead) python.restart();
    try {
      ({ device } = await loadPython(python, status));
      recorded.stop();
      handlers.begun();
      setText(find("#device"), `on ${device.description}`);
      setStatus(status, "busy", "Preparing the text");
      await python.run("import writer\nawait writer.run_in_page(book)", { name: "writer", globals: { book: await book } });
    } catch (error) {
      python.terminate();
      unsent = [];
      setState("ended");
      setStatus(status, "failed", error.message);
      if (error.traceback) console.warn(error.traceback);
    }
  }

  getText("programs/gpt.py").then((text) => highlight(find("#model"), text, "python"), (error) => setText(find("#model"), error.message));
  const recorded = playRecording(await loadRecording("gpt"), find(".chart figcaption"), (kind, report) => handlers[kind]?.(report));
  if (await explainWithoutWebgpu(find("#stage"))) setStatus(status, "idle", "Not training: no GPU available");
  else await connect();
}

/** A file's text, or an error that people understand. */
async function readText(file) {
  if (file.size > LARGEST_FILE) throw new Error(`The file has ${file.size.toLocaleString("en")} bytes; at most ${LARGEST_FILE.toLocaleString("en")} can be read.`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("The file is not plain text in UTF-8.");
  }
}

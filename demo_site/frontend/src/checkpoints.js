// A run on the digits that moves: trained here, saved or downloaded, continued natively, loaded or opened again.
import { getBytes } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { quoted } from "./lib/commands.js";
import { copyButton, create, download, find, optionGroups, sentence, setStatus, setText, toast } from "./lib/dom.js";
import { isValid } from "./lib/fields.js";
import { loadPython } from "./lib/loading.js";
import { PythonWorker } from "./lib/runtime.js";
import { savedRuns } from "./lib/storage.js";
import { bindUrl, oneOf, updateUrl, whole } from "./lib/url.js";
import { explainWithoutWebgpu } from "./lib/webgpu.js";
import { takeFiles } from "./pages/files.js";

const EPOCHS_AT_ONCE = 5;
const LARGEST_FILE = 64 << 20; // bytes; what the server takes, and hundreds of times what such a run has
const SEED = "Enter a whole number from 0 to 4,294,967,295";
const NAME = "Use letters, digits, “.”, “_” and “-”, starting with a letter or digit";

const status = find("#status");
const buttons = Object.fromEntries(["train", "pause", "new", "save", "download", "open"].map((id) => [id, find(`#${id}`)]));

let worker;
let data; // images, labels and folds
let config;
let offered; // the optimizers: {name, value, common, lr}
let history = []; // [epoch, learning rate, training loss, test loss, test accuracy]
let loaded = 0; // epochs that came with a checkpoint
let kept = 0; // epochs that are in some file
let chart = null;
let state = "starting"; // ready, training, diverged
let isActing = false; // something is being saved, loaded, deleted or started
let trained = Promise.resolve(); // when the training that runs has ended

const call = (expression, globals) =>
  worker.run(`import checkpoints\nimport optirs_web as ow\n${expression}`, { name: "checkpoints page", globals });

// The run.

/** Puts a run in the place of the one that is shown: an expression that makes a `checkpoints.Run`. */
async function replace(expression, globals) {
  const before = { history, loaded, kept, state };
  await call(`checkpoints.candidate = ${expression}`, { data, ...globals });
  await call("checkpoints.previous = getattr(checkpoints, 'running', None)\ncheckpoints.running = checkpoints.candidate");
  await showRun({ state: "ready" });
  const lost = before.history.length - before.kept;
  if (lost === 0 || before.state === "diverged") return;
  toast(`The previous run had ${lost} unsaved ${lost === 1 ? "epoch" : "epochs"}`, {
    action: {
      label: "Undo",
      run: guarded(async () => {
        if (state === "training") throw new Error("Pause training first");
        await call("checkpoints.running = checkpoints.previous");
        await showRun(before);
        setStatus(status, "idle", `Restored the previous run at epoch ${history.length}`);
      }),
    },
  });
}

/** Shows the run that Python has; unless `values` say otherwise, all of it came with a checkpoint. */
async function showRun(values) {
  ({ config, history } = await call("{'config': checkpoints.running.config, 'history': checkpoints.running.history}"));
  ({ loaded = history.length, kept = history.length, state } = values);
  setText(find("#recipe"), `${config.optimizer}, seed ${config.seed}, MLP 64-${config.hidden.join("-")}-10`);
  find("#optimizer").value = config.optimizer;
  find("#seed").value = config.seed;
  isValid(find("#seed"), SEED);
  drawCurve();
  showFigures();
  setButtons();
  updateUrl();
}

async function begin() {
  if (!isValid(find("#seed"), SEED)) return find("#seed").focus();
  const options = { optimizer: find("#optimizer").value, seed: Number(find("#seed").value) };
  await replace("checkpoints.Run(ow.device(), data, checkpoints.first_config(**options))", { options });
  setStatus(status, "idle", "New run ready");
}

async function train() {
  state = "training";
  setButtons();
  setStatus(status, "running", "Training");
  const target = history.length + EPOCHS_AT_ONCE;
  try {
    while (state === "training" && history.length < target) {
      history.push(await call("await checkpoints.running.train_epoch()"));
      drawCurve();
      showFigures();
    }
    const isPaused = state !== "training";
    setStatus(status, isPaused ? "idle" : "done", `${isPaused ? "Paused at" : "Trained to"} epoch ${history.length}`);
    state = "ready";
  } catch (error) {
    state = "ready";
    if (await call("checkpoints.running.has_diverged")) state = "diverged";
    throw error;
  } finally {
    setButtons();
  }
}

/** Stops the training after this epoch, and resolves then. */
function pause() {
  if (state === "training") state = "ready";
  buttons.pause.disabled = true;
  return trained;
}

/** What can be done now: a run that has diverged can be replaced, but neither trained nor saved. */
function setButtons() {
  const isBusy = state === "starting" || state === "training";
  for (const button of Object.values(buttons)) button.disabled = isBusy;
  buttons.pause.disabled = state !== "training";
  if (state === "diverged") for (const name of ["train", "save", "download"]) buttons[name].disabled = true;
  for (const button of find("#runs").querySelectorAll("button")) button.disabled = isBusy;
}

function drawCurve() {
  const epochs = history.map(([epoch]) => epoch);
  if (!chart || chart.loaded !== loaded) {
    chart?.destroy();
    chart = lineChart(find("#curve"), {
      x: "epoch",
      series: [
        { label: "training", color: "series-1", points: true },
        { label: "test", color: "series-2", points: true },
        ...(loaded ? [{ label: "training, loaded", color: "series-1", dash: [5, 5] }, { label: "test, loaded", color: "series-2", dash: [5, 5] }] : []),
      ],
      scales: { y: { log: true } },
      height: 300,
    });
    chart.loaded = loaded;
  }
  // The loaded part and what was trained here meet in the last loaded epoch.
  const here = (index) => history.map((row, at) => (at >= loaded - 1 ? row[index] : undefined));
  const before = (index) => history.map((row, at) => (at < loaded ? row[index] : undefined));
  chart.set([epochs, here(2), here(3), ...(loaded ? [before(2), before(3)] : [])]);
}

function showFigures() {
  const last = history.at(-1);
  setText(find("#epoch"), last ? last[0] : 0);
  setText(find("#train-loss"), last ? short(last[2]) : "–");
  setText(find("#test-loss"), last ? short(last[3]) : "–");
  setText(find("#accuracy"), last ? `${(100 * last[4]).toFixed(2)}%` : "–");
  showCommands();
}

// Moving it.

const nameField = () => find("#run-name").value;

async function checkpoint() {
  return (await call("await checkpoints.running.save()")).slice();
}

/** Puts back what was under a name, and says so. */
const putBack = (name, content) => guarded(async () => {
  await savedRuns.put(name, content);
  toast(`“${name}” was restored`);
  await listRuns();
});

async function save() {
  if (!isValid(find("#run-name"), NAME)) return find("#run-name").focus();
  const name = nameField();
  const before = (await savedRuns.list()).find((run) => run.name === name);
  const old = before && (await savedRuns.get(name));
  await savedRuns.put(name, await checkpoint());
  kept = history.length;
  setStatus(status, "done", `Saved “${name}” at epoch ${history.length}`);
  if (old) {
    const what = before.epoch === null ? "" : `, which held epoch ${before.epoch} of ${before.optimizer ?? "another run"}`;
    toast(`Overwrote “${name}”${what}`, { action: { label: "Undo", run: putBack(name, old) } });
  }
  await listRuns();
}

async function load(name) {
  setStatus(status, "busy", `Loading “${name}”`);
  await continueFrom(await savedRuns.get(name), `“${name}”`);
  find("#run-name").value = name;
  showCommands();
}

/** A file of the visitor's. What cannot be a checkpoint of these runs is not read into memory. */
async function openFile(file) {
  if (state === "starting") throw new Error("Python is still starting; try again in a moment");
  if (state === "training") throw new Error("Pause training first");
  const megabytes = (bytes) => `${(bytes / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 0 })} MiB`;
  if (file.size === 0) throw new Error(`“${file.name}” is empty`);
  if (file.size > LARGEST_FILE) throw new Error(`“${file.name}” is ${megabytes(file.size)}; checkpoints of this run are at most ${megabytes(LARGEST_FILE)}`);
  setStatus(status, "busy", `Opening “${file.name}”`);
  const content = await file.arrayBuffer().catch(() => {
    throw new Error(`“${file.name}” could not be read: it may have been moved or changed`);
  });
  await continueFrom(content, `“${file.name}”`);
}

async function continueFrom(content, name) {
  await replace("checkpoints.Run.load(ow.device(), data, bytes(content))", { content });
  setStatus(status, "done", `Loaded ${name} at epoch ${history.length}`);
}

async function remove(name) {
  const old = await savedRuns.get(name);
  await savedRuns.delete(name);
  toast(`“${name}” was deleted`, { action: { label: "Undo", run: putBack(name, old) } });
  await listRuns();
}

async function listRuns() {
  const runs = await savedRuns.list();
  const button = (text, name, action) =>
    create("button", { class: "button button-small", type: "button", "aria-label": `${text} ${name}`, onclick: alone(() => action(name)) }, text);
  const rows = runs.map(({ name, size, updated, epoch, optimizer }) =>
    create("tr", { data: { run: name } },
      create("th", { scope: "row" }, name),
      create("td", {}, optimizer ?? "–"),
      create("td", { class: "number" }, String(epoch ?? "–")),
      create("td", { class: "number" }, `${Math.round(size / 1024).toLocaleString("en")} KiB`),
      create("td", {}, new Date(updated).toLocaleString()),
      create("td", {}, create("div", { class: "row" }, button("Load", name, load), button("Delete", name, remove)))));
  find("#runs").replaceChildren(...(rows.length ? rows : [create("tr", {}, create("td", { colspan: "6", class: "soft" }, "None yet"))]));
  setButtons();
}

/** What continues the run in a terminal. */
function trainCommand(name) {
  const { optimizer = "adamw", seed = 0 } = config ?? {};
  const options = [`--optimizer ${optimizer}`, `--seed ${seed}`];
  if (config && config.lr !== offered.find(({ value }) => value === optimizer).lr) options.push(`--lr ${config.lr}`);
  if (config?.fold) options.push(`--fold ${config.fold}`);
  if (config && config.batch_size !== 64) options.push(`--batch-size ${config.batch_size}`);
  return `train digits --resume --out runs/${name} ${options.join(" ")}`;
}

async function showCommands() {
  const name = quoted(nameField());
  const file = `runs/${name}/checkpoint.safetensors`;
  const { there, back } = await savedRuns.commands(nameField(), file);
  const train = `.venv/bin/optirs-web ${trainCommand(name)} --epochs ${history.length + EPOCHS_AT_ONCE}`;
  setText(find("#commands"), [`mkdir -p runs/${name}`, ...there, train, ...back].join("\n"));
}

/** Errors of Python and the server end up in the status line, and in the corner where that is out of sight. */
function guarded(action) {
  return async (...values) => {
    try {
      await action(...values);
    } catch (error) {
      const text = sentence(error.message);
      setStatus(status, "failed", text);
      const { top, bottom } = status.getBoundingClientRect();
      if (bottom < 0 || top > innerHeight) toast(text, { milliseconds: 8000 });
    }
  };
}

/** An action that leaves out what is pressed while it runs, as the second click of a double click. */
function alone(action) {
  return guarded(async () => {
    if (isActing) return;
    isActing = true;
    try {
      await action();
    } finally {
      isActing = false;
    }
  });
}

async function main() {
  guarded(listRuns)();
  buttons.train.addEventListener("click", () => {
    trained = guarded(train)();
  });
  buttons.pause.addEventListener("click", pause);
  const beginAlone = alone(begin);
  find("#setup").addEventListener("submit", (event) => {
    event.preventDefault();
    if (state === "ready" || state === "diverged") beginAlone();
  });
  find("#seed").addEventListener("input", () => isValid(find("#seed"), SEED));
  buttons.download.addEventListener("click", guarded(async () => {
    if (!isValid(find("#run-name"), NAME)) return find("#run-name").focus();
    download(`${nameField()}.safetensors`, await checkpoint());
    kept = history.length;
  }));
  const saveAlone = alone(save);
  find("#saving").addEventListener("submit", (event) => {
    event.preventDefault();
    saveAlone();
  });
  takeFiles(buttons.open, ".safetensors", guarded(openFile));
  find("#run-name").addEventListener("input", () => {
    if (isValid(find("#run-name"), NAME)) showCommands();
  });
  find("#refresh").addEventListener("click", guarded(listRuns));
  copyButton(find("#copy"), () => find("#commands").textContent);
  if (await explainWithoutWebgpu(find("#stage"))) {
    await showCommands();
    return setStatus(status, "idle", "Not training: no GPU available");
  }
  worker = new PythonWorker({ programs: ["digit_images", "recipes", "checkpoints"] });
  [data] = await Promise.all([getBytes("data/digits.bin"), loadPython(worker, status)]);
  offered = await call("checkpoints.offered()");
  find("#optimizer").append(...optionGroups(offered));
  find("#optimizer").disabled = false;
  const first = { optimizer: find("#optimizer").value, seed: 0 };
  const table = { optimizer: oneOf(offered.map(({ value }) => value)), seed: whole(0, 2 ** 32 - 1) };
  await bindUrl(table, {
    state: () => Object.fromEntries(Object.keys(first).map((key) => [key, config[key] === first[key] ? undefined : config[key]])),
    open: guarded(async (values) => {
      await pause();
      for (const [key, value] of Object.entries({ ...first, ...values })) find(`#${key}`).value = value;
      await begin();
      setStatus(status, "idle", "Ready");
    }),
  });
}

guarded(main)();

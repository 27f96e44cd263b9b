// A run on the digits that moves: trained here, saved to the server, continued natively, loaded again.
import { getBytes, getJson, request, sessionToken, site } from "./lib/api.js";
import { lineChart, short } from "./lib/chart.js";
import { copyButton, create, download, find, optionGroups, setStatus, setText, toast } from "./lib/dom.js";
import { PythonWorker } from "./lib/runtime.js";
import { stopWithoutWebgpu } from "./lib/webgpu.js";

const EPOCHS_AT_ONCE = 5;

const status = find("#status");
const buttons = Object.fromEntries(["train", "pause", "new", "save", "download"].map((id) => [id, find(`#${id}`)]));

let worker;
let data; // images, labels and folds
let config;
let offered; // the optimizers: {name, value, common, lr}
let history = []; // [epoch, learning rate, training loss, test loss, test accuracy]
let loaded = 0; // epochs that came with a checkpoint
let chart = null;
let training = false;

const call = (expression, globals) =>
  worker.run(`import checkpoints\nimport optirs_web as ow\n${expression}`, { name: "checkpoints page", globals });

// The run.

/** Loads a run into the worker by an expression that makes a `checkpoints.Run`, and shows it. */
async function open(expression, globals) {
  await call(`checkpoints.running = ${expression}`, { data, ...globals });
  ({ config, history } = await call("{'config': checkpoints.running.config, 'history': checkpoints.running.history}"));
  loaded = history.length;
  setText(find("#recipe"), `${config.optimizer}, seed ${config.seed}, MLP 64-${config.hidden.join("-")}-10`);
  find("#optimizer").value = config.optimizer;
  find("#seed").value = config.seed;
  drawCurve();
  showFigures();
}

async function begin() {
  const options = { optimizer: find("#optimizer").value, seed: Number(find("#seed").value) };
  await open("checkpoints.Run(ow.device(), data, checkpoints.first_config(**options))", { options });
  setStatus(status, "idle", "A new run");
}

async function train() {
  training = true;
  setButtons();
  setStatus(status, "running", "Training");
  const target = history.length + EPOCHS_AT_ONCE;
  try {
    while (training && history.length < target) {
      history.push(await call("await checkpoints.running.train_epoch()"));
      drawCurve();
      showFigures();
    }
    setStatus(status, training ? "done" : "idle", `${training ? "Trained" : "Paused"} at epoch ${history.length}`);
  } finally {
    training = false;
    setButtons();
  }
}

function setButtons() {
  if (!config) return; // Python is still starting
  for (const [name, button] of Object.entries(buttons)) button.disabled = name === "pause" ? !training : training;
  for (const button of find("#runs").querySelectorAll("button")) button.disabled = training;
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

async function save() {
  const name = nameField();
  await request("PUT", `api/runs/${encodeURIComponent(name)}/checkpoint`, { body: await checkpoint(), authorize: true });
  setStatus(status, "done", `Saved “${name}” at epoch ${history.length}`);
  await listRuns();
}

async function load(name) {
  setStatus(status, "busy", `Loading “${name}”`);
  const content = await getBytes(`api/runs/${encodeURIComponent(name)}/checkpoint`);
  await open("checkpoints.Run.load(ow.device(), data, bytes(content))", { content });
  find("#run-name").value = name;
  showCommands();
  setStatus(status, "done", `Loaded “${name}” at epoch ${history.length}`);
}

async function remove(name) {
  await request("DELETE", `api/runs/${encodeURIComponent(name)}`, { authorize: true });
  toast(`“${name}” is deleted`);
  await listRuns();
}

async function listRuns() {
  const runs = await getJson("api/runs");
  const button = (text, name, action) =>
    create("button", { class: "button button-small", type: "button", "aria-label": `${text} ${name}`, disabled: !config, onclick: guarded(() => action(name)) }, text);
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

/** A word that no shell takes apart. */
function quoted(word) {
  return /^[\w./:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** What goes on with the run in a terminal. */
function trainCommand(name) {
  const { optimizer = "adamw", seed = 0 } = config ?? {};
  const options = [`--optimizer ${optimizer}`, `--seed ${seed}`];
  if (config && config.lr !== offered.find(({ value }) => value === optimizer).lr) options.push(`--lr ${config.lr}`);
  if (config?.fold) options.push(`--fold ${config.fold}`);
  if (config && config.batch_size !== 64) options.push(`--batch-size ${config.batch_size}`);
  return `optirs-web train digits --resume --out runs/${name} ${options.join(" ")}`;
}

async function showCommands() {
  const token = await sessionToken().catch(() => "TOKEN");
  const name = quoted(nameField());
  const file = `runs/${name}/checkpoint.safetensors`;
  setText(find("#commands"), [
    `mkdir -p runs/${name}`,
    `optirs-web runs pull ${name} ${file} --url ${quoted(site.root.replace(/\/$/, ""))}`,
    `${trainCommand(name)} --epochs ${history.length + EPOCHS_AT_ONCE}`,
    `optirs-web runs push ${file} ${name} --url ${quoted(site.root.replace(/\/$/, ""))} --token ${quoted(token)}`,
  ].join("\n"));
}

/** Errors of Python and the server end up in the status line. */
function guarded(action) {
  return async (...values) => {
    try {
      await action(...values);
    } catch (error) {
      setStatus(status, "failed", error.message);
    }
  };
}

async function main() {
  worker = new PythonWorker({ programs: ["digit_images", "recipes", "checkpoints"] });
  guarded(listRuns)();
  buttons.train.addEventListener("click", guarded(train));
  buttons.pause.addEventListener("click", () => {
    training = false; // after this epoch
    buttons.pause.disabled = true;
  });
  buttons.new.addEventListener("click", guarded(begin));
  buttons.download.addEventListener("click", guarded(async () => download(`${nameField()}.safetensors`, await checkpoint())));
  find("#setup").addEventListener("submit", (event) => event.preventDefault());
  find("#saving").addEventListener("submit", guarded(async (event) => {
    event.preventDefault();
    await save();
  }));
  find("#run-name").addEventListener("input", showCommands);
  find("#refresh").addEventListener("click", guarded(listRuns));
  copyButton(find("#copy"), () => find("#commands").textContent);
  [data] = await Promise.all([getBytes("data/digits.bin"), worker.ready]);
  offered = await call("checkpoints.offered()");
  find("#optimizer").append(...optionGroups(offered));
  find("#optimizer").disabled = false;
  await begin();
  setButtons();
  setStatus(status, "idle", "Ready");
}

if (!(await stopWithoutWebgpu(find("#stage")))) guarded(main)();

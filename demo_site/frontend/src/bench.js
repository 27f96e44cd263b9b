// The benchmarks of programs/bench.py, one after the other, drawn as they come.
import { site } from "./lib/api.js";
import { barChart, short } from "./lib/chart.js";
import { create, download, find, setStatus, toast } from "./lib/dom.js";
import { loadPython } from "./lib/loading.js";
import { PythonWorker } from "./lib/runtime.js";
import { savedResults } from "./lib/storage.js";
import { bindUrl, oneOf } from "./lib/url.js";
import { deviceName, explainWithoutWebgpu } from "./lib/webgpu.js";

const status = find("#status");
const buttons = Object.fromEntries(["run", "stop", "download", "post"].map((id) => [id, find(`#${id}`)]));

const rounds = find("#rounds");
const ROUNDS = rounds.value; // unless the visitor or the address says otherwise

/** Where a group is drawn, and what of a result: its time, or its rate. */
const CHARTS = [
  { id: "adamw-time", label: "AdamW step time", groups: ["adamw"], of: "milliseconds" },
  { id: "adamw-rate", label: "AdamW step bandwidth", groups: ["adamw", "memory"], of: "rate" },
  { id: "matmul-rate", label: "Matrix product rate", groups: ["matmul"], of: "rate" },
  { id: "matmul-time", label: "Matrix product time", groups: ["matmul"], of: "milliseconds" },
  { id: "transfer-rate", label: "Transfer rate", groups: ["transfer"], of: "rate" },
  { id: "latency-time", label: "Time to read one number", groups: ["latency"], of: "milliseconds" },
];

let worker;
let device;
let results = [];
let stopped = false;

const call = (expression, globals) =>
  worker.run(`import bench\nimport optirs_web as ow\n${expression}`, { name: "bench page", globals });

function drawBars() {
  for (const { id, label, groups, of } of CHARTS) {
    const rows = results.filter((one) => groups.includes(one.group) && one[of]);
    const unit = of === "rate" ? rows[0]?.rate.unit : "ms";
    const bars = barChart(find(`#${id}`), { label, unit });
    if (rows.length === 0) find(`#${id}`).replaceChildren(create("p", { class: "soft small" }, "Not measured yet"));
    else bars.set(rows.map((one) => ({
      name: one.label, value: one[of].median, low: one[of].min, high: one[of].max, strong: one.group !== "memory",
    })));
  }
  if (results.length === 0) return;
  find("#host").replaceChildren(...results.filter(({ group }) => group === "adamw" || group === "matmul").map((one) =>
    create("tr", {}, create("th", { scope: "row" }, one.label),
      ...[short(one.host_milliseconds), one.counts.dispatches, one.counts.submits, one.counts.bind_groups].map((value) =>
        create("td", { class: "number" }, String(value))))));
}

async function run() {
  const benchmarks = await call("bench.described()");
  results = [];
  stopped = false;
  buttons.run.disabled = buttons.download.disabled = buttons.post.disabled = true;
  buttons.stop.disabled = false;
  find("#progress").max = benchmarks.length;
  for (const [done, { name, label }] of benchmarks.entries()) {
    if (stopped) break;
    find("#progress").value = done;
    setStatus(status, "running", `${done + 1} of ${benchmarks.length}: ${label}`);
    results.push(await call("await bench.measure(ow.device(), name, rounds)", { name, rounds: Number(rounds.value) }));
    drawBars();
  }
  if (!stopped) find("#progress").value = benchmarks.length;
  setStatus(status, stopped ? "idle" : "done", stopped ? "Stopped" : `Done on ${device}`);
}

/** Also after an error: what was measured can be downloaded. */
function ready() {
  buttons.run.disabled = false;
  buttons.stop.disabled = true;
  buttons.download.disabled = buttons.post.disabled = results.length === 0;
}

function report() {
  return {
    library: "optirs-web",
    version: site.version,
    device,
    browser: navigator.userAgent,
    measured: new Date().toISOString(),
    results,
  };
}

async function listSaved() {
  const saved = await savedResults.list();
  const figure = (result, name, of) => {
    const found = Array.isArray(result.results) ? result.results.find((one) => one?.name === name)?.[of]?.median : null;
    return create("td", { class: "number" }, typeof found === "number" ? short(found) : "–");
  };
  if (saved.length === 0) return;
  find("#saved").replaceChildren(...saved.slice(0, 20).map(({ created, result }) =>
    create("tr", {},
      create("td", {}, new Date(created).toLocaleString()),
      create("td", {}, typeof result.device === "string" ? result.device : "unknown"),
      figure(result, "adamw-20x65536", "milliseconds"), figure(result, "copy", "rate"), figure(result, "matmul-512", "rate"))));
}

async function main() {
  drawBars();
  await bindUrl(
    { rounds: oneOf([...rounds.options].map(({ value }) => value)) },
    {
      state: () => ({ rounds: rounds.value === ROUNDS ? undefined : rounds.value }),
      open: (values) => {
        rounds.value = values.rounds ?? ROUNDS;
      },
    },
  );
  listSaved().catch((error) => toast(error.message));
  buttons.run.addEventListener("click", async () => {
    try {
      await run();
    } catch (error) {
      setStatus(status, "failed", error.message);
    }
    ready();
  });
  buttons.stop.addEventListener("click", () => {
    stopped = true; // the benchmark that runs is finished
    buttons.stop.disabled = true;
  });
  buttons.download.addEventListener("click", () => {
    download("optirs-web-bench.json", `${JSON.stringify(report(), null, 2)}\n`, "application/json");
  });
  buttons.post.addEventListener("click", async () => {
    try {
      await savedResults.add(report());
      toast("Saved");
      await listSaved();
    } catch (error) {
      toast(error.message);
    }
  });
  if (await explainWithoutWebgpu(find("#stage"))) return setStatus(status, "idle", "Cannot measure: no GPU available");
  worker = new PythonWorker({ programs: ["bench"] });
  const info = await loadPython(worker, status);
  device = info.device.description;
  setStatus(status, "idle", `Ready: ${deviceName(info.device)}`);
  buttons.run.disabled = false;
}

await main();

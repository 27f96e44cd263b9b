// The page Check: the adapter's limits and features, and its rates by programs/check.py and lib/peak.js.
import { site } from "./lib/api.js";
import { barChart, short } from "./lib/chart.js";
import { color, create, download, find, setStatus, setText } from "./lib/dom.js";
import { loadPython } from "./lib/loading.js";
import { multiplyAddPeak } from "./lib/peak.js";
import { pictureButton } from "./lib/picture.js";
import { PythonWorker } from "./lib/runtime.js";
import "./lib/url.js"; // Share
import { deviceName, explainWithoutWebgpu } from "./lib/webgpu.js";

const status = find("#status");
const buttons = Object.fromEntries(["run", "picture", "download"].map((id) => [id, find(`#${id}`)]));

const MEGABYTE = 2 ** 20;
const bytes = (value) => (value >= MEGABYTE ? `${short(value / MEGABYTE)} MiB` : `${value / 1024} KiB`);
const plain = (value) => value.toLocaleString("en");

/** Limits that decide what can be trained: WebGPU's name, the label and the format. */
const LIMITS = [
  ["maxBufferSize", "Largest buffer", bytes],
  ["maxStorageBufferBindingSize", "Largest binding of a buffer", bytes],
  ["maxComputeWorkgroupStorageSize", "Workgroup memory", bytes],
  ["maxComputeInvocationsPerWorkgroup", "Invocations per workgroup", plain],
  ["maxComputeWorkgroupsPerDimension", "Workgroups per dimension", plain],
  ["maxStorageBuffersPerShaderStage", "Storage buffers per kernel", plain],
];

/** Features that make training faster or are needed to measure it, and their use. */
const FEATURES = [
  ["shader-f16", "16-bit arithmetic in kernels"],
  ["subgroups", "exchange of values between invocations without memory"],
  ["timestamp-query", "times of single kernels, for the profiler"],
];

const FAMILIES = {
  quads: "quads: four neighbouring invocations exchange rows, which is fastest on processors",
  tiles: "tiles that are staged in workgroup memory, which GPUs have in hardware",
};

const bars = {
  product: barChart(find("#products"), { label: "Rate of matrix products", unit: "GFLOP/s" }),
  memory: barChart(find("#memory"), { label: "Bandwidth of a copy", unit: "GB/s" }),
};

let worker;
let adapter;
let report = null;

const call = (expression, globals = {}) =>
  worker.run(`import check\nimport optirs_web as ow\n${expression}`, { name: "check page", globals });

/** The adapter's names, limits and features. */
function adapterFacts() {
  const { vendor, architecture, device, description } = adapter.info;
  return {
    adapter: { vendor, architecture, device, description },
    limits: Object.fromEntries(LIMITS.map(([name]) => [name, adapter.limits[name]])),
    features: [...adapter.features].sort(),
  };
}

function showAdapter() {
  const { limits, features } = adapterFacts();
  find("#limits").replaceChildren(...LIMITS.map(([name, label, format]) =>
    create("tr", {}, create("th", { scope: "row" }, label), create("td", { class: "number" }, format(limits[name])))));
  find("#features").replaceChildren(...FEATURES.map(([name, use]) =>
    create("tr", {}, create("th", { scope: "row", class: "mono" }, name), create("td", {}, features.includes(name) ? "yes" : "no"), create("td", { class: "soft" }, use))));
  const others = features.filter((name) => !FEATURES.some(([known]) => known === name));
  setText(find("#others"), others.length ? `It also offers ${others.join(", ")}.` : "");
}

const best = () => Math.max(...report.products.map(({ rate }) => rate.median));

function showReport() {
  const { copy, products, peak, share, family, device } = report;
  setText(find("#copy"), copy ? `${short(copy.rate.median)} GB/s` : "–");
  setText(find("#best"), products.length ? `${short(best())} GFLOP/s` : "–");
  setText(find("#peak"), peak ? `${short(peak)} GFLOP/s` : "–");
  setText(find("#share-of-peak"), share ? `${Math.round(100 * share)}%` : "–");
  setText(find("#family"), `Products by ${FAMILIES[family]}.`);
  setText(find("#verdict"), device.software
    ? `No GPU was measured: WebGPU runs on a ${deviceName(device)} here, so these are figures of your processor.`
    : `Measured on ${device.description}.`);
  const barsOf = (rows) => rows.map(({ label, rate }) => ({ name: label, value: rate.median, low: rate.min, high: rate.max, strong: true }));
  bars.product.set([...barsOf(products), ...(peak ? [{ name: "multiply-adds alone, the peak", value: peak }] : [])]);
  bars.memory.set(copy ? barsOf([copy]) : []);
}

async function run() {
  for (const button of Object.values(buttons)) button.disabled = true;
  setStatus(status, "running", "Multiply-adds alone");
  report = { ...report, copy: null, products: [], peak: await multiplyAddPeak(await navigator.gpu.requestAdapter()), share: null };
  showReport();
  for (const name of await call("check.names(ow.device())")) {
    setStatus(status, "running", name === "copy" ? "Copying 16 MB" : `Products of ${name.replace("matmul-", "")} rows`);
    const result = await call("await check.measure(ow.device(), name)", { name });
    if (name === "copy") report.copy = result;
    else report.products.push(result);
    report.share = report.products.length ? best() / report.peak : null;
    showReport();
  }
  report.measured = new Date().toISOString();
  setStatus(status, "done", `Checked ${deviceName(report.device)}`);
  buttons.picture.disabled = buttons.download.disabled = false;
}

/** The report's bars on a canvas, for the card. */
function drawCard() {
  const canvas = create("canvas", { width: 1120, height: 720 });
  const context = canvas.getContext("2d");
  const rows = report.products.map(({ label, rate }) => [label, rate.median]);
  rows.push(["Multiply-adds alone", report.peak]);
  const most = Math.max(...rows.map(([, value]) => value));
  const height = 440 / rows.length;
  const text = (words, x, y, font, token) => {
    context.font = font;
    context.fillStyle = color(token);
    context.fillText(words, x, y);
  };
  context.fillStyle = color("sheet");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = "middle";
  text(`${short(report.copy.rate.median)} GB/s`, 40, 74, '700 64px "JetBrains Mono", monospace', "ink");
  text("copied within the device", 40, 134, "400 26px Archivo, system-ui, sans-serif", "ink-soft");
  text(`${Math.round(100 * report.share)}%`, 620, 74, '700 64px "JetBrains Mono", monospace', "ink");
  text("of the peak, in matrix products", 620, 134, "400 26px Archivo, system-ui, sans-serif", "ink-soft");
  rows.forEach(([label, value], index) => {
    const y = 220 + index * height;
    text(label, 40, y, "500 26px Archivo, system-ui, sans-serif", "ink");
    text(`${short(value)} GFLOP/s`, 840, y, '500 26px "JetBrains Mono", monospace', "ink");
    context.fillStyle = color(index < rows.length - 1 ? "route" : "line-strong");
    context.fillRect(40, y + 24, (1040 * value) / most, Math.min(26, height - 64));
  });
  return canvas;
}

async function main() {
  buttons.run.addEventListener("click", async () => {
    try {
      await run();
    } catch (error) {
      setStatus(status, "failed", error.message);
    }
    buttons.run.disabled = false;
  });
  buttons.download.addEventListener("click", () => {
    download("optirs-web-check.json", `${JSON.stringify({ ...report, ...adapterFacts() }, null, 2)}\n`, "application/json");
  });
  pictureButton(buttons.picture, () => ({
    name: "check",
    title: deviceName(report.device),
    canvases: [drawCard()],
    figures: [["products by", report.family], ["library", report.version], ["on", report.measured.slice(0, 10)]],
  }));
  if (await explainWithoutWebgpu(find("#stage"))) return setStatus(status, "idle", "Cannot check: no GPU available");
  adapter = await navigator.gpu.requestAdapter();
  showAdapter();
  worker = new PythonWorker({ programs: ["bench", "check"] });
  const { device } = await loadPython(worker, status);
  report = { library: "optirs-web", version: site.version, browser: navigator.userAgent, device, family: await call("check.family(ow.device())"), copy: null, products: [] };
  setStatus(status, "idle", `Ready: ${deviceName(device)}`);
  buttons.run.disabled = false;
}

await main();

// Tint, the shader compiler of Chrome, over shaders from standard input: each line is JSON, [name, WGSL, whether
// to make a pipeline]. For each that it refuses it prints a line of JSON, [name, line, column, message]; and last
// {version, shaders}. Dawn's null backend has no driver behind it: the module is parsed and validated, and the pipeline
// with its limits and its layout. What is experimental is allowed to shaders that enable it, and to no others.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { create } from "webgpu";

const FEATURES = ["shader-f16", "subgroups"];
const instances = [create(["backend=null"]), create(["backend=null", "enable-dawn-features=allow_unsafe_apis"])];
const [standard, experimental] = await Promise.all(instances.map(async (gpu, number) => {
  const adapter = await gpu.requestAdapter();
  const requiredFeatures = [...FEATURES, ...(number ? ["chromium-experimental-subgroup-matrix"] : [])];
  return adapter.requestDevice({ requiredFeatures });
}));

function report(name, line, column, message) {
  console.log(JSON.stringify([name, line, column, message]));
}

async function look(name, code, fits) {
  const device = code.startsWith("enable chromium_experimental") ? experimental : standard;
  device.pushErrorScope("validation");
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter((one) => one.type === "error");
  const succeeded = errors.length === 0;
  if (succeeded && fits) device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
  const failed = await device.popErrorScope();
  for (const one of errors) report(name, one.lineNum, one.linePos, one.message);
  if (failed && succeeded) report(name, 1, 1, failed.message);
}

let shaders = 0;
for await (const line of createInterface({ input: process.stdin })) {
  await look(...JSON.parse(line));
  shaders += 1;
}
const { version } = JSON.parse(readFileSync(new URL("node_modules/webgpu/package.json", import.meta.url)));
console.log(JSON.stringify({ version, shaders }));
process.exit(0); // Dawn's threads would keep it

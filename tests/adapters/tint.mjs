// Tint, the shader compiler of Chrome, over shaders from standard input: each line is JSON, [name, WGSL, whether
// to make a pipeline]. For each that it refuses it prints a line of JSON, [name, line, column, message]; and last
// {version, shaders}. Dawn's null backend has no driver behind it: the module is parsed and validated, and the pipeline
// with its limits and its layout.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { create } from "webgpu";

const gpu = create(["backend=null"]);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: ["shader-f16", "subgroups"] });

function report(name, line, column, message) {
  console.log(JSON.stringify([name, line, column, message]));
}

async function look(name, code, fits) {
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

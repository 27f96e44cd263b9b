// Trains on and on, and tells what is alive. The page has calls.js.

import { startProgram } from "./pyodide.js";

let pyodide;
let program;
let training;

export async function start() {
  ({ pyodide, program } = await startProgram("soak", "training"));
  pyodide._module.enable_pyproxy_allocation_tracing();
  training = await program.create();
}

export const run = (steps) => training.run_many(steps, 100);

export async function alive() {
  const held = await program.alive();
  const { buffers, destroyed } = globalThis.calls();
  return {
    ...JSON.parse(held),
    gpuBuffers: buffers - destroyed,
    wasmBytes: pyodide._module.HEAPU8.length,
    jsObjectsInPython: pyodide._module._hiwire_num_refs(),
    pythonProxiesInJs: pyodide._module.pyproxy_alloc_map.size,
  };
}

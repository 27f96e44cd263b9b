// From Pyodide being ready to the first loss, phase by phase, in milliseconds.

import { installWheel, startPyodide, writeProgram } from "./pyodide.js";

export async function startup() {
  const phases = {};
  const timed = async (name, call) => {
    const start = performance.now();
    const result = await call();
    phases[name] = performance.now() - start;
    return result;
  };
  const pyodide = await startPyodide();
  await writeProgram(pyodide, "training"); // what the page itself brings
  await timed("fetch and unpack the wheel", () => installWheel(pyodide));
  const program = await timed("import", () => pyodide.pyimport("training"));
  await timed("device", () => program.open_device());
  const training = await timed("model and batch", () => program.Training());
  const loss = await timed("first step, recorded", () => training.run());
  const value = await timed("loss", () => loss.item_async());
  if (!Number.isFinite(value)) throw new Error(`the loss is ${value}`);
  return phases;
}

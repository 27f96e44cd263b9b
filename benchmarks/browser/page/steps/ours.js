// This library, in Pyodide: ../steps.py.

import { ADAM } from "../problem.js";
import { installWheel, startPyodide, writeProgram } from "../pyodide.js";

const programs = {};

async function start(wheel) {
  const pyodide = await startPyodide();
  await installWheel(pyodide, wheel);
  for (const program of ["steps", "models"]) await writeProgram(pyodide, program);
  pyodide.FS.writeFile("gpt.py", await (await fetch("/gpt.py")).text());
  return pyodide.pyimport("steps");
}

// `wheel` is the server's name for it; Python starts once for each.
export async function create(kind, problem, wheel) {
  const program = await (programs[wheel] ??= start(wheel));
  const side = await program.create(kind, problem, ADAM);
  return {
    run: (steps) => side.run(steps),
    async result() {
      const bytes = await side.result();
      const { buffer, byteOffset, byteLength } = bytes.toJs();
      bytes.destroy();
      return new Float32Array(buffer, byteOffset, byteLength / 4);
    },
  };
}

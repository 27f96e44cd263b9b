// This library, in Pyodide.

import { ADAM } from "./problem.js";
import { startProgram } from "./pyodide.js";

let started; // Python starts once a page

export async function create(problem) {
  const { program } = await (started ??= startProgram("ours"));
  const side = await program.create(problem, ADAM);
  return {
    enqueue: (steps) => side.enqueue(steps),
    wait: () => side.wait(),
    async parameters() {
      const tensors = await side.parameters();
      try {
        return tensors.toJs().map((bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4));
      } finally {
        tensors.destroy();
      }
    },
  };
}

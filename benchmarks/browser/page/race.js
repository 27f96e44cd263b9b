// The sides of the comparison, in one page. Each enqueues some steps and then waits once.

import { difference, expected, problem } from "./problem.js";

const SIDES = {
  ours: async (given) => (await import("./ours.js")).create(given),
  "jax-js jit": async (given) => (await import("./jax.js")).createJit(given),
  "jax-js eager": async (given) => (await import("./jax.js")).createEager(given),
  "TF.js": async (given) => (await import("./tfjs.js")).createDefault(given),
  "TF.js batched": async (given) => (await import("./tfjs.js")).createBatched(given),
};

const given = {};
const sides = {};

export async function prepare({ names, tensors, size }) {
  Object.assign(given, problem(tensors, size));
  for (const name of names) sides[name] = { taken: 0, ...(await SIDES[name](given)) };
}

// Milliseconds per step: until everything is enqueued, and until everything has run.
export async function turn(name, steps) {
  const side = sides[name];
  await new Promise((resolve) => setTimeout(resolve, 20)); // what the side before left to the event loop
  const start = performance.now();
  await side.enqueue(steps);
  const enqueued = performance.now();
  await side.wait();
  const end = performance.now();
  side.taken += steps;
  return { total: (end - start) / steps, host: (enqueued - start) / steps };
}

// How far each side's parameters are from the first side's, and from float64: the largest relative differences.
export async function compare() {
  const results = {};
  let first;
  for (const [name, { taken, parameters }] of Object.entries(sides)) {
    const computed = await parameters();
    first ??= computed;
    results[name] = { fromFirst: difference(computed, first), fromFloat64: difference(computed, expected(given, taken)) };
  }
  return results;
}

export async function adapterName() {
  const { info } = await navigator.gpu.requestAdapter();
  return [info.vendor, info.architecture, info.description].filter(Boolean).join(" ");
}

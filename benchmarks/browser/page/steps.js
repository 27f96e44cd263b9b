// The sides of a case, in one page. Each takes some steps and then reads one number of the last one's result, which is
// what it is waited for by: the loss, or the first element of a product.

import { problem } from "./steps/problems.js";

const SIDES = {
  ours: async (...given) => (await import("./steps/ours.js")).create(...given, "wheel"),
  before: async (...given) => (await import("./steps/ours.js")).create(...given, "before"),
  "jax-js": async (...given) => (await import("./steps/jax.js")).create(...given),
  "TF.js": async (...given) => (await import("./steps/tfjs.js")).create(...given),
  borch: async (...given) => (await import("./steps/borch.js")).create(...given),
};
const CHECKED = 3;
const PATIENCE = 60_000; // milliseconds for a step: a side that takes longer is not asked for more

let sides;

// Tells why sides cannot run the case, by their names.
export async function prepare(kind, options, names) {
  const made = problem(kind, options);
  const errors = {};
  sides = {};
  for (const name of names) {
    try {
      sides[name] = await SIDES[name](kind, made);
    } catch (error) {
      if (name === names[0]) throw error;
      errors[name] = String(error);
    }
  }
  return errors;
}

// Milliseconds per step, with the wait at the end.
export async function turn(name, steps) {
  await new Promise((resolve) => setTimeout(resolve, 20)); // what the side before left to the event loop
  const start = performance.now();
  await sides[name].run(steps);
  return (performance.now() - start) / steps;
}

// The first steps of each side, one by one: their milliseconds, and how far what they computed is from the first side's.
// After a second step that takes longer than a minute there are no more.
export async function warmUp(kind) {
  const results = {};
  let first;
  for (const [name, side] of Object.entries(sides)) {
    const milliseconds = [];
    const values = [];
    let error = "";
    try {
      for (let step = 0; step < CHECKED && !(step > 1 && milliseconds.at(-1) > PATIENCE); step++) {
        const start = performance.now();
        values.push(await side.run(1));
        milliseconds.push(performance.now() - start);
      }
    } catch (raised) {
      if (!first) throw raised;
      error = String(raised);
    }
    const computed = error ? [] : kind === "product" ? await side.result() : values;
    first ??= computed;
    const slow = milliseconds.at(-1) > PATIENCE;
    results[name] = { milliseconds, values, error, slow, difference: difference(computed, first.slice(0, computed.length)) };
  }
  return results;
}

// The largest difference as a share of the largest value; infinite where one is not finite.
function difference(computed, expected) {
  if (computed.length !== expected.length) return Infinity;
  let [largest, worst] = [0, computed.length > 0 ? 0 : Infinity];
  for (let i = 0; i < expected.length; i++) {
    largest = Math.max(largest, Math.abs(expected[i]));
    worst = Math.max(worst, Math.abs(computed[i] - expected[i]));
  }
  return Number.isFinite(worst / largest) ? worst / largest : Infinity;
}

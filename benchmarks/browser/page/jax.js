// jax-js: the Adam of its optax, on the public API, as one function.

import * as jax from "/npm/@jax-js/jax/dist/index.js";
import { ADAM } from "./problem.js";

export { jax };

const { numpy: np, tree } = jax;

export async function start() {
  await jax.init("webgpu");
  jax.defaultDevice("webgpu");
}

// What `adam` starts from, for parameters of `values` and `shape`.
export const initialState = (parameters) => ({
  count: np.array(0, { dtype: np.uint32 }),
  parameters: parameters.map(({ values, shape }) => np.array(values, { shape })),
  means: parameters.map(({ shape }) => np.zeros(shape)),
  squares: parameters.map(({ shape }) => np.zeros(shape)),
});

// Takes over its arguments, as every function of jax-js does, so that their memory is free for the results.
export function adam({ count, parameters, means, squares }, gradients) {
  count = count.add(1);
  const correction = (beta) => np.reciprocal(np.subtract(1, np.power(beta, count.ref.astype(np.float32))));
  const [correction1, correction2] = [correction(ADAM.beta1), correction(ADAM.beta2)];
  const next = { count, parameters: [], means: [], squares: [] };
  gradients.forEach((gradient, i) => {
    const mean = gradient.ref.mul(1 - ADAM.beta1).add(means[i].mul(ADAM.beta1));
    const square = gradient.ref.mul(gradient).mul(1 - ADAM.beta2).add(squares[i].mul(ADAM.beta2));
    const root = np.sqrt(square.ref.mul(correction2.ref)).add(ADAM.eps);
    const update = mean.ref.mul(correction1.ref).div(root).mul(-ADAM.lr);
    next.parameters.push(parameters[i].add(update));
    next.means.push(mean);
    next.squares.push(square);
  });
  correction1.dispose();
  correction2.dispose();
  return next;
}

async function create(problem, update, settle) {
  await start();
  const gradients = problem.gradients.map((values) => np.array(values));
  let state = initialState(problem.parameters.map((values) => ({ values, shape: [values.length] })));
  return {
    async enqueue(steps) {
      for (let step = 0; step < steps; step++) {
        state = update(state, tree.ref(gradients));
        const settled = settle(state);
        if (settled) await settled;
      }
    },
    wait: () => jax.getWebGPUDevice().queue.onSubmittedWorkDone(),
    parameters: () => Promise.all(state.parameters.map((tensor) => tensor.ref.data())),
  };
}

// Work is lazy, and a step costs more the more of them are pending. Asking for the buffer of one result dispatches all of
// a jitted step at once, without waiting: of what was tried, the fastest.
export const createJit = (problem) =>
  create(problem, jax.jit(adam), (state) => void state.parameters[0].ref.gpuBufferSync());

// Each result is pending by itself, and intermediate buffers are free again only after a dispatch: waiting for each step,
// as the documentation recommends, is the fastest.
export const createEager = (problem) => create(problem, adam, jax.blockUntilReady);

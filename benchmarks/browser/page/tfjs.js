// TensorFlow.js: its own Adam, in production mode.

import { ADAM } from "./problem.js";

const SCRIPTS = ["/npm/@tensorflow/tfjs/dist/tf.min.js", "/npm/@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.min.js"];
const BATCH = "WEBGPU_DEFERRED_SUBMIT_BATCH_SIZE";

let loaded;
let created = 0;

export const load = () => (loaded ??= loadScripts());

async function loadScripts() {
  for (const source of SCRIPTS) {
    await new Promise((resolve, reject) => {
      document.head.append(Object.assign(document.createElement("script"), { src: source, onload: resolve, onerror: reject }));
    });
  }
  tf.enableProdMode();
  await tf.setBackend("webgpu");
  await tf.ready();
}

// `batch` is how many dispatches go into one submit.
async function create(problem, batch) {
  await load();
  const prefix = `side${created++}`;
  const variables = problem.parameters.map((values, i) => tf.variable(tf.tensor1d(values), true, `${prefix}/${i}`));
  const gradients = Object.fromEntries(variables.map(({ name }, i) => [name, tf.tensor1d(problem.gradients[i])]));
  const optimizer = tf.train.adam(ADAM.lr, ADAM.beta1, ADAM.beta2, ADAM.eps);
  return {
    enqueue(steps) {
      tf.env().set(BATCH, batch);
      for (let step = 0; step < steps; step++) optimizer.applyGradients(gradients);
    },
    // The last dispatches may still lie in an open pass.
    async wait() {
      const backend = tf.backend();
      backend.endComputePassEncoder();
      if (backend.commandEncoder) backend.submitQueue();
      await backend.queue.onSubmittedWorkDone();
    },
    parameters: () => Promise.all(variables.map((variable) => variable.data())),
  };
}

export const createDefault = (problem) => create(problem, 15); // as the library sets it
export const createBatched = (problem) => create(problem, 280); // about one submit a step

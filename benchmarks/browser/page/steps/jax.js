// jax-js: every case is one jitted function.

import { adam, initialState, jax, start } from "../jax.js";

const { nn, numpy: np, tree } = jax;

const array = ({ values, shape }) => np.array(values, { shape });

// Dispatches what is pending for a result without waiting: see createJit of ../jax.js.
const dispatch = (result) => void result.ref.gpuBufferSync();

function product({ size, a, b }) {
  const [left, right] = [a, b].map((values) => array({ values, shape: [size, size] }));
  const multiply = jax.jit((x, y) => np.matmul(x, y));
  let result;
  return {
    async run(steps) {
      for (let step = 0; step < steps; step++) {
        result?.dispose();
        result = multiply(left.ref, right.ref);
        dispatch(result);
      }
      return (await result.ref.slice(0, 0).data())[0];
    },
    result: () => result.ref.data(),
  };
}

function crossEntropy(parameters, inputs, targets) {
  let values = inputs;
  for (let i = 0; i < parameters.length; i += 2) {
    if (i > 0) values = nn.relu(values);
    values = np.matmul(values, parameters[i]).add(parameters[i + 1]);
  }
  return nn.logSoftmax(values).mul(targets).sum(1).mean().neg();
}

function mlp(problem) {
  const [inputs, targets] = [problem.inputs, problem.targets].map(array);
  const step = jax.jit((state, inputs, targets) => {
    const [loss, gradients] = jax.valueAndGrad(crossEntropy)(tree.ref(state.parameters), inputs, targets);
    return [adam(state, gradients), loss];
  });
  let state = initialState(problem.parameters);
  return {
    async run(steps) {
      let loss;
      for (let taken = 0; taken < steps; taken++) {
        loss?.dispose();
        [state, loss] = step(state, inputs.ref, targets.ref);
        dispatch(loss);
      }
      return (await loss.data())[0];
    },
  };
}

const KINDS = { product, mlp };

export async function create(kind, problem) {
  await start();
  return KINDS[kind](problem);
}

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

const crossEntropy = (values, targets) => nn.logSoftmax(values).mul(targets).sum(1).mean().neg();

// Steps of Adam over the parameters of a problem: `lossOf(parameters, inputs, targets)` takes over all of them.
function training(problem, lossOf, inputs) {
  const targets = array(problem.targets);
  const step = jax.jit((state, inputs, targets) => {
    const [loss, gradients] = jax.valueAndGrad(lossOf)(tree.ref(state.parameters), inputs, targets);
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

function mlp(problem) {
  const lossOf = (parameters, inputs, targets) => {
    let values = inputs;
    for (let i = 0; i < parameters.length; i += 2) {
      if (i > 0) values = nn.relu(values);
      values = np.matmul(values, parameters[i]).add(parameters[i + 1]);
    }
    return crossEntropy(values, targets);
  };
  return training(problem, lossOf, array(problem.inputs));
}

// Over some axes, with a scale and an offset for each channel or column, shaped so that they spread.
function normalized(values, axes, scale, offset) {
  const centered = values.ref.sub(np.mean(values, axes, { keepdims: true }));
  const variance = np.mean(np.square(centered.ref), axes, { keepdims: true });
  return centered.mul(np.reciprocal(np.sqrt(variance.add(1e-5)))).mul(scale).add(offset);
}

const dense = (values, weight, bias) => np.matmul(values, np.transpose(weight)).add(bias);

function resnet(problem) {
  const lossOf = (parameters, inputs, targets) => {
    const next = parameters.values();
    const take = () => next.next().value;
    const convolve = (values, stride) => {
      const weight = take();
      const edge = weight.shape[2] >> 1;
      const convolved = jax.lax.conv(values, weight, [stride, stride], [[edge, edge], [edge, edge]]);
      const [scale, offset] = [take(), take()].map((parameter) => parameter.reshape([1, -1, 1, 1]));
      return normalized(convolved, [0, 2, 3], scale, offset);
    };
    let values = nn.relu(convolve(inputs, 1));
    for (const [, , stride] of problem.blocks) {
      const inner = convolve(nn.relu(convolve(values.ref, stride)), 1);
      values = nn.relu(inner.add(stride === 1 ? values : convolve(values, stride)));
    }
    return crossEntropy(dense(np.mean(values, [2, 3]), take(), take()), targets);
  };
  return training(problem, lossOf, array(problem.inputs));
}

function gpt(problem) {
  const { codes, layers, heads } = problem;
  const [batch, length] = codes.shape;
  const [characters, width] = problem.parameters[0].shape;
  const lossOf = (parameters, inputs, targets) => {
    const next = parameters.values();
    const take = () => next.next().value;
    const split = (values) => values.reshape([batch, length, heads, width / heads]);
    // A product with rows of 0 and 1: indexing has no gradient.
    let values = np.matmul(nn.oneHot(inputs, characters), take()).add(take()).reshape([batch * length, width]);
    for (let layer = 0; layer < layers; layer++) {
      const projected = dense(normalized(values.ref, -1, take(), take()), take(), take());
      const [query, key, value] = np.split(projected, 3, 1).map(split);
      const attended = nn.dotProductAttention(query, key, value, { isCausal: true }).reshape([batch * length, width]);
      values = values.add(dense(attended, take(), take()));
      const inner = nn.gelu(dense(normalized(values.ref, -1, take(), take()), take(), take()));
      values = values.add(dense(inner, take(), take()));
    }
    return crossEntropy(dense(normalized(values, -1, take(), take()), take(), take()), targets);
  };
  return training(problem, lossOf, np.array(codes.values, { shape: codes.shape, dtype: np.int32 }));
}

const KINDS = { product, mlp, resnet, gpt };

export async function create(kind, problem) {
  await start();
  return KINDS[kind](problem);
}

// TensorFlow.js: `tf.matMul`, and `tf.train.adam` with `minimize`.

import { ADAM } from "../problem.js";
import { load } from "../tfjs.js";

const tensor = ({ values, shape }) => tf.tensor(values, shape);

function product({ size, a, b }) {
  const [left, right] = [a, b].map((values) => tensor({ values, shape: [size, size] }));
  let result;
  return {
    async run(steps) {
      for (let step = 0; step < steps; step++) {
        result?.dispose();
        result = tf.matMul(left, right);
      }
      const element = tf.slice(result, [0, 0], [1, 1]);
      const [value] = await element.data();
      element.dispose();
      return value;
    },
    result: () => result.data(),
  };
}

// Steps of Adam over the parameters of a problem: `lossOf` makes the loss of them, in their order.
function training(variables, lossOf) {
  const optimizer = tf.train.adam(ADAM.lr, ADAM.beta1, ADAM.beta2, ADAM.eps);
  return {
    async run(steps) {
      let loss;
      for (let step = 0; step < steps; step++) {
        loss?.dispose();
        loss = optimizer.minimize(lossOf, true, variables);
      }
      const [value] = await loss.data();
      loss.dispose();
      return value;
    },
  };
}

const variables = (parameters) => parameters.map((parameter) => tf.variable(tensor(parameter)));

const dense = (a, b, bias, transposeB = false) => tf.fused.matMul({ a, b, bias, transposeB }); // as tf.layers.dense

function mlp(problem) {
  const [inputs, targets] = [problem.inputs, problem.targets].map(tensor);
  const weights = variables(problem.parameters);
  return training(weights, () => {
    let values = inputs;
    for (let i = 0; i < weights.length; i += 2) {
      if (i > 0) values = tf.relu(values);
      values = dense(values, weights[i], weights[i + 1]);
    }
    return tf.losses.softmaxCrossEntropy(targets, values);
  });
}

// Images with the channels last, filters (height, width, inputs, outputs).
function resnet(problem) {
  const inputs = tf.transpose(tensor(problem.inputs), [0, 2, 3, 1]);
  const targets = tensor(problem.targets);
  const weights = problem.parameters.map((parameter) => {
    const values = tensor(parameter);
    return tf.variable(parameter.shape.length === 4 ? tf.transpose(values, [2, 3, 1, 0]) : values);
  });
  return training(weights, () => {
    const next = weights.values();
    const take = () => next.next().value;
    const convolve = (values, stride) => {
      const weight = take();
      const convolved = tf.conv2d(values, weight, stride, weight.shape[0] >> 1); // "same" would pad unlike the others
      const { mean, variance } = tf.moments(convolved, [0, 1, 2]);
      const [scale, offset] = [take(), take()];
      return tf.batchNorm(convolved, mean, variance, offset, scale, 1e-5);
    };
    let values = tf.relu(convolve(inputs, 1));
    for (const [, , stride] of problem.blocks) {
      const inner = convolve(tf.relu(convolve(values, stride)), 1);
      values = tf.relu(tf.add(inner, stride === 1 ? values : convolve(values, stride)));
    }
    return tf.losses.softmaxCrossEntropy(targets, dense(tf.mean(values, [1, 2]), take(), take(), true));
  });
}

function layerNorm(values, scale, offset) {
  const { mean, variance } = tf.moments(values, -1, true);
  return tf.add(tf.mul(tf.mul(tf.sub(values, mean), tf.rsqrt(tf.add(variance, 1e-5))), scale), offset);
}

const gelu = (x) =>
  tf.mul(tf.mul(x, 0.5), tf.add(tf.tanh(tf.mul(tf.add(x, tf.mul(tf.mul(tf.square(x), x), 0.044715)), Math.sqrt(2 / Math.PI))), 1));

function gpt({ codes, targets, parameters, layers, heads }) {
  const [batch, length] = codes.shape;
  const width = parameters[0].shape[1];
  const part = width / heads;
  const [characters, wanted] = [tf.tensor(codes.values, codes.shape, "int32"), tensor(targets)];
  const future = tf.sub(tf.linalg.bandPart(tf.ones([length, length]), -1, 0), 1).mul(1e30);
  const weights = variables(parameters);
  return training(weights, () => {
    const next = weights.values();
    const take = () => next.next().value;
    const split = (values) => tf.transpose(tf.reshape(values, [batch, length, heads, part]), [0, 2, 1, 3]);
    let values = tf.reshape(tf.add(tf.gather(take(), characters), take()), [batch * length, width]);
    for (let layer = 0; layer < layers; layer++) {
      const projected = dense(layerNorm(values, take(), take()), take(), take(), true);
      const [query, key, value] = tf.split(projected, 3, 1).map(split);
      const scores = tf.add(tf.mul(tf.matMul(query, key, false, true), 1 / Math.sqrt(part)), future);
      const attended = tf.reshape(tf.transpose(tf.matMul(tf.softmax(scores), value), [0, 2, 1, 3]), [batch * length, width]);
      values = tf.add(values, dense(attended, take(), take(), true));
      const inner = gelu(dense(layerNorm(values, take(), take()), take(), take(), true));
      values = tf.add(values, dense(inner, take(), take(), true));
    }
    return tf.losses.softmaxCrossEntropy(wanted, dense(layerNorm(values, take(), take()), take(), take(), true));
  });
}

const KINDS = { product, mlp, resnet, gpt };

export async function create(kind, problem) {
  await load();
  return KINDS[kind](problem);
}

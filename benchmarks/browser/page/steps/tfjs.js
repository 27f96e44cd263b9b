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

function mlp(problem) {
  const [inputs, targets] = [problem.inputs, problem.targets].map(tensor);
  const variables = problem.parameters.map((parameter) => tf.variable(tensor(parameter)));
  const optimizer = tf.train.adam(ADAM.lr, ADAM.beta1, ADAM.beta2, ADAM.eps);
  const crossEntropy = () => {
    let values = inputs;
    for (let i = 0; i < variables.length; i += 2) {
      if (i > 0) values = tf.relu(values);
      values = tf.fused.matMul({ a: values, b: variables[i], bias: variables[i + 1] }); // as tf.layers.dense
    }
    return tf.losses.softmaxCrossEntropy(targets, values);
  };
  return {
    async run(steps) {
      let loss;
      for (let step = 0; step < steps; step++) {
        loss?.dispose();
        loss = optimizer.minimize(crossEntropy, true, variables);
      }
      const [value] = await loss.data();
      loss.dispose();
      return value;
    },
  };
}

const KINDS = { product, mlp };

export async function create(kind, problem) {
  await load();
  return KINDS[kind](problem);
}

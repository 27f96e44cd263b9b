// borch: the TypeScript library in the wheel `pyborch`. Every case is one recorded step.

import { ADAM } from "../problem.js";

const borch = await import("/borch.js"); // a server's file, which is there when this side is asked for
const { Tensor, compiled, keepAlive, nn, optim, scope } = borch;

const tensor = ({ values, shape }, options) => keepAlive(Tensor.from(values, shape, options));

// Kernels that it tunes for a step are chosen after the first call.
async function runs(step, steps) {
  await step.settle();
  let result;
  for (let taken = 0; taken < steps; taken++) result = await step.call();
  return result;
}

// Not recorded: a replay leaves out what cannot change between two calls.
function product({ size, a, b }) {
  const [left, right] = [a, b].map((values) => tensor({ values, shape: [size, size] }));
  return {
    run: (steps) =>
      scope(() => {
        let result;
        for (let step = 0; step < steps; step++) result = left.matmul(right);
        return result.select(0, 0).select(0, 0).item();
      }),
    result: () => scope(() => left.matmul(right).toArray()),
  };
}

function mlp(problem) {
  const inputs = tensor(problem.inputs);
  const labels = tensor({ values: problem.labels, shape: [problem.labels.length] }, { dtype: "int64" });
  const layers = [];
  for (let i = 0; i < problem.parameters.length; i += 2) layers.push(linear(...problem.parameters.slice(i, i + 2)));
  const model = new nn.Sequential(layers.flatMap((layer, i) => (i > 0 ? [new nn.ReLU(), layer] : [layer])));
  const optimizer = new optim.Adam(model.parameters(), ADAM.lr, [ADAM.beta1, ADAM.beta2], ADAM.eps);
  const crossEntropy = new nn.CrossEntropyLoss();
  const step = compiled(() => {
    optimizer.zeroGrad();
    const loss = crossEntropy.call(model.call(inputs), labels);
    loss.backward();
    optimizer.step();
    return loss;
  });
  return { run: async (steps) => (await runs(step, steps)).item() };
}

// A layer keeps its weights as (outputs, inputs), as torch does.
function linear(weight, bias) {
  const [inputs, outputs] = weight.shape;
  const layer = new nn.Linear(inputs, outputs);
  const transposed = Float32Array.from(weight.values, (_, i) => weight.values[(i % inputs) * outputs + Math.floor(i / inputs)]);
  borch.noGrad(() => {
    layer.weight.copyFrom(Tensor.from(transposed, [outputs, inputs]));
    layer.bias.copyFrom(Tensor.from(bias.values, bias.shape));
  });
  return layer;
}

const KINDS = { product, mlp };

export async function create(kind, problem) {
  await borch.init();
  return KINDS[kind](problem);
}

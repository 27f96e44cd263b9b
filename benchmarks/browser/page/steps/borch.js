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

// Steps of Adam over a model, from inputs to the labels of a problem.
function training(problem, model, inputs) {
  const labels = tensor({ values: problem.labels, shape: [problem.labels.length] }, { dtype: "int64" });
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

function mlp(problem) {
  const layers = [];
  for (let i = 0; i < problem.parameters.length; i += 2) layers.push(linear(...problem.parameters.slice(i, i + 2)));
  const model = new nn.Sequential(layers.flatMap((layer, i) => (i > 0 ? [new nn.ReLU(), layer] : [layer])));
  return training(problem, model, tensor(problem.inputs));
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

const convolution = (inputs, outputs, side, stride) =>
  new nn.Sequential([
    new nn.Conv2d(inputs, outputs, side, stride, side >> 1, 1, 1, false),
    new nn.BatchNorm2d(outputs, 1e-5, 0.1, true, false),
  ]);

class Residual extends nn.Module {
  constructor(inputs, outputs, stride) {
    super();
    this.first = convolution(inputs, outputs, 3, stride);
    this.second = convolution(outputs, outputs, 3, 1);
    this.shortcut = stride === 1 ? null : convolution(inputs, outputs, 1, stride);
  }

  forward(x) {
    const inner = this.second.call(this.first.call(x).relu());
    return inner.add(this.shortcut ? this.shortcut.call(x) : x).relu();
  }
}

function resnet(problem) {
  const model = new nn.Sequential([
    convolution(3, problem.blocks[0][0], 3, 1),
    new nn.ReLU(),
    ...problem.blocks.map((block) => new Residual(...block)),
    new nn.AdaptiveAvgPool2d(1),
    new nn.Flatten(),
    new nn.Linear(problem.blocks.at(-1)[1], 10),
  ]);
  return training(problem, filled(model, problem.parameters), tensor(problem.inputs));
}

class Block extends nn.Module {
  constructor(width, heads) {
    super();
    this.norm1 = new nn.LayerNorm(width);
    this.project = new nn.Linear(width, 3 * width);
    this.output = new nn.Linear(width, width);
    this.norm2 = new nn.LayerNorm(width);
    this.network = new nn.Sequential([new nn.Linear(width, 4 * width), new nn.GELU("tanh"), new nn.Linear(4 * width, width)]);
    this.heads = heads;
  }

  forward(x) {
    const [batch, length, width] = x.shape;
    const projected = this.project.call(this.norm1.call(x)).reshape([batch, length, 3, this.heads, width / this.heads]);
    const [query, key, value] = [0, 1, 2].map((i) => projected.select(2, i).permute([0, 2, 1, 3]));
    const attended = nn.functional.scaledDotProductAttention(query, key, value, null, 0, true);
    const joined = x.add(this.output.call(attended.permute([0, 2, 1, 3]).reshape([batch, length, width])));
    return joined.add(this.network.call(this.norm2.call(joined)));
  }
}

class Gpt extends nn.Module {
  constructor({ parameters, codes, layers, heads }) {
    super();
    const [characters, width] = parameters[0].shape;
    this.character = new nn.Embedding(characters, width);
    this.position = new nn.Embedding(codes.shape[1], width);
    this.blocks = new nn.Sequential(Array.from({ length: layers }, () => new Block(width, heads)));
    this.norm = new nn.LayerNorm(width);
    this.head = new nn.Linear(width, characters);
  }

  forward(codes) {
    const logits = this.head.call(this.norm.call(this.blocks.call(this.character.call(codes).add(this.position.weight))));
    return logits.reshape([codes.size, logits.shape[2]]);
  }
}

const gpt = (problem) => training(problem, filled(new Gpt(problem), problem.parameters), tensor(problem.codes, { dtype: "int64" }));

// A model with its parameters from a problem, in their order.
function filled(model, parameters) {
  const own = model.parameters();
  if (own.length !== parameters.length) throw new Error(`${own.length} parameters, not ${parameters.length}`);
  borch.noGrad(() => parameters.forEach(({ values, shape }, i) => own[i].copyFrom(Tensor.from(values, shape))));
  return model;
}

const KINDS = { product, mlp, resnet, gpt };

export async function create(kind, problem) {
  await borch.init();
  return KINDS[kind](problem);
}

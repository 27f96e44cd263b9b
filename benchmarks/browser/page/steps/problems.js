// The data of each kind of case, the same for every library: what `CASES` of steps.py names by `kind`.

// Uniform in [-bound, bound), the same in every run (a 32-bit linear congruential generator).
function uniform(size, bound, seed) {
  let state = seed;
  return Float32Array.from({ length: size }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 31 - 1) * bound;
  });
}

// Labels as rows of 0 and 1, for the libraries whose cross entropy takes those.
function rows(labels, classes) {
  const values = new Float32Array(labels.length * classes);
  labels.forEach((label, row) => (values[row * classes + label] = 1));
  return { values, shape: [labels.length, classes] };
}

const integers = (size, below, seed) => Int32Array.from(uniform(size, 1, seed), (value) => Math.floor(((value + 1) / 2) * below));

// Parameters by their shapes, as torch orders them: uniform within 1 / sqrt(inputs), or all the same where a shape comes
// with a value.
const parameters = (shapes) =>
  shapes.map(([shape, value], i) => {
    const size = shape.reduce((product, length) => product * length, 1);
    const inputs = size / shape[0];
    return { values: value === undefined ? uniform(size, 1 / Math.sqrt(inputs), 10 + i) : new Float32Array(size).fill(value), shape };
  });

const norm = (width) => [[[width], 1], [[width], 0]];
const linear = (inputs, outputs) => [[[outputs, inputs]], [[outputs], 0]];
const convolution = (inputs, outputs, side) => [[[outputs, inputs, side, side]], ...norm(outputs)];

// The blocks of a ResNet-18 at CIFAR's shapes: channels in and out, stride.
const BLOCKS = [[64, 64, 1], [64, 64, 1], [64, 128, 2], [128, 128, 1], [128, 256, 2], [256, 256, 1], [256, 512, 2], [512, 512, 1]];

const KINDS = {
  // Two square matrices.
  product: ({ size }) => ({ size, a: uniform(size * size, 1, 1), b: uniform(size * size, 1, 2) }),

  // A batch, and a perceptron: weights (inputs, outputs) and biases in turn. `targets` are the labels as rows of 0 and 1.
  mlp({ sizes, batch }) {
    const classes = sizes.at(-1);
    const labels = integers(batch, classes, 3);
    const parameters = sizes.slice(1).flatMap((outputs, i) => {
      const weight = uniform(sizes[i] * outputs, 1 / Math.sqrt(sizes[i]), 10 + i);
      return [
        { values: weight, shape: [sizes[i], outputs] },
        { values: new Float32Array(outputs), shape: [outputs] },
      ];
    });
    const inputs = { values: uniform(batch * sizes[0], 1, 4), shape: [batch, sizes[0]] };
    return { inputs, labels, targets: rows(labels, classes), parameters };
  },

  // Images (batch, 3, side, side), and a ResNet-18, or other blocks, with a stem of 3 x 3 (He et al. 2015, arXiv:1512.03385). Its norms keep no
  // running statistics.
  resnet({ batch, side = 32, blocks = BLOCKS }) {
    const labels = integers(batch, 10, 3);
    const shapes = blocks.flatMap(([inputs, outputs, stride]) => [
      ...convolution(inputs, outputs, 3),
      ...convolution(outputs, outputs, 3),
      ...(stride === 1 ? [] : convolution(inputs, outputs, 1)),
    ]);
    return {
      inputs: { values: uniform(batch * 3 * side * side, 1, 4), shape: [batch, 3, side, side] },
      labels,
      targets: rows(labels, 10),
      parameters: parameters([...convolution(3, blocks[0][0], 3), ...shapes, ...linear(blocks.at(-1)[1], 10)]),
      blocks,
    };
  },

  // Characters (batch, length) and the next ones, and the GPT of examples/gpt.py.
  gpt({ batch, length, width, layers, heads, characters }) {
    const codes = integers(batch * length, characters, 4);
    const labels = integers(batch * length, characters, 3);
    const block = [
      ...norm(width),
      [[3 * width, width]],
      [[3 * width], 0],
      ...linear(width, width),
      ...norm(width),
      ...linear(width, 4 * width),
      ...linear(4 * width, width),
    ];
    const shapes = [...Array(layers).fill(block).flat(), ...norm(width), ...linear(width, characters)];
    return {
      codes: { values: codes, shape: [batch, length] },
      labels,
      targets: rows(labels, characters),
      parameters: parameters([[[characters, width]], [[length, width]], ...shapes]),
      layers,
      heads,
    };
  },
};

export const problem = (kind, options) => KINDS[kind](options);

// The data of each kind of case, the same for every library: what `CASES` of steps.py names by `kind`.

// Uniform in [-bound, bound), the same in every run (a 32-bit linear congruential generator).
function uniform(size, bound, seed) {
  let state = seed;
  return Float32Array.from({ length: size }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 31 - 1) * bound;
  });
}

const KINDS = {
  // Two square matrices.
  product: ({ size }) => ({ size, a: uniform(size * size, 1, 1), b: uniform(size * size, 1, 2) }),

  // A batch, and a perceptron: weights (inputs, outputs) and biases in turn. `targets` are the labels as rows of 0 and 1.
  mlp({ sizes, batch }) {
    const classes = sizes.at(-1);
    const labels = Int32Array.from(uniform(batch, 1, 3), (value) => Math.floor(((value + 1) / 2) * classes));
    const targets = new Float32Array(batch * classes);
    labels.forEach((label, row) => (targets[row * classes + label] = 1));
    const parameters = sizes.slice(1).flatMap((outputs, i) => {
      const weight = uniform(sizes[i] * outputs, 1 / Math.sqrt(sizes[i]), 10 + i);
      return [
        { values: weight, shape: [sizes[i], outputs] },
        { values: new Float32Array(outputs), shape: [outputs] },
      ];
    });
    const inputs = { values: uniform(batch * sizes[0], 1, 4), shape: [batch, sizes[0]] };
    return { inputs, labels, targets: { values: targets, shape: [batch, classes] }, parameters };
  },
};

export const problem = (kind, options) => KINDS[kind](options);

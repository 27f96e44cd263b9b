// What every side is given: the same parameters and gradients, and what Adam makes of them.

export const ADAM = { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8 };

// Gradients span magnitudes down to Adam's epsilon, so that an update depends on all of the formula.
export function problem(tensors, size) {
  const parameters = [];
  const gradients = [];
  for (let i = 0; i < tensors; i++) {
    parameters.push(Float32Array.from({ length: size }, (_, j) => 1 + 0.25 * Math.cos(i + j)));
    gradients.push(Float32Array.from({ length: size }, (_, j) => Math.sin(i + j + 1) * 10 ** -(j % 9)));
  }
  return { parameters, gradients };
}

// With gradients that stay the same, the bias-corrected moments are g and g² at every step.
export function expected({ parameters, gradients }, steps) {
  return parameters.map((tensor, i) =>
    Float64Array.from(tensor, (p, j) => {
      const g = gradients[i][j];
      return p - (steps * ADAM.lr * g) / (Math.abs(g) + ADAM.eps);
    }),
  );
}

// The largest relative difference between two lists of tensors; infinite where shapes differ or a value is not finite.
export function difference(first, second) {
  let worst = first.length === second.length ? 0 : Infinity;
  for (let i = 0; i < first.length && worst < Infinity; i++) {
    if (first[i].length !== second[i].length) return Infinity;
    for (let j = 0; j < first[i].length; j++) {
      const relative = Math.abs(first[i][j] - second[i][j]) / Math.abs(second[i][j]);
      if (!(relative <= worst)) worst = Number.isFinite(relative) ? relative : Infinity;
    }
  }
  return worst;
}

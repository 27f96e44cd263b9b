"""Inputs for the table of operations, and derivatives of its references: in float64, by NumPy alone and by torch."""

import math
from functools import partial
from itertools import product

import numpy as np


def _apart(first, rng, shape):
    """Any two of them by a half or more."""
    size = math.prod(shape)
    return (rng.permutation(size).reshape(shape) - size // 2) * 0.5 + first


def _integers(least, most):
    return lambda rng, shape: rng.integers(least, most, shape, dtype=np.int32)


# Away from kinks and ends by more than twice the step of `gradcheck`.
DOMAINS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.uniform(0.5, 2.5, shape),
    "not small": lambda rng, shape: rng.uniform(0.7, 2.0, shape) * rng.choice([-1.0, 1.0], shape),
    "share": lambda rng, shape: rng.uniform(0.15, 0.85, shape),
    "low": lambda rng, shape: rng.integers(-8, 0, shape) / 2 - 0.1,
    "high": lambda rng, shape: rng.integers(0, 8, shape) / 2 + 0.35,
    "distinct": partial(_apart, 0.125),
    "between": partial(_apart, 0.375),
    "halves": lambda rng, shape: rng.integers(-1, 2, shape) / 2,
    "signs": _integers(-1, 2),
    "below 3": _integers(0, 3),
    "below 5": _integers(0, 5),
}


def make_sources(case, variant):
    """The arrays that go to the device, float32 or int32."""
    rng = np.random.default_rng([len(case.name), len(str(variant))])
    made = [DOMAINS[domain](rng, shape) for domain, shape in zip(case.domains, variant.sources, strict=True)]
    return [np.asarray(array, array.dtype if np.issubdtype(array.dtype, np.integer) else np.float32) for array in made]


def is_real(array):
    """It can have a gradient."""
    return array.dtype.kind == "f"


def random_like(arrays, seed):
    """Numbers of sizes from 1/2 to 3/2 and either sign, in float32: gradients that go in, and directions."""
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.uniform(0.5, 1.5, array.shape) * rng.choice([-1.0, 1.0], array.shape), np.float32)
        for array in arrays
    ]


def evaluate(case, variant, sources):
    """The reference at float64 sources."""
    with np.errstate(all="ignore"):
        return np.asarray(case.reference(*variant.walked(sources)))


# Weights of f(x - 2h), f(x - h), f(x + h), f(x + 2h), over 12 h: the derivative, to h⁴/30 of the fifth.
STENCIL = {-2: 1.0, -1: -8.0, 1: 8.0, 2: -1.0}
STEP = 2.0**-10  # of first derivatives, which then err by about 1e-12
SECOND_STEP = 2.0**-9  # of second ones, by about 1e-10


class Differences:
    """Derivatives of <weights, reference(sources)> by central differences."""

    def __init__(self, case, variant, sources, weights):
        self.case, self.variant = case, variant
        self.sources = [source.astype(np.float64) if is_real(source) else source for source in sources]
        self.real = [source for source in self.sources if is_real(source)]
        self.weights = weights

    def _at(self, *moves):
        """The value where each direction, an array for each real source, is gone by so much."""
        moved = list(self.real)
        for directions, by in moves:
            moved = [array + by * direction for array, direction in zip(moved, directions, strict=True)]
        steps = iter(moved)
        return evaluate(
            self.case, self.variant, [next(steps) if is_real(source) else source for source in self.sources]
        )

    def gradients(self):
        """With respect to each real source, element by element."""
        result = []
        for number, source in enumerate(self.real):
            gradient = np.zeros_like(source)
            for index in np.ndindex(source.shape):
                unit = [np.zeros_like(values) for values in self.real]
                unit[number][index] = 1.0
                gradient[index] = (self.weights * self.along(unit)).sum()
            result.append(gradient)
        return result

    def along(self, directions):
        """The derivative of the reference itself."""
        return sum(factor * self._at((directions, step * STEP)) for step, factor in STENCIL.items()) / (12 * STEP)

    def twice_along(self, first, second):
        """The second derivative, once along each."""
        total = 0.0
        for (a, left), (b, right) in product(STENCIL.items(), STENCIL.items()):
            value = self._at((first, a * SECOND_STEP), (second, b * SECOND_STEP))
            total += left * right * (self.weights * value).sum()
        return total / (12 * SECOND_STEP) ** 2


def torch_derivatives(torch, case, variant, sources, weights, tangents):
    """Values, gradients, and those of <gradients, tangents> by the sources and by the weights, in float64."""
    leaves = [torch.tensor(source, dtype=torch.float64 if is_real(source) else torch.int64) for source in sources]
    real = [leaf.requires_grad_() for leaf in leaves if leaf.is_floating_point()]
    cotangent = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    value = case.torch(*variant.walked(leaves))
    if not real or case.why_not:
        return value, [], [], None
    slopes = torch.autograd.grad(value, real, cotangent, create_graph=True)
    along = sum((slope * torch.tensor(v, dtype=torch.float64)).sum() for slope, v in zip(slopes, tangents, strict=True))
    inputs = [*real, cotangent]
    result = [None] * len(inputs)
    if along.requires_grad:  # torch's gradient of sign is a constant
        result = torch.autograd.grad(along, inputs, allow_unused=True)
    second = [torch.zeros_like(of) if grad is None else grad for grad, of in zip(result, inputs, strict=True)]
    return value, slopes, second[:-1], second[-1]

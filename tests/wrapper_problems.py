"""The problem of the tests of optimizers around others: some tensors, and a loss whose Hessian is diagonal."""

import numpy as np
from optimizer_cases.driven_cases import Problem

import optirs_web as ow

__all__ = [
    "CURVATURES",
    "SHAPES",
    "STARTS",
    "given_gradients",
    "in_float64",
    "make_closure",
    "make_problem",
    "parameters",
]

SHAPES = [(1,), (257,), (7, 40)]
_RNG = np.random.default_rng(0)
STARTS = [_RNG.standard_normal(shape) for shape in SHAPES]
CURVATURES = [_RNG.uniform(0.5, 2.0, shape) for shape in SHAPES]


def parameters(device, starts=STARTS):
    return [ow.Parameter(start.astype(np.float32), device=device) for start in starts]


def make_problem(params, device):
    return Problem(params, [ow.tensor(curvature.astype(np.float32), device=device) for curvature in CURVATURES])


def make_closure(params, device, optimum=0.0):
    """The loss and its gradients."""
    return make_problem(params, device).closure(optimum)


def given_gradients(steps, seed=1):
    rng = np.random.default_rng(seed)
    return [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(steps)]


def in_float64():
    """Return the values of the devices' float32 parameters and curvatures, in float64."""
    return [[array.astype(np.float32).astype(np.float64) for array in inputs] for inputs in (STARTS, CURVATURES)]

"""Random parameters and gradients for optimizers, how far apart two results are, and what a step costs."""

import numpy as np

import optirs_web as ow

__all__ = ["assert_close", "make_problem", "relative_error", "replay_cost"]


def make_problem(shapes, steps):
    """Parameters, and for each step a gradient for each of them."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    grads = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(steps)]
    return params, grads


def relative_error(got, want):
    """The largest difference, of the largest magnitude."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    difference = np.abs(got - want).max()
    return float(difference / np.abs(want).max()) if difference else 0.0


def assert_close(got, want, tolerance):
    error = relative_error(got, want)
    assert error <= tolerance, f"{error:.3g} > {tolerance:g}"


def replay_cost(optimizer, params, device):
    """Return the device's counts of the second of two steps that are recorded, with constant gradients of ones."""
    for param in params:
        param.grad = np.ones(param.shape, np.float32)
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    before = device.stats.copy()
    step()
    return device.stats - before

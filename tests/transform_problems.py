"""Helpers of the tests of gradient transforms: parameters and gradients, tolerances, and counts of a recorded step."""

import numpy as np

import optirs_web as ow

__all__ = ["SHAPES", "assert_close", "cost_of_replay", "make_problem", "of_one"]

SHAPES = [(1,), (3,), (255,), (257,), (16, 65), (3, 4, 5)]


def make_problem(steps=7, shapes=SHAPES, factor=3.0):
    """Parameters, and for each step a gradient for each of them, `factor` times as large."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    grads = [[(factor * rng.standard_normal(shape)).astype(np.float32) for shape in shapes] for _ in range(steps)]
    return params, grads


def assert_close(got, want, tolerance=5e-6):
    """Each array, relative to its largest magnitude."""
    for values, other in zip(got, want, strict=True):
        assert np.abs(np.asarray(values) - other).max() <= tolerance * np.abs(other).max()


def cost_of_replay(device, step, *arguments):
    """The dispatches of the second call of a compiled step: one submit, with nothing moved, bound or built."""
    recorded = ow.compile(step, device=device)
    recorded(*arguments)
    before = device.stats.copy()
    recorded(*arguments)
    cost = device.stats - before
    assert (cost.submits, cost.bytes_up, cost.bytes_down, cost.bind_groups, cost.pipelines) == (1, 0, 0, 0, 0)
    return cost.dispatches


def of_one(device, transforms, optimizer="SGD", size=1, **options):
    """A parameter of zeros, and an optimizer of it with the learning rate 1."""
    param = ow.Parameter(np.zeros(size, np.float32), device=device)
    return param, getattr(ow.optim, optimizer)([param], **{"lr": 1.0, **options}, transforms=transforms)

"""K-FAC, with the same statistics in each step: inputs and gradients of outputs of random numbers.

The last of them are the smallest, so that the damped factors have conditions of up to 40: their inverses are accurate
enough for 5e-6 of the parameters.
"""

from random import Random

from .case import Case

__all__ = ["CASES"]

# Of few sizes, since each costs 50 dispatches a step.
SHAPES = ((4, 3), (4,), (9, 4), (9, 8), (9,), (4, 3), (4,))
TURNED = ((32, 2), (2,), (2, 33))


def given(batch, layers):
    """A callable that gives statistics of layers of these inputs and outputs."""

    def rows(random, columns):
        return [[random.gauss(0.0, 1.0) / (1 + column) for column in range(columns)] for _ in range(batch)]

    random = Random(1)
    pairs = [(rows(random, inputs), rows(random, outputs)) for inputs, outputs in layers]
    return lambda: pairs


CASES = [
    Case(
        "kfac",
        "KFAC",
        {"statistics": given(40, [(3, 4), (4, 9), (8, 9), (3, 4)])},
        "kfac.kfac",
        shapes=SHAPES,
    ),
    Case(
        "kfac maximize",
        "KFAC",
        {
            "lr": 0.01,
            "momentum": 0.0,
            "weight_decay": 0.1,
            "damping": 0.3,
            "stat_decay": 0.5,
            "kl_clip": None,
            "update_freq": 3,
            "in_first": True,
            "maximize": True,
            "statistics": given(60, [(32, 2), (2, 33)]),
        },
        "kfac.kfac",
        shapes=TURNED,
    ),
]

"""Parameters that are tables, and random gradients of some of their rows."""

import numpy as np
from optimizer_cases.sparse_cases import TABLES

__all__ = ["entries", "make_problem"]

STEPS = 100
ROWS_ARE_TOUCHED = [1, 0, 100, 1, 0, 3]
"""Entries of a step, where 1 is one row, 100 are all rows several times, and 0 is a gradient without entries."""


def entries(rng, count, shape):
    """Rows, often named several times, some of them -1, and values."""
    rows = rng.integers(-1, shape[0], count).astype(np.int32)
    return rows, rng.standard_normal((count, *shape[1:])).astype(np.float32)


def make_problem(shapes=TABLES, steps=STEPS):
    """Parameters, and for each step a pair for each of them; the last one sometimes has none."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    grads = [
        [
            None
            if number == len(shapes) - 1 and step % 7 == 3
            else entries(rng, ROWS_ARE_TOUCHED[(step + number) % len(ROWS_ARE_TOUCHED)], shape)
            for number, shape in enumerate(shapes)
        ]
        for step in range(steps)
    ]
    return params, grads

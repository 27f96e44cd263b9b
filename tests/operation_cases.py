"""The table of differentiable operations: one row for each way that an operation can be called.

A row holds the operation as its users call it, a float64 NumPy reference, and the shapes of its inputs.
Forward values are compared with the reference, gradients with its central differences. The table is read in
the browser too, where there may be no NumPy: only the references use it.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import optirs_web as ow

try:
    import numpy as np
except ImportError:
    np = None


class Case(NamedTuple):
    """One call: `ours` takes tensors, `reference` float64 arrays; `positive` keeps inputs away from 0."""

    name: str
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    positive: bool = False


def log_softmax(x, axis=-1):
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


LABELS = [0, 4, 2, 2, 1, 3, 0]


def cross_entropy(x):
    return -log_softmax(x)[np.arange(len(LABELS)), LABELS].mean()


CASES = [
    Case("add", operator.add, operator.add, [(3, 5), (3, 5)]),
    Case("add a row", operator.add, operator.add, [(4, 3, 5), (5,)]),
    Case("add a column and a row", operator.add, operator.add, [(3, 1), (1, 5)]),
    Case("add a middle axis", operator.add, operator.add, [(2, 3, 4), (2, 1, 4)]),
    Case("add a scalar tensor", operator.add, operator.add, [(3, 5), ()]),
    Case("add a number", lambda a: 1.5 + a, lambda a: 1.5 + a, [(3, 5)]),
    Case("add to itself", lambda a: a + a, lambda a: a + a, [(7,)]),
    Case("subtract", operator.sub, operator.sub, [(3, 5), (5,)]),
    Case("subtract from a number", lambda a: 2 - a, lambda a: 2 - a, [(3, 5)]),
    Case("multiply", operator.mul, operator.mul, [(3, 5), (3, 1)]),
    Case("multiply by itself", lambda a: a * a, lambda a: a * a, [(3, 5)]),
    Case("divide", operator.truediv, operator.truediv, [(3, 5), (5,)], positive=True),
    Case("divide a number", lambda a: 2 / a, lambda a: 2 / a, [(3, 5)], positive=True),
    Case("negate", operator.neg, operator.neg, [(3, 5)]),
    Case("exp", lambda a: a.exp(), lambda a: np.exp(a), [(3, 5)]),
    Case("relu", lambda a: a.relu(), lambda a: np.maximum(a, 0), [(30, 50)]),
    Case("matmul", operator.matmul, operator.matmul, [(3, 4), (4, 5)]),
    Case("matmul over tiles", operator.matmul, operator.matmul, [(33, 65), (65, 34)]),
    Case("matmul of a vector's shape", operator.matmul, operator.matmul, [(1, 7), (7, 1)]),
    Case("matmul with its transpose", lambda a: a @ a.T, lambda a: a @ a.T, [(5, 3)]),
    Case("sum", lambda a: a.sum(), lambda a: a.sum(), [(3, 4, 5)]),
    Case("sum of one axis", lambda a: a.sum(axis=0), lambda a: a.sum(axis=0), [(3, 4, 5)]),
    Case("sum of a middle axis", lambda a: a.sum(axis=1), lambda a: a.sum(axis=1), [(3, 4, 5)]),
    Case(
        "sum of the last axis",
        lambda a: a.sum(axis=-1, keepdims=True),
        lambda a: a.sum(-1, keepdims=True),
        [(3, 4)],
    ),
    Case("sum of two axes apart", lambda a: a.sum(axis=(0, 2)), lambda a: a.sum(axis=(0, 2)), [(3, 4, 5)]),
    Case("sum of a scalar", lambda a: a.sum(), lambda a: a.sum(), [()]),
    Case("mean", lambda a: a.mean(), lambda a: a.mean(), [(3, 4, 5)]),
    Case("mean of one axis", lambda a: a.mean(axis=1), lambda a: a.mean(axis=1), [(3, 4, 5)]),
    Case("reshape", lambda a: a.reshape(5, -1) * a.reshape(5, 12), lambda a: a.reshape(5, 12) ** 2, [(3, 4, 5)]),
    Case("transpose", lambda a: a.transpose(0, 2), lambda a: a.swapaxes(0, 2), [(3, 4, 5)]),
    Case("permute", lambda a: a.permute(1, 2, 0), lambda a: a.transpose(1, 2, 0), [(3, 4, 5)]),
    Case("T", lambda a: a.T, lambda a: a.T, [(3, 4)]),
    Case("log_softmax", lambda a: a.log_softmax(), log_softmax, [(3, 70)]),
    Case("log_softmax over rows", lambda a: a.log_softmax(axis=0), lambda a: log_softmax(a, 0), [(3, 4)]),
    Case("cross_entropy", lambda a: ow.cross_entropy(a, LABELS), cross_entropy, [(7, 5)]),
]

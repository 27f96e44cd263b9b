"""Attention, over so many queries at once that the scores of all pairs are never stored.

Scores and weights of pairs are (..., others, owned): a call owns the rows of its result, queries or keys, which meet
the rows of the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "TRACED"]

_LOWEST = np.finfo(np.float32).min
_LARGEST = np.finfo(np.float32).max


class _Pairs:
    """The operands of a call, and the scores of its pairs.

    Args:
        xp: the array library.
        p: parameters of the kernel.
        own: of the owned rows, (outer, batch, rows, depth).
        other: of the rows that these meet.
        own_values: of the gradient of the result, where `own` are queries; of values, where they are keys.
        other_values: the same of the rows that these meet.
        mask: of pairs.
        products: outer times batch.
    """

    def __init__(self, xp: Any, p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array,
                 mask: Array, products: int) -> None:  # fmt: skip
        self.xp, self.p = xp, p
        rows, others, value_depth = p["own_rows"], p["other_rows"], p["value_depth"]
        self.batch = (products // p["batch_inner"], p["batch_inner"])
        self.own = self._matrices("own", xp.floats(own), (rows, p["depth"]))
        self.other = self._matrices("other", xp.floats(other), (others, p["depth"]))
        self.other_values = self._matrices("other_values", xp.floats(other_values), (others, value_depth))
        if not p["adds_values"]:
            self.own_values = self._matrices("own_values", xp.floats(own_values), (rows, value_depth))
        if p["mask_kind"]:
            elements = xp.words(mask) if p["mask_kind"] == 1 else xp.floats(mask)
            self.mask = self._matrices("mask", elements, (rows, others), ("own", "other"))

    def _matrices(
        self, name: str, array: Array, shape: tuple[int, int], axes: tuple[str, str] = ("row", "column")
    ) -> Array:
        """Return (outer, batch, *shape); in JAX 1 for an axis of the batch along which all are the same."""
        strides = [self.p[f"{name}_{axis}"] for axis in ("outer", "batch", *axes)]
        start = self.p[f"{name}_start"]
        return self.xp.strided(array, start, (*self.batch, *shape), strides, broadcast_axes=2)

    def result(self, array: Array, *shape: int) -> Array:
        """Return the elements of a result, (outer, batch, *shape)."""
        size = self.batch[0] * self.batch[1] * math.prod(shape)
        return array[:size].reshape(*self.batch, *shape)

    def scores(self, block: Any) -> Array:
        """Return the scores of a block of pairs, -inf where hidden."""
        xp, p = self.xp, self.p
        # Keys are on the left in any case: NumPy's library may round the product of the transposed operands otherwise.
        if p["owns_queries"]:
            scores = block.other(self.other) @ block.own(self.own).swapaxes(-1, -2)
        else:
            scores = (block.own(self.own) @ block.other(self.other).swapaxes(-1, -2)).swapaxes(-1, -2)
        scores *= np.float32(p["scale"])
        if p["mask_kind"]:
            mask = block.pairs(self.mask).swapaxes(-1, -2)
            is_hidden = mask == 0
            if p["mask_kind"] == 2:
                scores += mask
                is_hidden = mask <= _LOWEST
            scores = xp.masked(scores, is_hidden, -np.inf)
        if p["is_causal"]:
            scores = block.without_later(scores, owns_queries=bool(p["owns_queries"]))
        return scores


def _attention(
    xp: Any, p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array,
    result: Array, log_sums: Array,
) -> Results:  # fmt: skip
    if p["first_column"]:
        return result, log_sums  # the dispatch of the first column computed all columns
    rows = p["own_rows"]
    of_results, of_sums = xp.floats(result), xp.floats(log_sums)
    pairs = _Pairs(xp, p, own, other, own_values, other_values, mask, of_sums.size // rows)
    target = pairs.result(of_results, rows, p["columns"])

    def values(block: Any) -> Results:
        weights = pairs.scores(block)
        maxima = xp.maximum(weights.max(axis=-2, initial=-np.inf), _LOWEST)
        weights -= maxima[..., None, :]
        weights = xp.into(weights, xp.exp, weights)
        total = xp.column_sums(weights)
        is_empty = total == 0
        products = weights.swapaxes(-1, -2) @ block.other(pairs.other_values)
        divisors = xp.where(is_empty, np.float32(1), total)[..., None]
        sums = xp.where(is_empty, _LARGEST, maxima + xp.log(total))
        return xp.into(block.own(target), xp.divide, products, divisors), sums

    new_values, new_sums = xp.over_pairs(p, pairs.batch, values, target, pairs.result(of_sums, rows))
    return xp.put(of_results, new_values), xp.put(of_sums, new_sums)


def _attention_grad(
    xp: Any, p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array,
    result: Array, of_queries: Array,
) -> Results:  # fmt: skip
    if p["first_column"]:
        return (result,)
    owns_queries, of_results, known = p["owns_queries"], xp.floats(result), xp.floats(of_queries)
    queries = p["own_rows"] if owns_queries else p["other_rows"]
    pairs = _Pairs(xp, p, own, other, own_values, other_values, mask, known.size // (2 * queries))
    target = pairs.result(of_results, p["own_rows"], p["columns"])
    known = pairs.result(known, queries, 2)
    may_have_nan = xp.may_have_nan(known)

    def gradient(block: Any) -> Results:
        """Return the gradient by the weights, which are rounded as they were when they added up to 1."""
        numbers = block.own(known) if owns_queries else block.other(known)
        log_sums = numbers[..., None, :, 0] if owns_queries else numbers[..., :1]
        weights = pairs.scores(block)
        is_hidden = weights == -np.inf if may_have_nan else None
        weights -= log_sums
        weights = xp.into(weights, xp.exp, weights)
        if is_hidden is not None:  # from a query with NaN
            weights = xp.masked(weights, is_hidden, 0)
        if not p["adds_values"]:
            of_own, of_other = block.own(pairs.own_values), block.other(pairs.other_values)
            if owns_queries:
                weights *= xp.product_less(of_other, of_own, numbers[..., 1])
            else:  # in the order in which the weights are stored
                weights *= xp.product_less(of_own, of_other, numbers[..., 1]).swapaxes(-1, -2)
        added = block.other(pairs.other_values if p["adds_values"] else pairs.other)
        return (xp.into(block.own(target), xp.matmul, weights.swapaxes(-1, -2), added),)

    (gradients,) = xp.over_pairs(p, pairs.batch, gradient, target)
    if p["result_scale"] != 1:
        gradients *= np.float32(p["result_scale"])
    return (xp.put(of_results, gradients),)


def _attention_delta(xp: Any, p: Parameters, grad: Array, values: Array, log_sums: Array, of_queries: Array) -> Results:
    queries, rows, columns, inner = p["queries"], p["rows"], p["columns"], p["batch_inner"]
    shape = (queries // (rows * inner), inner, rows, columns)
    strides = [p[name] for name in ("outer_stride", "batch_stride", "row_stride", "column_stride")]
    g = xp.strided(xp.floats(grad), p["start"], shape, strides)
    deltas = xp.vecdot(g, xp.floats(values)[: queries * columns].reshape(shape)).reshape(-1)
    return (xp.put(xp.floats(of_queries), xp.stack([xp.floats(log_sums)[:queries], deltas], axis=1)),)


ROUTINES: dict[str, Callable[..., Results]] = {
    "attention": _attention,
    "attention_delta": _attention_delta,
    "attention_grad": _attention_grad,
}

_STARTS = frozenset(f"{name}_start" for name in ("own", "other", "own_values", "other_values", "mask"))

TRACED: dict[str, frozenset[str]] = {
    "attention": _STARTS,
    "attention_delta": frozenset({"start"}),
    "attention_grad": _STARTS,
}

"""Attention in NumPy: products by BLAS, over so many queries at once that the scores of all pairs are never stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .numpy_rows import column_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]

_SCORES = 1 << 16
"""Scores that are stored at once."""

_CAUSAL_ROWS = 32
"""Rows computed together under a causal mask: with fewer, fewer scores are computed that are hidden."""

_LOWEST = np.finfo(np.float32).min
_LARGEST = np.finfo(np.float32).max


def _floats(raw: Array) -> Array:
    return raw.view(np.float32)


def _matrices(p: Parameters, name: str, raw: Array, shape: tuple[int, ...], steps: tuple[str, str]) -> Array:
    """(products, rows, columns), where they lie."""
    strides = [4 * p[f"{name}_{step}"] for step in ("outer", "batch", *steps)]
    return as_strided(raw[p[f"{name}_start"] :], shape, strides)


class _Tiles:
    """The scores of the pairs of a call, by blocks of the owned rows."""

    def __init__(self, p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array,
                 products: int) -> None:  # fmt: skip
        self.p = p
        rows, others = p["own_rows"], p["other_rows"]
        self.batch = (products // p["batch_inner"], p["batch_inner"])
        place = ("row", "column")
        self.own = _matrices(p, "own", _floats(own), (*self.batch, rows, p["depth"]), place)
        self.other = _matrices(p, "other", _floats(other), (*self.batch, others, p["depth"]), place)
        shape = (*self.batch, others, p["value_depth"])
        self.other_values = _matrices(p, "other_values", _floats(other_values), shape, place)
        if not p["adds_values"]:
            shape = (*self.batch, rows, p["value_depth"])
            self.own_values = _matrices(p, "own_values", _floats(own_values), shape, place)
        if p["mask_kind"]:
            words = mask.view(np.uint32) if p["mask_kind"] == 1 else _floats(mask)
            self.mask = _matrices(p, "mask", words, (*self.batch, rows, others), ("own", "other"))

    def blocks(self) -> Iterator[tuple[tuple[slice, slice, slice], slice]]:
        """Which products and owned rows to take together, and which of the others they meet."""
        rows, others = self.p["own_rows"], self.p["other_rows"]
        step = max(1, min(rows, _SCORES // max(1, others), _CAUSAL_ROWS if self.p["is_causal"] else rows))
        inner = max(1, min(self.batch[1], _SCORES // max(1, step * others)))
        outer = max(1, _SCORES // max(1, step * others * self.batch[1])) if inner == self.batch[1] else 1
        for a, b, first in itertools.product(
            range(0, self.batch[0], outer), range(0, self.batch[1], inner), range(0, rows, step)
        ):
            end = min(first + step, rows)
            met = slice(0, others)
            if self.p["is_causal"]:
                met = slice(0, min(others, end)) if self.p["owns_queries"] else slice(min(first, others), others)
            yield (slice(a, a + outer), slice(b, b + inner), slice(first, end)), met

    def scores(self, at: tuple[slice, slice, slice], met: slice) -> Array:
        """Return the scores of pairs, (..., others, owned), -inf where hidden."""
        p = self.p
        scores: Array = self.other[(*at[:2], met)] @ self.own[at].swapaxes(-1, -2)
        scores *= np.float32(p["scale"])
        if p["mask_kind"]:
            mask = self.mask[(*at, met)].swapaxes(-1, -2)
            if p["mask_kind"] == 1:
                scores[mask == 0] = -np.inf
            else:
                scores += mask
                scores[mask <= _LOWEST] = -np.inf
        if p["is_causal"]:
            rows = scores.shape[-1]
            # Pairs are hidden only with others of the same row numbers: the last of those met, or the first.
            corner = scores[..., at[2], :] if p["owns_queries"] else scores[..., :rows, :]
            hidden = _hidden(rows, owns_queries=bool(p["owns_queries"]))[: corner.shape[-2]]
            np.copyto(corner, -np.inf, where=hidden)
        return scores

    def weights(self, at: tuple[slice, slice, slice], met: slice, known: Array) -> Array:
        """Return the weights of pairs, (..., others, owned), by the logarithms of the queries' sums, (..., rows).

        The scores are rounded as they were for these sums, so that the weights of a query add up to 1.
        """
        weights, log_sums = self.scores(at, met), known[..., 0]
        hidden = weights == -np.inf if np.isnan(log_sums).any() else None
        weights -= log_sums[..., None, :] if self.p["owns_queries"] else log_sums[..., None]
        np.exp(weights, out=weights)
        if hidden is not None:  # from a query with NaN
            weights[hidden] = 0
        return weights

    def slopes(self, at: tuple[slice, slice, slice], met: slice, known: Array) -> Array:
        """Return dO Vᵀ - rowsum(dO O) of pairs, (..., others, owned), which times the weights is dS."""
        owns_queries = self.p["owns_queries"]
        own = _with_column(self.own_values[at], -known[..., 1] if owns_queries else 1.0)
        other = _with_column(self.other_values[(*at[:2], met)], 1.0 if owns_queries else -known[..., 1])
        slopes: Array = other @ own.swapaxes(-1, -2)
        return slopes


@cache
def _hidden(rows: int, *, owns_queries: bool) -> Array:
    """Return a mask, (others, owned), of the pairs of `rows` queries and as many keys where the key is later."""
    is_later = ~np.tri(rows, dtype=bool)
    return np.ascontiguousarray(is_later.T) if owns_queries else is_later


def _with_column(matrices: Array, column: Array | float) -> Array:
    """Return matrices with a further column, by which a product of two such adds a number for each row."""
    extended = np.empty((*matrices.shape[:-1], matrices.shape[-1] + 1), np.float32)
    extended[..., :-1] = matrices
    extended[..., -1] = column
    return extended


def _attention(
    p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array, result: Array,
    log_sums: Array,
) -> None:  # fmt: skip
    if p["first_column"]:
        return
    rows, columns = p["own_rows"], p["columns"]
    products = _floats(log_sums).size // rows
    tiles = _Tiles(p, own, other, own_values, other_values, mask, products)
    target = _floats(result)[: products * rows * columns].reshape(*tiles.batch, rows, columns)
    sums = _floats(log_sums).reshape(*tiles.batch, rows)
    for at, met in tiles.blocks():
        weights = tiles.scores(at, met)
        maxima = np.maximum(np.maximum.reduce(weights, axis=-2), _LOWEST)
        weights -= maxima[..., None, :]
        np.exp(weights, out=weights)
        total = column_sums(weights.reshape(-1, *weights.shape[-2:])).reshape(maxima.shape).astype(np.float32)
        is_empty = total == 0
        values = weights.swapaxes(-1, -2) @ tiles.other_values[(*at[:2], met)]
        np.divide(values, np.where(is_empty, 1, total)[..., None], out=target[at])
        sums[at] = np.where(is_empty, _LARGEST, maxima + np.log(total))


def _attention_grad(
    p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array, result: Array,
    of_queries: Array,
) -> None:  # fmt: skip
    if p["first_column"]:
        return
    rows, columns = p["own_rows"], p["columns"]
    queries = rows if p["owns_queries"] else p["other_rows"]
    products = _floats(of_queries).size // (2 * queries)
    tiles = _Tiles(p, own, other, own_values, other_values, mask, products)
    target = _floats(result)[: products * rows * columns].reshape(*tiles.batch, rows, columns)
    known = _floats(of_queries).reshape(*tiles.batch, queries, 2)
    for at, met in tiles.blocks():
        of_both = known[at] if p["owns_queries"] else known[(*at[:2], met)]
        weights = tiles.weights(at, met, of_both)
        if not p["adds_values"]:
            weights *= tiles.slopes(at, met, of_both)
        added = (tiles.other_values if p["adds_values"] else tiles.other)[(*at[:2], met)]
        np.matmul(weights.swapaxes(-1, -2), added, out=target[at])
    if p["result_scale"] != 1:
        target *= np.float32(p["result_scale"])


def _attention_delta(p: Parameters, grad: Array, values: Array, log_sums: Array, of_queries: Array) -> None:
    queries, rows, columns, inner = p["queries"], p["rows"], p["columns"], p["batch_inner"]
    shape = (queries // (rows * inner), inner, rows, columns)
    strides = [4 * p[name] for name in ("outer_stride", "batch_stride", "row_stride", "column_stride")]
    g = as_strided(_floats(grad)[p["start"] :], shape, strides)
    known = _floats(of_queries)[: 2 * queries].reshape(*shape[:3], 2)
    known[..., 0] = _floats(log_sums)[:queries].reshape(shape[:3])
    known[..., 1] = np.vecdot(g, _floats(values)[: queries * columns].reshape(shape))


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "attention": _attention,
    "attention_delta": _attention_delta,
    "attention_grad": _attention_grad,
}

"""Attention in JAX: over so many queries at once that the scores of all pairs are never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .xla_arrays import floats, put, repeated_once, strided, words

__all__ = ["REPLACEMENTS", "TRACED"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_SCORES = 1 << 22
"""Scores that are stored at once."""

_LOWEST = np.finfo(np.float32).min
_LARGEST = np.finfo(np.float32).max


def _matrices(p: Parameters, name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """(outer, batch, rows, columns); 1 for an axis of the batch along which they are the same."""
    strides = [p[f"{name}_{step}"] for step in ("outer", "batch", "row", "column")]
    return strided(array, p[f"{name}_start"], (*repeated_once(shape[:2], strides[:2]), *shape[2:]), strides)


class _Pairs:
    """The operands of a call, and the scores of the pairs of some owned rows."""

    def __init__(self, p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array,
                 products: int) -> None:  # fmt: skip
        self.p = p
        rows, others = p["own_rows"], p["other_rows"]
        self.batch = (products // p["batch_inner"], p["batch_inner"])
        self.own = _matrices(p, "own", floats(own), (*self.batch, rows, p["depth"]))
        self.other = _matrices(p, "other", floats(other), (*self.batch, others, p["depth"]))
        self.other_values = _matrices(p, "other_values", floats(other_values), (*self.batch, others, p["value_depth"]))
        self.own_values = self.mask = None
        if not p["adds_values"]:
            self.own_values = _matrices(p, "own_values", floats(own_values), (*self.batch, rows, p["value_depth"]))
        if p["mask_kind"]:
            strides = [p[f"mask_{step}"] for step in ("outer", "batch", "own", "other")]
            shape = (*repeated_once(self.batch, strides), rows, *repeated_once((others,), strides[3:]))
            self.mask = strided(words(mask), p["mask_start"], shape, strides)

    def by_rows(self, found: Callable[..., Any], *of_rows: Array) -> Any:
        """What is found for the owned rows, in turns if they have many scores.

        Args:
            found: takes parts along the rows of `own`, `own_values`, the rows' numbers, `mask` and `of_rows`.
            of_rows: (outer, batch, rows, ...).
        """
        rows, others = self.p["own_rows"], self.p["other_rows"]
        each = max(1, min(rows, _SCORES // max(1, self.batch[0] * self.batch[1] * others)))
        turns = -(-rows // each)
        numbers = jnp.arange(turns * each).reshape(1, 1, -1, 1)
        given = (self.own, self.own_values, numbers, self.mask, *of_rows)

        def of_batch(one: Array) -> Array:
            return jnp.broadcast_to(one, (*self.batch, *one.shape[2:]))

        if turns == 1:
            return tuple(map(of_batch, found(*given)))
        # A turn may see rows beyond the end; what it finds for them is cut off.
        padded = [None if one is None else _padded(one, turns * each) for one in given]

        def turn(number: Array) -> Any:
            part = (None if one is None else lax.dynamic_slice_in_dim(one, number * each, each, 2) for one in padded)
            return tuple(map(of_batch, found(*part)))

        stacked = lax.map(turn, jnp.arange(turns))
        return tuple(
            jnp.moveaxis(one, 0, 2).reshape(*self.batch, turns * each, *one.shape[4:])[:, :, :rows] for one in stacked
        )

    def scores(self, own: Array, numbers: Array, mask: Array | None) -> Array:
        """Of some owned rows; -inf where there is none."""
        p = self.p
        found = (own @ self.other.swapaxes(-1, -2)) * np.float32(p["scale"])
        if mask is not None:
            is_hidden = mask == 0
            if p["mask_kind"] == 2:
                found += floats(mask)
                is_hidden = floats(mask) <= _LOWEST
            found = jnp.where(is_hidden, -jnp.inf, found)
        if p["is_causal"]:
            others = jnp.arange(p["other_rows"])
            is_later = others > numbers if p["owns_queries"] else others < numbers
            found = jnp.where(is_later, -jnp.inf, found)
        return found


def _padded(array: Array, rows: int) -> Array:
    return jnp.pad(array, ((0, 0), (0, 0), (0, rows - array.shape[2]), (0, 0)))


def _attention(
    p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array, result: Array,
    log_sums: Array,
) -> Results:  # fmt: skip
    if p["first_column"]:
        return result, log_sums  # the dispatch of the first column computed all columns
    pairs = _Pairs(p, own, other, own_values, other_values, mask, log_sums.size // p["own_rows"])

    def found(own: Array, _: None, numbers: Array, mask: Array | None) -> tuple[Array, Array]:
        scores = pairs.scores(own, numbers, mask)
        maxima = jnp.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), _LOWEST)
        weights = jnp.exp(scores - maxima)
        total = weights.sum(axis=-1, keepdims=True)
        is_empty = total == 0
        values = (weights @ pairs.other_values) / jnp.where(is_empty, 1, total)
        return jnp.where(is_empty, _LARGEST, maxima + jnp.log(total)), values

    sums, values = pairs.by_rows(found)
    return put(result, values), put(log_sums, sums)


def _attention_grad(
    p: Parameters, own: Array, other: Array, own_values: Array, other_values: Array, mask: Array, result: Array,
    of_queries: Array,
) -> Results:  # fmt: skip
    if p["first_column"]:
        return (result,)
    queries = p["own_rows"] if p["owns_queries"] else p["other_rows"]
    products = of_queries.size // (2 * queries)
    pairs = _Pairs(p, own, other, own_values, other_values, mask, products)
    known = floats(of_queries)[: 2 * products * queries].reshape(*pairs.batch, queries, 2)

    def found(own: Array, own_values: Array | None, numbers: Array, mask: Array | None, *of_own: Array) -> Any:
        log_sums, deltas = jnp.split(of_own[0], 2, axis=-1) if of_own else jnp.moveaxis(known, -1, 0)[..., None, :]
        weights = jnp.exp(pairs.scores(own, numbers, mask) - log_sums)
        if own_values is None:
            return (weights @ pairs.other_values,)
        slopes = own_values @ pairs.other_values.swapaxes(-1, -2) - deltas
        return ((weights * slopes) @ pairs.other,)

    (gradient,) = pairs.by_rows(found, *([known] if p["owns_queries"] else []))
    return (put(result, gradient * np.float32(p["result_scale"])),)


def _attention_delta(p: Parameters, grad: Array, values: Array, log_sums: Array, of_queries: Array) -> Results:
    queries, rows, columns, inner = p["queries"], p["rows"], p["columns"], p["batch_inner"]
    shape = (queries // (rows * inner), inner, rows, columns)
    strides = [p[name] for name in ("outer_stride", "batch_stride", "row_stride", "column_stride")]
    g = strided(floats(grad), p["start"], shape, strides)
    deltas = (g * floats(values)[: queries * columns].reshape(shape)).sum(axis=-1).reshape(-1)
    return (put(of_queries, jnp.stack([floats(log_sums)[:queries], deltas], axis=1)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
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

"""Library calls that take the place of the reductions, in JAX: sums, extremes, softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays.jax_arrays import as_type, floats, ints, put

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_DTYPES: tuple[Any, ...] = (np.float32, np.int32, np.uint32)


def _chunks(table: Array, chunk: int, fill: Any) -> Array:
    """(outer, chunks, chunk, inner) of (outer, length, inner); the last chunk is filled up."""
    outer, length, inner = table.shape
    chunks = -(-length // chunk)
    padded = jnp.pad(table, ((0, 0), (0, chunks * chunk - length), (0, 0)), constant_values=fill)
    return padded.reshape(outer, chunks, chunk, inner)


def _sum(p: Parameters, values: Array, sums: Array) -> Results:
    outer, length, inner = p["outer"], p["length"], p["inner"]
    table = floats(values)[: outer * length * inner].reshape(outer, length, inner)
    return (put(sums, _chunks(table, min(p["chunk"], length), 0).sum(axis=2)),)


def _last(dtype: Any, is_smallest: bool) -> Any:
    """Return the value that no other value loses against: the largest for a minimum, the smallest for a maximum."""
    if dtype == np.float32:
        return np.inf if is_smallest else -np.inf
    return np.iinfo(dtype).max if is_smallest else np.iinfo(dtype).min


def _extremum(p: Parameters, values: Array, places: Array, result: Array) -> Results:
    outer, length, inner, count = p["outer"], p["length"], p["inner"], p["count"]
    chunk, dtype = min(p["chunk"], count), _DTYPES[p["kind"]]
    table = as_type(values, dtype)[: outer * length * inner].reshape(outer, length, inner)
    looked_at = table
    if p["has_places"]:
        candidates = ints(places)[: outer * count * inner].reshape(outer, count, inner)
        looked_at = jnp.take_along_axis(table, candidates, 1, mode="clip")
    find = jnp.argmin if p["is_smallest"] else jnp.argmax
    found = find(_chunks(looked_at, chunk, _last(dtype, bool(p["is_smallest"]))), axis=2)
    found = found.astype(np.int32) + chunk * jnp.arange(found.shape[1], dtype=np.int32)[:, None]
    if p["has_places"]:
        found = jnp.take_along_axis(candidates, found, 1, mode="clip")
    return (put(result, jnp.take_along_axis(table, found, 1, mode="clip") if p["gives_value"] else found),)


def _softmax(p: Parameters, values: Array, result: Array) -> Results:
    shape = (p["rows"], p["columns"])
    table = floats(values)[: shape[0] * shape[1]].reshape(shape)
    shifted = table - table.max(axis=1, keepdims=True)
    powers = jnp.exp(shifted)
    totals = powers.sum(axis=1, keepdims=True)
    return (put(result, shifted - jnp.log(totals) if p["is_log"] else powers / totals),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {"extremum": _extremum, "softmax": _softmax, "sum": _sum}

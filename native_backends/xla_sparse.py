"""Gradients of some rows, in JAX: entries sorted by row and added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .xla_arrays import floats, put, put_at, words

__all__ = ["REPLACEMENTS", "heads"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_CHUNK = 64
"""Entries that are added up one after the other; their sums are then added up."""


def _sort_rows(p: Parameters, indices: Array, rows: Array, order: Array) -> Results:
    count, block = p["count"], p["block"]
    found = jnp.minimum(words(indices)[:count], jnp.uint32(p["rows"]))
    padded = jnp.pad(found, (0, -count % block), constant_values=np.uint32(0xFFFFFFFF)).reshape(-1, block)
    places = lax.iota(jnp.uint32, padded.size).reshape(padded.shape)
    sorted_rows, places = lax.sort((padded, places), dimension=1, num_keys=1, is_stable=True)
    return put(rows, sorted_rows.reshape(-1)[:count]), put(order, places.reshape(-1)[:count])


def _merge_rows(p: Parameters, rows_in_blocks: Array, order_in_blocks: Array, rows: Array, order: Array) -> Results:
    pairs = (words(rows_in_blocks)[: p["count"]], words(order_in_blocks)[: p["count"]])
    sorted_rows, places = lax.sort(pairs, num_keys=1, is_stable=True)
    return put(rows, sorted_rows), put(order, places)


def heads(p: Parameters, rows: Array) -> tuple[Array, Array]:
    """The rows of the entries, and whether those of a row begin there: of none, where an entry names no row."""
    found = words(rows)[: p["count"]]
    is_next = jnp.concatenate([jnp.ones(1, bool), found[1:] != found[:-1]])
    return found, is_next & (found < p["rows"])


def _table(p: Parameters, array: Array) -> Array:
    return floats(array)[: p["count"] * p["length"]].reshape(p["count"], p["length"])


def _sum_rows(p: Parameters, values: Array, rows: Array, order: Array, sums: Array) -> Results:
    """Each row whole, so that nothing is left to join."""
    count = p["count"]
    found, is_head = heads(p, rows)
    given = jnp.take(_table(p, values), words(order)[:count], axis=0, mode="clip")
    places = lax.iota(jnp.int32, count)
    head = lax.cummax(jnp.where(is_head, places, 0))
    head_in_chunk = jnp.maximum(head, places - places % _CHUNK)
    of_chunks = jnp.zeros_like(given).at[jnp.where(found < p["rows"], head_in_chunk, count)].add(given, mode="drop")
    totals = jnp.zeros_like(given).at[head].add(of_chunks, mode="drop", indices_are_sorted=True)
    return (put(sums, jnp.where(is_head[:, None], totals, _table(p, sums))),)


def _join_rows(p: Parameters, rows: Array, sums: Array) -> Results:
    """Nothing: see `_sum_rows`."""
    return (sums,)


def _spread_rows(p: Parameters, rows: Array, sums: Array, dense: Array) -> Results:
    found, is_head = heads(p, rows)
    target = floats(dense)[: dense.size // p["length"] * p["length"]].reshape(-1, p["length"])
    return (put(dense, put_at(target, found, _table(p, sums), is_head)),)


def _nonfinite_rows(p: Parameters, rows: Array, sums: Array, found_inf: Array) -> Results:
    _, is_head = heads(p, rows)
    is_bad = jnp.any(is_head[:, None] & ~jnp.isfinite(_table(p, sums)))
    return (put(found_inf, jnp.where(is_bad, jnp.uint32(1), words(found_inf)[:1])),)


def _unscale_rows(p: Parameters, indices: Array, values: Array, scaler: Array) -> Results:
    size, length, state = p["size"], p["length"], floats(scaler)
    given = floats(values)[:size].reshape(-1, length)
    is_row = words(indices)[: given.shape[0]] < p["rows"]
    is_bad = jnp.any(is_row[:, None] & ~jnp.isfinite(given))
    marked = put(scaler, jnp.where(is_bad, jnp.float32(1), state[1:2]), 1)
    return put(values, given * (np.float32(1) / state[0])), marked


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "join_rows": _join_rows,
    "merge_rows": _merge_rows,
    "nonfinite_rows": _nonfinite_rows,
    "sort_rows": _sort_rows,
    "spread_rows": _spread_rows,
    "sum_rows": _sum_rows,
    "unscale_rows": _unscale_rows,
}

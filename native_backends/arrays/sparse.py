"""Routines over gradients of some rows: entries sorted by row and added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "row_heads"]


def _sorting(xp: Any, rows: Array, block: int) -> Array:
    """Return the order that sorts each block of a vector; equal elements keep theirs."""
    if rows.size <= block:
        return xp.argsort(rows, stable=True)
    count, end = rows.size // block, rows.size - rows.size % block
    order = xp.argsort(rows[:end].reshape(count, block), axis=1, stable=True) + block * xp.arange(count)[:, None]
    return xp.concatenate([order.reshape(-1), end + xp.argsort(rows[end:], stable=True)])


def _sort_rows(xp: Any, p: Parameters, indices: Array, rows: Array, order: Array) -> Results:
    row = xp.minimum(xp.words(indices)[: p["count"]], np.uint32(p["rows"]))
    entries = _sorting(xp, row, p["block"])
    return xp.put(xp.words(rows), row[entries]), xp.put(xp.words(order), entries.astype(np.uint32))


def _merge_rows(
    xp: Any, p: Parameters, rows_in_blocks: Array, order_in_blocks: Array, rows: Array, order: Array
) -> Results:
    row, entries = (xp.words(vector)[: p["count"]] for vector in (rows_in_blocks, order_in_blocks))
    merged = _sorting(xp, row, row.size)
    return xp.put(xp.words(rows), row[merged]), xp.put(xp.words(order), entries[merged])


def row_heads(xp: Any, p: Parameters, rows: Array) -> tuple[Array, Array]:
    """Return the row of each sorted entry, and whether a row begins there; entries without a row come last."""
    row = xp.words(rows)[: p["count"]]
    is_next = xp.concatenate([xp.ones(1, dtype=bool), row[1:] != row[:-1]])
    return row, is_next & (row < p["rows"])


def _table(xp: Any, p: Parameters, array: Array) -> Array:
    return xp.floats(array)[: p["count"] * p["length"]].reshape(p["count"], p["length"])


def _sum_rows(xp: Any, p: Parameters, values: Array, rows: Array, order: Array, sums: Array) -> Results:
    """Add up each row whole, so that nothing is left to join."""
    row, is_head = row_heads(xp, p, rows)
    entries = xp.take(_table(xp, p, values), xp.words(order)[: p["count"]], axis=0, mode="clip")
    totals = xp.segment_sums(entries, is_head, row < p["rows"], _table(xp, p, sums))
    return (xp.put(xp.floats(sums), totals),)


def _join_rows(xp: Any, p: Parameters, rows: Array, sums: Array) -> Results:
    """Return the sums as they are: `_sum_rows` leaves nothing to join."""
    return (sums,)


def _spread_rows(xp: Any, p: Parameters, rows: Array, sums: Array, dense: Array) -> Results:
    row, is_head = row_heads(xp, p, rows)
    target = xp.floats(dense)
    table = target[: target.size // p["length"] * p["length"]].reshape(-1, p["length"])
    return (xp.put(target, xp.put_at(table, row, _table(xp, p, sums), is_head)),)


def _nonfinite_rows(xp: Any, p: Parameters, rows: Array, sums: Array, found_inf: Array) -> Results:
    _, is_head = row_heads(xp, p, rows)
    is_bad = xp.any(is_head[:, None] & ~xp.isfinite(_table(xp, p, sums)))
    flag = xp.words(found_inf)
    return (xp.put(flag, xp.where(is_bad, np.uint32(1), flag[:1])),)


def _unscale_rows(xp: Any, p: Parameters, indices: Array, values: Array, scaler: Array) -> Results:
    state = xp.floats(scaler)
    table = xp.floats(values)[: p["size"]].reshape(-1, p["length"])
    is_row = xp.words(indices)[: table.shape[0]] < p["rows"]
    is_bad = xp.any(is_row[:, None] & ~xp.isfinite(table))
    unscaled = xp.into(table, xp.multiply, table, np.float32(1) / state[0])
    return xp.put(xp.floats(values), unscaled), xp.put(state, xp.where(is_bad, np.float32(1), state[1:2]), 1)


ROUTINES: dict[str, Callable[..., Results]] = {
    "join_rows": _join_rows,
    "merge_rows": _merge_rows,
    "nonfinite_rows": _nonfinite_rows,
    "sort_rows": _sort_rows,
    "spread_rows": _spread_rows,
    "sum_rows": _sum_rows,
    "unscale_rows": _unscale_rows,
}

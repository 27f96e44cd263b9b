"""The smallest or largest elements along an axis, and their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Array, Parameters, Results

__all__ = ["ROUTINES"]


def _extremum(xp: Any, p: Parameters, values: Array, indices: Array, result: Array) -> Results:
    """Return the extreme of each chunk of the candidates: its value, or its index along the axis."""
    outer, length, inner, count = p["outer"], p["length"], p["inner"], p["count"]
    typed = (xp.floats, xp.ints, xp.words)[p["kind"]]
    table = typed(values)[: outer * length * inner].reshape(outer, length, inner)
    candidates = None
    if p["has_places"]:
        candidates = xp.ints(indices)[: outer * count * inner].reshape(outer, count, inner)
    extreme = _indices_of_extremes(xp, p, table if candidates is None else xp.taken_along(table, candidates))
    if candidates is not None:
        extreme = xp.taken_along(candidates, extreme)
    if p["gives_value"]:
        return (xp.put(typed(result), xp.taken_along(table, extreme)),)
    return (xp.put(xp.ints(result), extreme),)


def _indices_of_extremes(xp: Any, p: Parameters, table: Array) -> Array:
    """Return the index of the first extreme of each chunk of (outer, count, inner), as (outer, chunks, inner)."""
    outer, count, inner = table.shape
    chunk = min(p["chunk"], count)
    chunks, end = count // chunk, count - count % chunk
    find = xp.argmin if p["is_smallest"] else xp.argmax
    indices = find(table[:, :end].reshape(outer, chunks, chunk, inner), axis=2)
    if chunks > 1:
        indices = indices + chunk * xp.arange(chunks)[:, None]
    if end == count:
        return indices
    return xp.concatenate([indices, end + find(table[:, end:], axis=1)[:, None]], axis=1)


ROUTINES: dict[str, Callable[..., Results]] = {"extremum": _extremum}

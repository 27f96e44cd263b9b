"""The routine that adds up elements by index: scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Array, Parameters, Results

__all__ = ["ROUTINES"]


def _is_shared(p: Parameters) -> bool:
    """Return whether indices are the same everywhere but along the middle axis."""
    return (p["outer_stride"], p["inner_stride"]) == (0, 0)


def _indices_of_entries(xp: Any, p: Parameters, indices: Array, outer: int) -> Array:
    """Return the index of each entry, (outer, count, inner), or (1, count, 1) where it is shared."""
    shape = (1, p["count"], 1) if _is_shared(p) else (outer, p["count"], p["inner"])
    strides = [p[f"{name}_stride"] for name in ("outer", "entry", "inner")]
    return xp.strided(xp.ints(indices), 0, shape, strides)


def _scatter(xp: Any, p: Parameters, values: Array, indices: Array, sums: Array) -> Results:
    length, count, inner, entries = p["length"], p["count"], p["inner"], slice(p["first"], p["end"])
    outer = p["size"] // (length * inner)
    shape = (outer, length, inner)
    added = xp.floats(values)[: outer * count * inner].reshape(outer, count, inner)[:, entries]
    result = xp.scattered_sums(shape, _indices_of_entries(xp, p, indices, outer)[:, entries], added)
    if p["first"]:
        result += xp.floats(sums)[: p["size"]].reshape(shape)
    return (xp.put(xp.floats(sums), result),)


ROUTINES: dict[str, Callable[..., Results]] = {"scatter": _scatter}

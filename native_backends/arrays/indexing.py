"""Routines that add up elements by index: scatter, the largest of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "TRACED"]


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


def _window_places(xp: Any, p: Parameters, values: Array, indices: Array, images: Array) -> Results:
    pixels, windows = p["height"] * p["width"], p["out_height"] * p["out_width"]
    planes = p["size"] // pixels
    added, pixel_of_window = (
        vector[: planes * windows].reshape(planes, windows, 1) for vector in (xp.floats(values), xp.ints(indices))
    )
    return (xp.put(xp.floats(images), xp.scattered_sums((planes, pixels, 1), pixel_of_window, added)),)


ROUTINES: dict[str, Callable[..., Results]] = {
    "scatter": _scatter,
    "window_places": _window_places,
}

TRACED: dict[str, frozenset[str]] = {"window_places": frozenset({"first"})}

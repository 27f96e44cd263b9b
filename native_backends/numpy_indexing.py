"""Elements copied and added up by index, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _place(p: Parameters, part: Array, whole: Array) -> None:
    axes = range(4)
    inner = [p[f"size{axis}"] for axis in axes[1:]]
    target = whole.view(np.uint32)[: p["size"]].reshape(-1, *inner)
    starts, steps, counts = ([p[f"{name}{axis}"] for axis in axes] for name in ("start", "step", "count"))
    strides = [4 * p[f"stride{axis}"] for axis in axes]
    if tuple(counts) != target.shape:
        target[:] = p["fill"]
    places = [
        slice(one, one + (count - 1) * step + 1, step) for one, step, count in zip(starts, steps, counts, strict=True)
    ]
    target[tuple(places)] = as_strided(part.view(np.uint32)[p["first"] :], counts, strides)


def _indices(p: Parameters, indices: Array, outer: int) -> Array:
    """The index of each entry, and -1 or less where it names nothing."""
    strides = [4 * p[f"{name}_stride"] for name in ("outer", "entry", "inner")]
    return as_strided(indices.view(np.int32), (outer, p["count"], p["inner"]), strides)


def _is_shared(p: Parameters) -> bool:
    """The same indices everywhere but along the middle axis."""
    return (p["outer_stride"], p["entry_stride"], p["inner_stride"]) == (0, 1, 0)


def _gather(p: Parameters, values: Array, indices: Array, result: Array) -> None:
    length, inner = p["length"], p["inner"]
    target = result.view(np.uint32)[: p["size"]].reshape(-1, p["count"], inner)
    source = values.view(np.uint32)[: target.shape[0] * length * inner].reshape(-1, length, inner)
    if _is_shared(p):
        places = indices.view(np.int32)[: p["count"]]
    else:
        places = _indices(p, indices, target.shape[0])
    if p["wraps"]:
        places = np.where(places < 0, places + length, places)
    is_there = (places >= 0) & (places < length)
    found = places if is_there.all() else np.where(is_there, places, 0)
    if _is_shared(p):
        np.take(source, found, axis=1, out=target, mode="clip")
    else:
        target[:] = np.take_along_axis(source, found, axis=1)
    if found is not places:
        target[(slice(None), ~is_there) if _is_shared(p) else ~is_there] = p["missing"]


def _scatter(p: Parameters, values: Array, indices: Array, sums: Array) -> None:
    length, inner, entries = p["length"], p["inner"], slice(p["first"], p["end"])
    target = sums.view(np.float32)[: p["size"]]
    outer = target.size // (length * inner)
    given = values.view(np.float32)[: outer * p["count"] * inner].reshape(outer, p["count"], inner)[:, entries]
    places = _indices(p, indices, outer)[:, entries]
    is_there = (places >= 0) & (places < length)
    rows = np.arange(outer)[:, None, None] * length + places
    flat = rows * inner + np.arange(inner)
    if not is_there.all():
        flat, given = flat[is_there], given[is_there]
    found = np.bincount(flat.ravel(), given.ravel(), minlength=target.size)
    target[:] = found + target if p["first"] else found


def _join(p: Parameters, part: Array, whole: Array) -> None:
    rows = whole.view(np.uint32)
    row = p["row"]
    target = rows[: rows.size // p["whole_row"] * p["whole_row"]].reshape(-1, p["whole_row"])
    given = part.view(np.uint32)[: p["size"]].reshape(-1, row)
    target[: len(given), p["first"] : p["first"] + row] = given


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "gather": _gather,
    "join": _join,
    "place": _place,
    "scatter": _scatter,
}

"""Elements copied and added up by index, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from .xla_arrays import floats, ints, put, repeated_once, strided, words

__all__ = ["REPLACEMENTS", "TRACED"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _place(p: Parameters, part: Array, whole: Array) -> Results:
    axes = range(4)
    sizes = [p[f"size{axis}"] for axis in axes[1:]]
    sizes.insert(0, p["size"] // (sizes[0] * sizes[1] * sizes[2]))
    starts, steps, counts, strides = (
        [p[f"{name}{axis}"] for axis in axes] for name in ("start", "step", "count", "stride")
    )
    fill = jnp.uint32(p["fill"])
    if 0 in counts:
        return (put(whole, jnp.full(sizes, fill)),)
    given = strided(words(part), p["first"], counts, strides)
    edges = [
        (start, size - start - (count - 1) * step - 1, step - 1)
        for start, size, count, step in zip(starts, sizes, counts, steps, strict=True)
    ]
    return (put(whole, lax.pad(given, fill, edges)),)


def _is_shared(p: Parameters) -> bool:
    """The same indices everywhere but along the middle axis."""
    return (p["outer_stride"], p["inner_stride"]) == (0, 0)


def _indices(p: Parameters, indices: Array, outer: int) -> Array:
    """The index of each entry, (outer, count, inner); 1 for an axis along which they are the same."""
    strides = [p[f"{name}_stride"] for name in ("outer", "entry", "inner")]
    return strided(ints(indices), 0, repeated_once((outer, p["count"], p["inner"]), strides), strides)


def _gather(p: Parameters, values: Array, indices: Array, result: Array) -> Results:
    length, count, inner = p["length"], p["count"], p["inner"]
    outer = p["size"] // (count * inner)
    places = _indices(p, indices, outer)
    if p["wraps"]:
        places = jnp.where(places < 0, places + length, places)
    is_there = (places >= 0) & (places < length)
    missing = jnp.uint32(p["missing"])
    if not length:
        return (put(result, jnp.full((outer, count, inner), missing)),)
    source = words(values)[: outer * length * inner].reshape(outer, length, inner)
    found = jnp.where(is_there, places, 0)
    if _is_shared(p):
        taken = jnp.take(source, jnp.broadcast_to(found.ravel(), count), axis=1, mode="clip")
    else:
        taken = jnp.take_along_axis(source, jnp.broadcast_to(found, (outer, count, inner)), axis=1, mode="clip")
    return (put(result, jnp.where(is_there, taken, missing)),)


def _scatter(p: Parameters, values: Array, indices: Array, sums: Array) -> Results:
    length, count, inner, entries = p["length"], p["count"], p["inner"], slice(p["first"], p["end"])
    outer = p["size"] // (length * inner)
    given = floats(values)[: outer * count * inner].reshape(outer, count, inner)[:, entries]
    places = jnp.broadcast_to(
        _indices(p, indices, outer), (outer, count, inner) if not _is_shared(p) else (1, count, 1)
    )
    places = places[:, entries]
    is_there = (places >= 0) & (places < length)
    given, places = jnp.where(is_there, given, 0), jnp.where(is_there, places, 0)
    target = floats(sums)[: p["size"]].reshape(outer, length, inner)
    if not p["first"]:
        target = jnp.zeros_like(target)
    if _is_shared(p):
        found = target.at[:, places.ravel()].add(given)
    else:
        rows, columns = jnp.arange(outer)[:, None, None], jnp.arange(inner)
        found = target.at[rows, places, columns].add(given)
    return (put(sums, found),)


def _join(p: Parameters, part: Array, whole: Array) -> Results:
    row, whole_row = p["row"], p["whole_row"]
    count = p["size"] // row
    rows = words(whole)[: count * whole_row].reshape(count, whole_row)
    given = words(part)[: p["size"]].reshape(count, row)
    return (put(whole, rows.at[:, p["first"] : p["first"] + row].set(given)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "gather": _gather,
    "join": _join,
    "place": _place,
    "scatter": _scatter,
}

TRACED: dict[str, frozenset[str]] = {"place": frozenset({"first"})}

"""Flat vectors of the `xla` device, seen as what they hold and put back, in JAX.

A buffer is a vector of 32-bit numbers. Functions here take the type that they are given, and `put` and `put_windows`
give that of what they change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

__all__ = [
    "as_type",
    "floats",
    "ints",
    "put",
    "put_at",
    "put_strided",
    "put_windows",
    "repeated_once",
    "strided",
    "windows",
    "words",
]


def as_type(array: Array, dtype: Any) -> Array:
    """The same bits as another type of 32."""
    return array if array.dtype == dtype else lax.bitcast_convert_type(array, dtype)


def floats(array: Array) -> Array:
    """The bits as float32."""
    return as_type(array, jnp.float32)


def ints(array: Array) -> Array:
    """The bits as int32."""
    return as_type(array, jnp.int32)


def words(array: Array) -> Array:
    """The bits as uint32."""
    return as_type(array, jnp.uint32)


def put(old: Array, values: Array, start: Any = 0) -> Array:
    """The vector with these values in place of its own, in order, from an element on."""
    flat = as_type(values.reshape(-1), old.dtype)
    if flat.size == old.size:
        return flat
    return lax.dynamic_update_slice(old, flat, (start,)) if flat.size else old


def strided(array: Array, start: Any, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """What `numpy.lib.stride_tricks.as_strided` shows of a vector, as an array of its own.

    Args:
        array: a vector.
        start: the first element; may be traced.
        shape: of the result.
        strides: in elements, not negative.
    """
    if 0 in shape:
        return jnp.zeros(tuple(shape), array.dtype)
    axes = _moving(shape, strides)
    counts, steps = [shape[axis] for axis in axes], [strides[axis] for axis in axes]
    seen = _part(array, start, _extent(counts, steps))
    if _is_nested(counts, steps):
        seen = _cut(seen, counts, steps)
    else:
        seen = seen[_places(counts, steps)]
    seen = seen.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    once = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    return jnp.broadcast_to(seen.reshape(once), tuple(shape))


def repeated_once(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The shape with 1 for axes whose stride is 0; there may be fewer strides. What broadcasts to the same array."""
    return tuple(size if stride else min(size, 1) for size, stride in zip(shape, strides, strict=False))


def _moving(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The axes along which there are different elements, those furthest apart first."""
    axes = (axis for axis, size in enumerate(shape) if size > 1 and strides[axis])
    return sorted(axes, key=lambda axis: -strides[axis])


def _extent(counts: Sequence[int], steps: Sequence[int]) -> int:
    return 1 + sum((count - 1) * step for count, step in zip(counts, steps, strict=True))


def _is_nested(counts: Sequence[int], steps: Sequence[int]) -> bool:
    """What lies along the later axes ends before the next step of an earlier one."""
    return all(step >= _extent(counts[axis + 1 :], steps[axis + 1 :]) for axis, step in enumerate(steps))


def _part(array: Array, start: Any, size: int) -> Array:
    if size == array.size:
        return array
    return array[start : start + size] if isinstance(start, int) else lax.dynamic_slice(array, (start,), (size,))


def _cut(flat: Array, counts: Sequence[int], steps: Sequence[int]) -> Array:
    """Slices of reshaped slices, one axis after the other."""
    for axis, (count, step) in enumerate(zip(counts, steps, strict=True)):
        rest = _extent(counts[axis + 1 :], steps[axis + 1 :])
        if rest == 1:
            return flat[..., ::step]
        missing = count * step - flat.shape[-1]
        if missing:
            flat = jnp.pad(flat, [(0, 0)] * axis + [(0, missing)])
        flat = flat.reshape(*flat.shape[:-1], count, step)[..., :rest]
    return flat.reshape(tuple(counts))


def _places(counts: Sequence[int], steps: Sequence[int]) -> Any:
    return sum(
        (step * jnp.arange(count)).reshape(-1, *[1] * (len(counts) - 1 - axis))
        for axis, (count, step) in enumerate(zip(counts, steps, strict=True))
    )


# Parts that begin where a table on the device says.


def windows(array: Array, starts: Array, size: int) -> Array:
    """(starts, size): so many elements from each start on. Each part lies within the vector, or means nothing."""
    return jax.vmap(lambda start: lax.dynamic_slice(array, (start,), (size,)))(starts.astype(jnp.int32))


# XLA makes a scatter to a single place a slice and its update; where the vector is itself a slice, it merges the two as
# if the place lay within. So a single place that is left out lies within as well, and what is there is kept.


def put_at(old: Array, places: Array, values: Array, is_written: Array) -> Array:
    """The elements or rows at these places replaced by others, (places, ...), where that is set."""
    if places.size > 1:
        return old.at[jnp.where(is_written, places, old.shape[0])].set(values, mode="drop")
    place = jnp.where(is_written, places, 0)
    kept = jnp.take(old, place, axis=0, mode="clip")
    return old.at[place].set(jnp.where(is_written[0], values, kept), mode="drop")


def put_windows(old: Array, starts: Array, values: Array, is_active: Array) -> Array:
    """The vector with these values, (starts, size), from each start on; parts that are not active are left out."""
    values, left_out = as_type(values, old.dtype), old.size
    if starts.size == 1:
        starts, left_out = jnp.where(is_active, starts, 0), 0
        values = jnp.where(is_active[0], values, windows(old, starts, values.shape[1]))
    places = jnp.where(is_active, starts.astype(jnp.int32), left_out)
    rows = lax.ScatterDimensionNumbers((1,), (), (0,))
    return lax.scatter(old, places[:, None], values, rows, unique_indices=True, mode="drop")


def put_strided(old: Array, starts: Array, values: Array, strides: Sequence[int], is_active: Array) -> Array:
    """The same for arrays, (starts, *shape), whose elements lie that far apart. They do not overlap."""
    shape = values.shape[1:]
    if 0 in shape:
        return old
    axes = _moving(shape, strides)
    ordered = values.transpose(
        0, *(1 + axis for axis in range(len(shape)) if axis not in axes), *(1 + one for one in axes)
    )
    flat = ordered.reshape(values.shape[0], -1)
    counts, steps = [shape[axis] for axis in axes], [strides[axis] for axis in axes]
    if _extent(counts, steps) == math.prod(shape):
        return put_windows(old, starts, flat, is_active)
    places = starts.astype(jnp.int32)[:, None] + jnp.asarray(_places(counts, steps), jnp.int32).reshape(-1)
    places = jnp.where(is_active[:, None], places, old.size)
    return old.at[places].set(as_type(flat, old.dtype), mode="drop", unique_indices=True)

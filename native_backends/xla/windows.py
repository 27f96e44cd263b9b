"""Kernels over windows that slide over planes: slices for the taps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...kernel import Kernel
from ...lower.windows import WindowAxis, window_operation
from ..arrays.jax_arrays import put, strided

__all__ = ["TRACED_OF_WINDOWS", "lower_windows"]

_UNROLLED = 8
"""Taps along an axis that are written out; more are a loop."""

TRACED_OF_WINDOWS = frozenset({"first", "first_result"})
"""Parameters that need not be known to compile."""


class _Axis:
    """One axis of planes, which is the axis `number` of arrays, from their end."""

    def __init__(self, axis: WindowAxis, number: int) -> None:
        self.axis = axis
        self.number = number
        self.reach = (axis.grid - 1) * axis.step + 1  # positions from the first window's tap to the last one's
        self.lowest = axis.start + min(0, (axis.taps - 1) * axis.tap_step)  # position that has a tap
        self.positions = self.reach + (axis.taps - 1) * abs(axis.tap_step)

    def spread(self, array: Array, fill: float = 0) -> Array:
        """Return an array with an element for each position from the lowest to the highest that has a tap."""
        size = (self.axis.size - 1) * self.axis.spacing + 1
        edges = [(0, 0, 0)] * array.ndim
        edges[self.number] = (-self.lowest, self.positions + self.lowest - size, self.axis.spacing - 1)
        return lax.pad(array, np.asarray(fill, array.dtype), edges)

    def under(self, spread: Array, tap: Any) -> Array:
        """Return the element under a tap of each window."""
        first = self.axis.start + tap * self.axis.tap_step - self.lowest
        part = lax.dynamic_slice_in_dim(spread, first, self.reach, self.number)
        return lax.slice_in_dim(part, 0, self.reach, self.axis.step, self.number)

    def is_there(self, tap: Any) -> Array:
        """Return for each window along the axis whether it has an element under a tap."""
        position = lax.iota(np.int32, self.axis.grid) * self.axis.step + self.axis.start + tap * self.axis.tap_step
        end = self.axis.size * self.axis.spacing
        is_there: Array = (position >= 0) & (position < end) & (position % self.axis.spacing == 0)
        return is_there

    def unfold(self, array: Array, taps_axis: int) -> Array:
        """Return the element under each tap of each window; the taps are a new axis."""
        spread = self.spread(array)
        if self.axis.taps > _UNROLLED:
            return jax.vmap(lambda tap: self.under(spread, tap), out_axes=taps_axis)(jnp.arange(self.axis.taps))
        return jnp.stack([self.under(spread, tap) for tap in range(self.axis.taps)], taps_axis)

    def total(self, array: Array) -> Array:
        """Return the sum of the elements under the taps of each window."""
        spread = self.spread(array)
        return self._total(array.shape, array.dtype, lambda _: spread)

    def total_of_taps(self, array: Array, taps_axis: int) -> Array:
        """Return the same of an array with an axis of taps, where each tap is over elements of its own."""
        shape = array.shape[:taps_axis] + array.shape[taps_axis + 1 :]

        def spread(tap: Any) -> Array:
            return self.spread(lax.dynamic_index_in_dim(array, tap, taps_axis, keepdims=False))

        return self._total(shape, array.dtype, spread)

    def _total(self, shape: Sequence[int], dtype: Any, spread: Callable[[Any], Array]) -> Array:
        zeros = jnp.zeros((*shape[: self.number], self.axis.grid, *shape[len(shape) + self.number + 1 :]), dtype)
        total: Array = self.loop(lambda tap, sums: sums + self.under(spread(tap), tap), zeros)
        return total

    def loop(self, body: Callable[[Any, Any], Any], start: Any) -> Any:
        """Return the result of `body(tap, value)` applied for each tap in order, from `start` on."""
        if self.axis.taps > _UNROLLED:
            return lax.fori_loop(0, self.axis.taps, body, start)
        for tap in range(self.axis.taps):
            start = body(tap, start)
        return start


class _Best(NamedTuple):
    """The largest element so far, and its tap; -1 before any."""

    value: Array
    tap: Array

    def or_(self, value: Array, tap: Array) -> _Best:
        """Return the larger of this and another, whose tap is negative where there is none.

        Of equal ones it is the first, but the last NaN, which comes before all.
        """
        is_next = (tap >= 0) & ((self.tap < 0) | (value > self.value) | jnp.isnan(value))
        return _Best(jnp.where(is_next, value, self.value), jnp.where(is_next, tap, self.tap))


def _largest(down: _Axis, across: _Axis, elements: Array) -> _Best:
    """Return the largest element of each window and its tap: those of rows first."""

    def none(rows: int) -> _Best:
        shape = len(elements), rows, across.axis.grid
        return _Best(jnp.full(shape, -np.inf, np.float32), jnp.full(shape, -1, np.int32))

    spread = across.spread(elements)

    def step_across(tap: Any, best: _Best) -> _Best:
        return best.or_(across.under(spread, tap), jnp.where(across.is_there(tap), tap, -1))

    of_rows: _Best = across.loop(step_across, none(down.axis.size))
    values, taps = down.spread(of_rows.value), down.spread(of_rows.tap, -1)

    def step_down(tap: Any, best: _Best) -> _Best:
        of_row = down.under(taps, tap)
        return best.or_(down.under(values, tap), jnp.where(of_row >= 0, of_row + tap * across.axis.taps, -1))

    best: _Best = down.loop(step_down, none(down.axis.grid))
    return best


def lower_windows(form: Kernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that a kernel in the layout of windows writes."""
    operation, of_axes = window_operation(form), WindowAxis.both(values)
    down, across = _Axis(of_axes[0], -2), _Axis(of_axes[1], -1)
    grid, plane = (down.axis.grid, across.axis.grid), (down.axis.size, across.axis.size)
    taps, windows = (down.axis.taps, across.axis.taps), values["rows"]
    planes, plane_stride, tap_stride = windows // math.prod(grid), values["plane_stride"], values["tap_stride"]

    def elements_of(array: Array) -> Array:
        return strided(array, values["first"], (planes, *plane), (plane_stride, plane[1], 1))

    def at_place(place: Array, elements: Array) -> Array:
        """Return the elements, with axes of taps, or 0 for all taps but that of their place."""
        tap = lax.iota(np.int32, math.prod(taps)).reshape(1, *taps, 1, 1)
        return jnp.where(place[:, None, None] == tap, elements, np.float32(0))

    results: Sequence[Array]
    match operation:
        case "copy":
            results = [across.unfold(down.unfold(elements_of(arrays[0]), 1), 2)]
        case "largest":
            results = _largest(down, across, elements_of(arrays[0]))
        case "sum by window":
            place = arrays[1][:windows].reshape(planes, *grid)
            unfolded = across.unfold(down.unfold(elements_of(arrays[0]), 1), 2)
            results = [at_place(place, unfolded).sum(axis=(1, 2))]
        case "sum by element":
            of_taps = at_place(elements_of(arrays[1]), elements_of(arrays[0])[:, None, None])
            results = [down.total_of_taps(across.total_of_taps(of_taps, 2), 1)]
        case _ if tap_stride:
            strides = plane_stride, taps[1] * tap_stride, tap_stride, plane[1], 1
            of_taps = strided(arrays[0], values["first"], (planes, *taps, *plane), strides)
            results = [down.total_of_taps(across.total_of_taps(of_taps, 2), 1)]
        case _:
            results = [down.total(across.total(elements_of(arrays[0])))]
    written = arrays[len(form.reads) :]
    return tuple(put(old, new, values["first_result"]) for old, new in zip(written, results, strict=True))

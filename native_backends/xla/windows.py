"""Windows that slide over images, in JAX: slices for the taps along one axis, then along the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..arrays.jax_arrays import floats, put, strided

__all__ = ["REPLACEMENTS", "TRACED"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_UNROLLED = 8
"""Taps along an axis that are written out; more are a loop."""


class _Axis(NamedTuple):
    """The windows along one axis.

    Attributes:
        number: of the axis, from the end.
        size: pixels.
        windows: how many there are.
        taps: of a window.
        step: from one window to the next.
        spacing: from one tap to the next.
        before: pixels of padding.
    """

    number: int
    size: int
    windows: int
    taps: int
    step: int
    spacing: int
    before: int

    @property
    def reach(self) -> int:
        """Pixels from the first window's tap to the last window's, both included."""
        return (self.windows - 1) * self.step + 1

    @property
    def padded_size(self) -> int:
        """Pixels from the first tap of all to the last, both included."""
        return self.reach + (self.taps - 1) * self.spacing

    def _pad(self, array: Array, before: int, after: int, between: int, fill: float) -> Array:
        edges = [(0, 0, 0)] * array.ndim
        edges[self.number] = (before, after, between)
        return lax.pad(array, np.asarray(fill, array.dtype), edges)

    def padded(self, images: Array, fill: float = 0) -> Array:
        """Return the images padded with the pixels under taps beyond their edges, without those under no tap."""
        return self._pad(images, self.before, self.padded_size - self.size - self.before, 0, fill)

    def under(self, padded: Array, tap: Any) -> Array:
        """Return the pixel under a tap of each window."""
        part = lax.dynamic_slice_in_dim(padded, tap * self.spacing, self.reach, self.number)
        return lax.slice_in_dim(part, 0, self.reach, self.step, self.number)

    def unfold(self, images: Array, axis: int) -> Array:
        """Return the pixel under each tap of each window; the taps are a new axis, `axis`."""
        padded = self.padded(images)
        if self.taps > _UNROLLED:
            return jax.vmap(lambda tap: self.under(padded, tap), out_axes=axis)(jnp.arange(self.taps))
        return jnp.stack([self.under(padded, tap) for tap in range(self.taps)], axis)

    def fold(self, values: Array, axis: int) -> Array:
        """Return for each pixel the sum over the taps that it is under: the transpose of `unfold`."""
        shape = list(values.shape[:axis] + values.shape[axis + 1 :])
        shape[self.number] = self.padded_size

        def add_tap(tap: Any, sums: Array) -> Array:
            of_tap = lax.dynamic_index_in_dim(values, tap, axis, keepdims=False)
            first = tap * self.spacing
            part = lax.dynamic_slice_in_dim(sums, first, self.reach, self.number)
            part += self._pad(of_tap, 0, 0, self.step - 1, 0)
            return lax.dynamic_update_slice_in_dim(sums, part, first, self.number)

        sums = self.loop(add_tap, jnp.zeros(shape, values.dtype))
        return self._pad(sums, -self.before, self.size + self.before - self.padded_size, 0, 0)

    def pixels(self, tap: Any) -> Array:
        """Return the index of the pixel under a tap of each window, along the axis; it may be outside."""
        pixels: Array = jnp.arange(self.windows, dtype=jnp.int32) * self.step + tap * self.spacing - self.before
        return pixels

    def loop(self, body: Callable[[Any, Any], Any], start: Any) -> Any:
        """Return the result of `body(tap, value)` applied for each tap in order, from `start` on."""
        if self.taps > _UNROLLED:
            return lax.fori_loop(0, self.taps, body, start)
        for tap in range(self.taps):
            start = body(tap, start)
        return start


def _axes(p: Parameters) -> tuple[_Axis, _Axis]:
    return (
        _Axis(-2, p["height"], p["out_height"], p["kernel_height"], p["stride_height"], p["dilation_height"], p["top"]),
        _Axis(-1, p["width"], p["out_width"], p["kernel_width"], p["stride_width"], p["dilation_width"], p["left"]),
    )


def _images(p: Parameters, array: Array, planes: int) -> Array:
    shape = (planes, p["height"], p["width"])
    return strided(floats(array), p["first"], shape, (p["height"] * p["width"], p["width"], 1))


def _planes(p: Parameters) -> int:
    """Return the number of images, where there is a result for each window."""
    return int(p["size"] // (p["out_height"] * p["out_width"]))


def _unfold(p: Parameters, images: Array, columns: Array) -> Results:
    down, across = _axes(p)
    source = _images(p, images, _planes(p))
    return (put(columns, across.unfold(down.unfold(source, 1), 2)),)


def _fold(p: Parameters, columns: Array, images: Array) -> Results:
    down, across = _axes(p)
    planes = p["size"] // (down.size * across.size)
    strides = p["plane_stride"], p["tap_stride"] * across.taps, p["tap_stride"], across.windows, 1
    shape = planes, down.taps, across.taps, down.windows, across.windows
    values = strided(floats(columns), 0, shape, strides)
    return (put(images, down.fold(across.fold(values, 2), 1), p["first"]),)


def _window_sums(p: Parameters, images: Array, sums: Array) -> Results:
    values = _images(p, images, _planes(p))
    for axis in _axes(p):
        values = axis.unfold(values, 0).sum(axis=0)
    return (put(sums, values),)


class _Best(NamedTuple):
    """The largest pixel so far, and its index in the image; -1 before any."""

    value: Array
    pixel: Array

    def or_(self, value: Array, pixel: Array) -> _Best:
        """Return the larger of this and another, whose index is negative where there is none.

        Of equal ones it is the first, and NaN is larger than all.
        """
        is_larger = (value > self.value) & ~jnp.isnan(self.value)
        is_next = (pixel >= 0) & ((self.pixel < 0) | jnp.isnan(value) | is_larger)
        return _Best(jnp.where(is_next, value, self.value), jnp.where(is_next, pixel, self.pixel))


def _window_largest(p: Parameters, images: Array, values: Array, indices: Array) -> Results:
    down, across = _axes(p)
    planes = _planes(p)

    def none(rows: int) -> _Best:
        shape = planes, rows, across.windows
        return _Best(jnp.full(shape, -jnp.inf, jnp.float32), jnp.full(shape, -1, jnp.int32))

    padded = across.padded(_images(p, images, planes))

    def step_across(tap: Any, best: _Best) -> _Best:
        x = across.pixels(tap)
        return best.or_(across.under(padded, tap), jnp.where(x < across.size, x, -1))

    of_rows = across.loop(step_across, none(down.size))
    padded_values, padded_pixels = down.padded(of_rows.value), down.padded(of_rows.pixel, -1)

    def step_down(tap: Any, best: _Best) -> _Best:
        x = down.under(padded_pixels, tap)
        pixel = jnp.where(x >= 0, down.pixels(tap)[:, None] * across.size + x, -1)
        return best.or_(down.under(padded_values, tap), pixel)

    best = down.loop(step_down, none(down.windows))
    return put(values, best.value), put(indices, best.pixel)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "fold": _fold,
    "unfold": _unfold,
    "window_largest": _window_largest,
    "window_sums": _window_sums,
}

TRACED: dict[str, frozenset[str]] = {name: frozenset({"first"}) for name in REPLACEMENTS}

"""Arrays of which a map takes elements along axes of their own, for NumPy and JAX: tables, and what is placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ...runtime.spans import Span
from . import Array

__all__ = ["Placed", "Table"]


@dataclass(frozen=True, slots=True)
class _Strided:
    """A strided array with axes besides those of a map.

    Attributes:
        xp: the array library.
        vector: the elements.
        start: the first one.
        shape: of the map.
        strides: along its axes.
    """

    xp: Any
    vector: Array
    start: Any
    shape: tuple[int, ...]
    strides: Sequence[int]

    def __getitem__(self, part: slice) -> Self:
        """Return the array for the elements of a map in a range of its first axis."""
        start = self.start + part.start * self.strides[0]
        return replace(self, start=start, shape=(part.stop - part.start, *self.shape[1:]))

    def _sum(self, steps: Sequence[int], start: Any) -> Any:
        """Return for each element the sum of its indices times these steps, with an axis for each of the map."""
        total = self.xp.asarray(start)
        for axis, (size, step) in enumerate(zip(self.shape, steps, strict=True)):
            if step:
                others = (1,) * (len(self.shape) - axis - 1)
                total = total + (self.xp.arange(size) * step).reshape(-1, *others)
        return total


@dataclass(frozen=True, slots=True)
class Table(_Strided):
    """A strided array with an axis besides those of a map.

    Attributes:
        step: the distance of elements along the table's own axis.
        length: of that.
    """

    step: int
    length: int

    def __call__(self, at: Array, fill: Any, out: Array | None = None) -> Array:
        """Return the elements at places along the table's axis, and `fill` where that has none.

        Args:
            at: u32, with an axis for each of the map, of length 1 where it is the same along that; or a number.
            fill: a number.
            out: of the map's shape, where NumPy may write them.
        """
        xp, options = self.xp, {"mode": "clip"} if out is None else {"mode": "clip", "out": out}
        if not self.length:
            return xp.full(self.shape, fill, self.vector.dtype)
        at = at.reshape(at.shape or (1,) * len(self.shape))
        moving = [axis for axis, size in enumerate(at.shape) if size > 1]
        along = [axis for axis, stride in enumerate(self.strides) if stride and self.shape[axis] > 1]
        found = None  # as long as the table is not known to be contiguous, with its axis where places differ
        if moving and not any(moving[0] <= axis <= moving[-1] for axis in along):
            first, end = moving[0], moving[-1] + 1
            shape = (*self.shape[:first], self.length, *self.shape[end:])
            strides = (*self.strides[:first], self.step, *self.strides[end:])
            inner = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
            if all(size == 1 or stride == wanted for size, stride, wanted in zip(shape, strides, inner, strict=True)):
                table = xp.strided(self.vector, self.start, shape, strides)
                found = xp.take(table, at.reshape(at.shape[first:end]), axis=first, **options)
        if found is None:
            offsets = at.astype(xp.arange(0).dtype) * self.step + self._sum(self.strides, self.start)
            found = xp.take(self.vector, offsets, mode="clip")
        return xp.masked(found, at >= self.length, fill)


@dataclass(frozen=True, slots=True)
class Placed(_Strided):
    """A strided array that is placed in a part of a map.

    Attributes:
        spans: the axes of the array besides.
    """

    spans: Sequence[Span]

    def __getitem__(self, part: slice) -> Placed:
        """Return the array for the elements of a map in a range of its first axis."""
        spans = [span._replace(start=span.start - part.start * span.steps[0]) for span in self.spans]
        return replace(_Strided.__getitem__(self, part), spans=spans)

    def __call__(self, fill: Any, out: Array | None = None) -> Array:
        """Return the elements, and `fill` where there is none.

        Args:
            fill: a number.
            out: of the map's shape, where NumPy may write them.
        """
        start, starts, steps = self.start, [0] * len(self.shape), [1] * len(self.shape)
        counts, strides = [*self.shape], [*self.strides]
        for span in self.spans:
            axes, spacing = span.form.axes, span.spacing
            if len(axes) != 1 or span.form.has_steps or strides[axes[0]]:
                return self._one_by_one(fill)
            (axis,) = axes
            first = max(0, -(span.start // spacing))  # of the elements that are in the map
            starts[axis] = begin = span.start + first * spacing
            end = min(span.start + span.extent, self.shape[axis])
            start = start + first * span.stride
            steps[axis], counts[axis], strides[axis] = spacing, max(0, -((begin - end) // spacing)), span.stride
        values = self.xp.strided(self.vector, start, counts, strides)
        target = self.xp.empty(self.shape, self.vector.dtype) if out is None else out
        return self.xp.placed(target, fill, starts, steps, values)

    def _one_by_one(self, fill: Any) -> Array:
        """Return the elements, each by its position on each axis of the array."""
        xp = self.xp
        positions = [self._sum(span.steps, -span.start) for span in self.spans]
        is_there, at = True, self._sum(self.strides, self.start)
        for position, span in zip(positions, self.spans, strict=True):
            is_there = is_there & (position >= 0) & (position < span.extent) & (position % span.spacing == 0)
            at = at + position // span.spacing * span.stride
        at, is_there = (xp.broadcast_to(array, self.shape) for array in (at, is_there))
        found = xp.take(self.vector, at, mode="clip")
        return xp.masked(found, ~is_there, fill)

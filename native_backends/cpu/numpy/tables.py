"""Tables of which a map takes elements along an axis of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.numpy_arrays import strided
from .library import Array

__all__ = ["Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """A strided array with an axis besides those of a map.

    Attributes:
        vector: the elements.
        start: the first one.
        shape: of the map.
        strides: along its axes.
        step: the distance of elements along the table's own axis.
        length: of that.
    """

    vector: Array
    start: int
    shape: tuple[int, ...]
    strides: Sequence[int]
    step: int
    length: int

    def __getitem__(self, part: slice) -> Table:
        """Return the table of the elements of a map in a range of its first axis."""
        start = self.start + part.start * self.strides[0]
        return replace(self, start=start, shape=(part.stop - part.start, *self.shape[1:]))

    def __call__(self, at: Any, fill: Any, out: Array | None = None) -> Array:
        """Return the elements at places along the table's axis, and `fill` where that has none.

        Args:
            at: u32, with an axis for each of the map, of length 1 where it is the same along that; or a number.
            fill: a number.
            out: of the map's shape, where they are written.
        """
        if np.ndim(at) == 0:
            at = np.full((1,) * len(self.shape), at)
        if not self.length:
            found = np.full(self.shape, fill, self.vector.dtype)
        else:
            found = self._found(at, out)
            is_beyond = at >= self.length
            if is_beyond.any():
                np.copyto(found, fill, where=is_beyond)
        if out is None or found is out:
            return found
        out[...] = found
        return out

    def _found(self, at: Array, out: Array | None) -> Array:
        """Return the elements at places, any where a place is beyond the axis, in an array that may be changed."""
        moving = [axis for axis, size in enumerate(at.shape) if size > 1]
        along = [axis for axis, stride in enumerate(self.strides) if stride and self.shape[axis] > 1]
        if moving and not any(moving[0] <= axis <= moving[-1] for axis in along):
            first, end = moving[0], moving[-1] + 1
            shape = (*self.shape[:first], self.length, *self.shape[end:])
            strides = (*self.strides[:first], self.step, *self.strides[end:])
            table = strided(self.vector, self.start, shape, strides)
            if table.flags.c_contiguous:
                return np.take(table, at.reshape(at.shape[first:end]), axis=first, out=out, mode="clip")
        places = at.astype(np.intp)
        if self.step != 1:
            places *= self.step
        offset: Any = self.start
        for axis in along:
            others = (1,) * (len(self.shape) - axis - 1)
            offset = offset + (np.arange(self.shape[axis]) * self.strides[axis]).reshape(-1, *others)
        return np.take(self.vector, places + offset if along or self.start else places, mode="clip")

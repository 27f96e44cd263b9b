"""Tables of which a map takes elements along an axis of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.numpy_arrays import strided
from .library import Array

__all__ = ["Table"]


class Table(NamedTuple):
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
    strides: tuple[int, ...]
    step: int
    length: int

    def __getitem__(self, part: slice) -> Table:
        """Return the table of some elements of the map's first axis."""
        count = min(part.stop, self.shape[0]) - part.start
        return self._replace(start=self.start + part.start * self.strides[0], shape=(count, *self.shape[1:]))

    def __call__(self, at: Any, fill: Any, out: Array | None = None) -> Array:
        """Return the elements at places along the table's axis, and `fill` where that has none.

        Args:
            at: u32, with an axis for each of the map, of length 1 where it is the same along that; or a number.
            fill: a number.
            out: of the map's shape, where they are written.
        """
        at = np.asarray(at).reshape(np.shape(at) or (1,) * len(self.shape))
        is_beyond = at >= self.length
        if not self.length:
            found = np.full(self.shape, fill, self.vector.dtype)
        else:
            found = self._found(np.minimum(at, self.length - 1).astype(np.intp), out)
            if is_beyond.any():
                np.copyto(found, fill, where=is_beyond)
        if out is None or found is out:
            return found
        out[...] = found
        return out

    def _found(self, at: Array, out: Array | None) -> Array:
        """Return the elements at places that are all within the table, in an array that may be changed."""
        moving = [axis for axis, size in enumerate(at.shape) if size > 1]
        axis = moving[0] if moving else next((n for n, stride in enumerate(self.strides) if not stride), None)
        if len(moving) <= 1 and axis is not None and not self.strides[axis]:
            shape = (*self.shape[:axis], self.length, *self.shape[axis + 1 :])
            strides = (*self.strides[:axis], self.step, *self.strides[axis + 1 :])
            table = strided(self.vector, self.start, shape, strides)
            if table.flags.c_contiguous:
                places = np.broadcast_to(at.reshape(-1), (self.shape[axis],))
                return np.take(table, places, axis=axis, out=out, mode="clip")
        places = at * self.step + self.start
        for number, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            along = (1,) * number + (size,) + (1,) * (len(self.shape) - number - 1)
            places = places + (np.arange(size) * stride).reshape(along)
        return np.take(self.vector, places, out=out, mode="clip")

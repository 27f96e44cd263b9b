"""Strides of views of one shape, in elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["collapse", "row_major_strides"]

Shape = tuple[int, ...]


@lru_cache(4096)  # a launch asks several times whether tensors are contiguous
def row_major_strides(shape: Shape) -> Shape:
    """Return the strides of a contiguous array: elements from one index to the next along each axis."""
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def collapse(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Merge adjacent axes of strided views of one shape where possible; return the new shape and strides."""
    sizes: list[int] = []
    merged: list[list[int]] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if sizes and all(outer == step * size for outer, step in zip(merged[-1], steps, strict=True)):
            sizes[-1], merged[-1] = sizes[-1] * size, steps
        else:
            sizes.append(size)
            merged.append(steps)
    if not sizes:
        sizes, merged = [1], [[0] * len(strides)]
    return tuple(sizes), list(zip(*merged, strict=True))

"""The element types of 16 bits: two elements to a word, the first in its lower half."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Any

from .dtypes import DType

__all__ = ["BFLOAT16", "FLOAT16", "HALVES", "HalfType"]


@dataclass(frozen=True, slots=True, eq=False)
class HalfType(DType):
    """A float of 16 bits, which kernels read and write as f32.

    Memoryviews have neither type, so values are read as float32, which holds them exactly. NumPy gets float16, but
    float32 for bfloat16, which it has not.
    """

    itemsize: int = 2

    def cast(self, raw: memoryview, shape: tuple[int, ...]) -> Any:
        """Whole words of halves as a memoryview of float32."""
        size = 1
        for one in shape:
            size *= one
        halves = raw.cast("B")[: 2 * size]
        wide: Any = memoryview(self.widened(halves)).cast("B")
        return wide.cast("f", list(shape)) if size else wide.cast("f")

    def widened(self, halves: memoryview) -> Any:
        """The float32 of each half, as bytes."""
        if self.name == "float16":
            return array("f", struct.unpack(f"<{halves.nbytes // 2}e", halves))
        content = bytearray(2 * halves.nbytes)
        content[2::4], content[3::4] = halves[0::2], halves[1::2]
        return content


FLOAT16 = HalfType("float16", "f32", "f")
BFLOAT16 = HalfType("bfloat16", "f32", "f")

HALVES = {one.name: one for one in (FLOAT16, BFLOAT16)}
"""By name."""

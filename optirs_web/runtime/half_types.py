"""The element types of 16 bits: two elements to a word, the first in its lower half."""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass
from typing import Any

from .dtypes import DType, widened

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
        halves = raw.cast("B")[: 2 * math.prod(shape)]
        wide: Any = self.widened(halves)
        return wide.cast("f", list(shape)) if wide.nbytes else wide.cast("f")

    def widened(self, halves: memoryview) -> memoryview:
        """The float32 of each half, as bytes."""
        if self.name == "float16":
            return memoryview(array("f", struct.unpack(f"<{halves.nbytes // 2}e", halves))).cast("B")
        return widened(halves)


FLOAT16 = HalfType("float16", "f32", "f")
BFLOAT16 = HalfType("bfloat16", "f32", "f")

HALVES = {one.name: one for one in (FLOAT16, BFLOAT16)}
"""By name."""

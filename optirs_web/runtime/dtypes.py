"""The element types that a tensor can have, in NumPy's, WGSL's and the buffer protocol's words."""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from ..kernel import Type

__all__ = ["BOOL", "DTYPES", "FLOAT32", "INT32", "UINT32", "DType", "DTypeLike", "dtype", "widened"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """One element type; equal to its name. `format` is its code in the buffer protocol (and in `struct`).

    On a device an element takes `itemsize` bytes; a bool is 0 or 1 there.
    """

    name: str
    wgsl: str
    format: str
    itemsize: int = 4

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def copied_as(self) -> Type:
        """The WGSL type of elements in a kernel that only moves them: bits, where there are fewer than 32."""
        return cast("Type", self.wgsl) if self.itemsize == 4 else "u32"

    def nbytes(self, size: int) -> int:
        """Return the bytes that `size` elements take, rounded up to words of 4 bytes."""
        return -(-size * self.itemsize // 4) * 4

    def cast(self, raw: memoryview, shape: tuple[int, ...]) -> Any:
        """Bytes as a memoryview of this type and shape; of one empty axis where there are no bytes."""
        view: Any = raw.cast("B")
        if self.format == "?":
            view = memoryview(bytes(view[:: self.itemsize]))
        return view.cast(self.format, list(shape)) if raw.nbytes else view.cast(self.format)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackedFloat(DType):
    """A float of 16 bits, two to a word, the first in its lower half. Kernels read and write it as f32.

    Memoryviews have neither type, so values are read as float32, which holds them exactly. NumPy gets float16, but
    float32 for bfloat16, which it lacks.
    """

    itemsize: int = 2

    def cast(self, raw: memoryview, shape: tuple[int, ...]) -> Any:
        """Return whole words of elements as a memoryview of float32."""
        packed = raw.cast("B")[: 2 * math.prod(shape)]
        wide: Any = self.widened(packed)
        return wide.cast("f", list(shape)) if wide.nbytes else wide.cast("f")

    def widened(self, packed: memoryview) -> memoryview:
        """Return the float32 of each element, as bytes."""
        if self.name == "float16":
            return memoryview(array("f", struct.unpack(f"<{packed.nbytes // 2}e", packed))).cast("B")
        return widened(packed)


FLOAT32 = DType("float32", "f32", "f")
INT32 = DType("int32", "i32", "i")
UINT32 = DType("uint32", "u32", "I")
BOOL = DType("bool", "u32", "?")

FLOAT16 = PackedFloat("float16", "f32", "f")
BFLOAT16 = PackedFloat("bfloat16", "f32", "f")

DTYPES = {type_.name: type_ for type_ in (FLOAT32, INT32, UINT32, BOOL, FLOAT16, BFLOAT16)}
"""By name."""

DTypeLike = str | DType | type
"""Arguments of `dtype`. NumPy's types have the names of ours, so NumPy need not be loaded."""

_OF_PYTHON = {float: FLOAT32, int: INT32, bool: BOOL}


def widened(bfloat16: memoryview) -> memoryview:
    """Return the bytes of the float32 of each bfloat16, which is its upper half."""
    content = bytearray(2 * bfloat16.nbytes)
    content[2::4], content[3::4] = bfloat16[0::2], bfloat16[1::2]
    return memoryview(content)


def dtype(name: DTypeLike) -> DType:
    """Return the type of that name, of NumPy's type or dtype (``np.float32``), or of Python's float, int or bool.

    Python's types are what `optirs_web.tensor` makes of their numbers: float is float32, int is int32.

    Raises:
        UnsupportedError: no tensor can have that type; the message lists those that it can.
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, type):
        if name in _OF_PYTHON:
            return _OF_PYTHON[name]
        name = name.__name__.removesuffix("_")  # np.bool_
    if str(name) not in DTYPES:
        raise UnsupportedError(f"dtype '{name}' is not supported; use one of {', '.join(DTYPES)}")
    return DTYPES[str(name)]

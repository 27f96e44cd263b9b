"""The element types that a tensor can have, in NumPy's, WGSL's and the buffer protocol's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError

__all__ = ["BOOL", "DTYPES", "FLOAT32", "INT32", "UINT32", "DType", "DTypeLike", "dtype", "widened"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type; equal to its name. `format` is its code in the buffer protocol (and in `struct`).

    On a device every element takes four bytes, but for those of `half_types`; a bool is 0 or 1 there.
    """

    name: str
    wgsl: str
    format: str
    itemsize: int = 4

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def nbytes(self, size: int) -> int:
        """Return the bytes that `size` elements take, rounded up to words of 4 bytes."""
        return -(-size * self.itemsize // 4) * 4

    def cast(self, raw: memoryview, shape: tuple[int, ...]) -> Any:
        """Bytes as a memoryview of this type and shape; of one empty axis where there are no bytes."""
        view: Any = raw.cast("B")
        if self.format == "?":
            view = memoryview(bytes(view[:: self.itemsize]))
        return view.cast(self.format, list(shape)) if raw.nbytes else view.cast(self.format)


FLOAT32 = DType("float32", "f32", "f")
INT32 = DType("int32", "i32", "i")
UINT32 = DType("uint32", "u32", "I")
BOOL = DType("bool", "u32", "?")

DTYPES = {one.name: one for one in (FLOAT32, INT32, UINT32, BOOL)}
"""By name."""

DTypeLike = str | DType | type
"""Arguments of `dtype`. NumPy's types have the names of ours, so NumPy need not be loaded."""

_OF_PYTHON = {float: FLOAT32, int: INT32, bool: BOOL}


def widened(bfloat16: memoryview) -> memoryview:
    """The bytes of the float32 of each bfloat16: these are their upper halves."""
    content = bytearray(2 * bfloat16.nbytes)
    content[2::4], content[3::4] = bfloat16[0::2], bfloat16[1::2]
    return memoryview(content)


def dtype(name: DTypeLike) -> DType:
    """The type of that name, of NumPy's type or dtype (``np.float32``), or of Python's float, int or bool.

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
    if str(name) in DTYPES:
        return DTYPES[str(name)]
    from .half_types import HALVES

    if str(name) not in HALVES:
        raise UnsupportedError(f"dtype '{name}' is not supported; use one of {', '.join(DTYPES)}, float16, bfloat16")
    return HALVES[str(name)]

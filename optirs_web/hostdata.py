"""The values of tensors on the host: from arrays, buffers, nested lists and numbers for upload, and back to them.

NumPy is used where it is installed and the data needs converting; buffers of a type that a tensor can have,
lists and numbers need no NumPy.
"""

from __future__ import annotations

import copy
import math
import struct
import sys
import warnings
from array import array
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

from .errors import ShapeError, UnsupportedError
from .runtime.dtypes import BOOL, FLOAT32, INT32, UINT32, DType

__all__ = ["HostData", "host_data", "outside"]

_AS_THEY_ARE = {"f": FLOAT32, "i": INT32, "I": UINT32}
_NARROWED = {"float64": FLOAT32, "int64": INT32, "float16": FLOAT32, "int16": INT32, "int8": INT32, "uint8": INT32,
             "bool": BOOL}  # fmt: skip
_LOSSY = {"float64", "int64"}
_BUFFER_FORMATS = {"f": "float32", "i": "int32", "I": "uint32", "d": "float64", "e": "float16", "q": "int64",
                   "l": f"int{8 * array('l').itemsize}", "h": "int16", "b": "int8", "B": "uint8",
                   "?": "bool"}  # fmt: skip
_ARRAY_FORMATS = {"f32": "f", "i32": "i", "u32": "I"}
_warned: set[str] = set()
_DEEPEST = 64  # as many axes as a memoryview can have


class HostData(NamedTuple):
    """Contiguous bytes with the shape and type of the tensor on the device."""

    content: memoryview
    shape: tuple[int, ...]
    dtype: DType

    def typed(self) -> memoryview:
        """Return a memoryview of the type and shape; of one empty axis where there are no elements."""
        view: memoryview = self.dtype.cast(self.content, self.shape)
        return view

    def array(self) -> Any:
        """Return a NumPy array; float32 for bfloat16, which NumPy has not."""
        import numpy as np

        if self.dtype is BOOL:
            return np.frombuffer(self.content, np.uint32).reshape(self.shape) != 0
        if self.dtype.itemsize < 4:
            array_type = "float16" if self.dtype == "float16" else "float32"
            return np.asarray(self.typed(), array_type).reshape(self.shape)
        return np.frombuffer(self.content, dtype=self.dtype.name).reshape(self.shape)

    def tolist(self) -> Any:
        """Return nested lists, or a number where there are no axes."""
        if math.prod(self.shape):
            return self.typed().tolist()
        nested: Any = []
        for size in reversed(self.shape[: self.shape.index(0)]):
            nested = [copy.deepcopy(nested) for _ in range(size)]
        return nested

    def item(self) -> float | int:
        """Return the only element."""
        value: float | int = self.dtype.cast(self.content, (1,))[0]
        return value


def host_data(data: Any, dtype: DType | None = None) -> HostData:
    """Convert `data` to contiguous bytes of a type that tensors have.

    float64 becomes float32 and int64 int32, with a warning once. `dtype` requests a type, without a warning; as bool,
    everything but 0 is True.

    Raises:
        UnsupportedError: the data is of a type that no tensor can have.
        ShapeError: a nested list is ragged.
        OverflowError: an integer does not fit the type.
    """
    if isinstance(data, HostData):
        return data
    if isinstance(data, (Real, list, tuple)):
        return _from_lists(data, dtype)
    if hasattr(data, "__dlpack__") and not type(data).__module__.startswith(("numpy", "optirs_web")):
        data = _exported_array(data)
    if hasattr(data, "__array__"):
        return _from_array(data, dtype)
    try:
        view = memoryview(data)
    except TypeError:
        raise UnsupportedError(f"a tensor cannot be made from {type(data).__name__}") from None
    view_dtype = _AS_THEY_ARE.get(view.format)
    if view_dtype is not None and view.c_contiguous and dtype in (None, view_dtype):
        return HostData(view.cast("B") if view.nbytes else memoryview(b""), tuple(view.shape or ()), view_dtype)
    return _from_buffer(view, dtype)


def _exported_array(data: Any) -> Any:
    """Return an array of another library as NumPy's: of torch, JAX, TensorFlow, or any that has `__dlpack__`.

    Raises:
        UnsupportedError: it has no values on the host, or a type that NumPy lacks.
    """
    import numpy as np

    try:
        if hasattr(data, "detach"):  # torch's, which it exports without their history
            data = data.detach()
            data = data.float() if str(data.dtype) == "torch.bfloat16" else data
        values = np.asarray(data) if hasattr(data, "__array__") else np.from_dlpack(data)
    except (BufferError, NotImplementedError, RuntimeError, TypeError) as error:
        raise UnsupportedError(f"a tensor cannot be made from this {type(data).__name__}: {error}") from error
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values  # JAX's


def _from_buffer(view: memoryview, dtype: DType | None) -> HostData:
    """Convert a buffer by NumPy, or element by element where NumPy is absent."""
    try:
        return _from_array(view, dtype)
    except ModuleNotFoundError:
        name = _BUFFER_FORMATS.get(view.format)
        if name is None:
            raise UnsupportedError(f"buffer format '{view.format}' is not supported; convert the data first") from None
    if dtype is None:
        dtype = _AS_THEY_ARE.get(view.format) or _NARROWED[name]
        _warn_of_loss(name, dtype)
    flat = view.tobytes()
    values: list[Any]
    if name == "bool":  # bytes other than 0 and 1 are undefined in C
        values = [byte != 0 for byte in flat]
    else:
        values = list(struct.unpack(f"{len(flat) // view.itemsize}{view.format}", flat))
    return _from_flat(values, tuple(view.shape or ()), dtype)


def _warn_of_loss(name: str, dtype: DType) -> None:
    if name in _LOSSY and name not in _warned:
        _warned.add(name)
        warnings.warn(f"{name} data becomes {dtype}; convert it yourself to silence this", stacklevel=outside())


def _from_array(data: Any, dtype: DType | None) -> HostData:
    import numpy as np

    values = np.asarray(data)
    if values.dtype == bool:  # another library's bytes may be others than 0 and 1
        values = values.view(np.uint8) != 0
    if dtype is None:
        name = values.dtype.name
        dtype = next(
            (candidate for candidate in _AS_THEY_ARE.values() if candidate.name == name), None
        ) or _NARROWED.get(name)
        if dtype is None:
            raise UnsupportedError(f"dtype '{name}' is not supported; convert the data to float32 or int32")
        _warn_of_loss(name, dtype)
    if values.dtype.kind in "OSUcMmV":
        raise UnsupportedError(f"dtype '{values.dtype}' is not supported; convert the data to float32 or int32")
    if dtype is BOOL:
        values = values != 0
    with np.errstate(over="ignore", invalid="ignore"):
        converted = np.ascontiguousarray(values, dtype=_ARRAY_FORMATS[dtype.wgsl])
    if dtype is FLOAT32:
        if values.dtype.kind == "f" and values.dtype.itemsize > 4 and (np.isinf(converted) & ~np.isinf(values)).any():
            raise OverflowError("a value does not fit float32")
    elif values.dtype != converted.dtype and (converted.astype(np.float64) != values.astype(np.float64)).any():
        raise OverflowError(f"a value does not fit {dtype}")
    return HostData(converted.data.cast("B") if converted.size else memoryview(b""), values.shape, dtype)


def outside() -> int:
    """Return the stack level of the first caller outside of this package, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("optirs_web."):
        level, frame = level + 1, frame.f_back
    return level


def _from_lists(data: Any, dtype: DType | None) -> HostData:
    shape = _shape_of(data)
    flat = list(_flatten(data, shape))
    if dtype is None:
        dtype = _type_of(flat)
    return _from_flat(flat, shape, dtype)


def _type_of(flat: list[Any]) -> DType:
    if flat and all(isinstance(value, bool) for value in flat):
        return BOOL
    return INT32 if flat and all(isinstance(value, Integral) for value in flat) else FLOAT32


def _from_flat(flat: list[Any], shape: tuple[int, ...], dtype: DType) -> HostData:
    if dtype is BOOL:
        flat = [value != 0 for value in flat]
    if dtype is not FLOAT32 and any(value != int(value) for value in flat if math.isfinite(value)):
        raise OverflowError(f"a value does not fit {dtype}")
    convert = float if dtype is FLOAT32 else int
    try:
        values = array(_ARRAY_FORMATS[dtype.wgsl], (convert(value) for value in flat))
    except (OverflowError, ValueError):
        raise OverflowError(f"a value does not fit {dtype}") from None
    if dtype is FLOAT32 and any(
        math.isinf(converted) and not math.isinf(value) for converted, value in zip(values, flat, strict=True)
    ):
        raise OverflowError("a value does not fit float32")
    return HostData(memoryview(values).cast("B") if flat else memoryview(b""), shape, dtype)


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, (list, tuple)):
        if len(shape) == _DEEPEST:
            raise ShapeError(f"lists are nested more than {_DEEPEST} deep")
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _flatten(data: Any, shape: tuple[int, ...]) -> Iterator[Any]:
    if not shape:
        if not isinstance(data, Real):
            raise (ShapeError("the nested lists are ragged") if isinstance(data, (list, tuple))
                   else UnsupportedError(f"a tensor cannot be made from {type(data).__name__}"))  # fmt: skip
        yield data
        return
    if not isinstance(data, (list, tuple)) or len(data) != shape[0]:
        raise ShapeError("the nested lists are ragged")
    for part in data:
        yield from _flatten(part, shape[1:])

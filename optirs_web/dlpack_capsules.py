"""DLPack's structures in capsules (https://dmlc.github.io/dlpack), by which libraries exchange memory.

Capsules of both kinds are made and consumed: "dltensor", and since DLPack 1.0 "dltensor_versioned".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Described", "capsule_of", "consumed", "is_versioned"]

_VERSION = (1, 0)
_READ_ONLY, _IS_COPIED = 1, 2  # flags
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED = {_PLAIN: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}

_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Plain(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_KINDS: dict[bytes, type[_Plain] | type[_Versioned]] = {_PLAIN: _Plain, _VERSIONED: _Versioned}


class Described(NamedTuple):
    """The memory, shape and type of an array.

    Attributes:
        address: of its first element.
        device: DLPack's kind of device, and the index of the device.
        shape: elements along each axis.
        strides: elements from one to the next along each axis.
        kind: DLPack's code of the type, and its bits: (2, 32) is float32.
        is_read_only: it must not be written, for which capsules before DLPack 1.0 have no flag.
    """

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: tuple[int, int]
    is_read_only: bool = False


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C API. It takes capsules as addresses, as one being destroyed can be no object."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)

_lent: dict[int, tuple[Any, Callable[[], None]]] = {}
"""Exported memory by its structure's address: the structure with its arrays, and the function to call at the end."""


def _end(address: int) -> None:
    _, end = _lent.pop(address)
    end()


def _drop(capsule: int) -> None:
    """Release the memory of a capsule that was not consumed."""
    for name in _KINDS:
        if _is_valid(capsule, name):
            _end(_pointer(capsule, name))


_deleter, _destructor = _DELETER(_end), _DESTRUCTOR(_drop)


def is_versioned(max_version: tuple[int, int] | None) -> bool:
    """Return whether a consumer reads the capsules of DLPack 1.0, which have flags."""
    return max_version is not None and max_version >= _VERSION


def capsule_of(
    array: Described, end: Callable[[], None], max_version: tuple[int, int] | None, *, is_copied: bool
) -> Any:
    """Return a capsule of an array for one consumer.

    Args:
        array: the array.
        end: called once, in any thread, when the consumer releases it.
        max_version: the newest version of DLPack that the consumer reads; None for those before 1.0.
        is_copied: only the consumer uses the memory.
    """
    name = _VERSIONED if is_versioned(max_version) else _PLAIN
    managed = _KINDS[name]()
    numbers = ctypes.c_int64 * max(len(array.shape), 1)
    shape, strides = numbers(*array.shape), numbers(*array.strides)
    managed.tensor = _Tensor(
        data=array.address,
        device_type=array.device[0],
        device_id=array.device[1],
        ndim=len(array.shape),
        code=array.kind[0],
        bits=array.kind[1],
        lanes=1,
        shape=shape,
        strides=strides,
        byte_offset=0,
    )
    managed.deleter = _deleter
    if isinstance(managed, _Versioned):
        managed.major, managed.minor = _VERSION
        managed.flags = _READ_ONLY * array.is_read_only | _IS_COPIED * is_copied
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides), end
    return _new(address, name, _destructor)


def consumed(capsule: Any) -> tuple[Described, Callable[[], None]]:
    """Consume a capsule: return its array, and a function to call once to release the memory.

    Raises:
        BufferError: it is none of DLPack's, or of a later version, or was consumed already; or its type has lanes.
    """
    capsule_address = id(capsule)
    name = next((kind_name for kind_name in _KINDS if _is_valid(capsule_address, kind_name)), None)
    if name is None:
        raise BufferError("this is not a DLPack capsule, or was already consumed")
    address = _pointer(capsule_address, name)
    managed = _KINDS[name].from_address(address)
    if isinstance(managed, _Versioned) and managed.major != _VERSION[0]:
        raise BufferError(f"this capsule is of DLPack {managed.major}; this library reads {_VERSION[0]}")
    tensor = managed.tensor
    if tensor.lanes != 1:
        raise BufferError(f"an element of this array has {tensor.lanes} lanes; make it an axis")
    shape = tuple(tensor.shape[: tensor.ndim])
    described = Described(
        address=(tensor.data or 0) + tensor.byte_offset,
        device=(tensor.device_type, tensor.device_id),
        shape=shape,
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _row_major(shape),
        kind=(tensor.code, tensor.bits),
        is_read_only=isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY),
    )
    _rename(capsule_address, _USED[name])

    def end() -> None:
        if managed.deleter:
            managed.deleter(address)

    return described, end


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))[: len(shape)]

"""DLPack's structures in capsules (https://dmlc.github.io/dlpack): what a library hands over for another to use.

Capsules of both kinds are made and taken: "dltensor", and since DLPack 1.0 "dltensor_versioned".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Described", "is_versioned", "made", "taken"]

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
    """An array: where it lies, and as what.

    Attributes:
        address: of its first element.
        device: DLPack's kind of device, and which one of that kind.
        shape: elements along each axis.
        strides: elements from one to the next along each axis.
        kind: DLPack's code of the type, and its bits: (2, 32) is float32.
        is_read_only: nobody may write it, which capsules before DLPack 1.0 cannot say.
    """

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: tuple[int, int]
    is_read_only: bool = False


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's own. A capsule is an address to it, since one that is being destroyed can be no object."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)

_lent: dict[int, tuple[Any, Callable[[], None]]] = {}
"""What others use, by the address of its structure: that with all it points to, and what to call in the end."""


def _end(address: int) -> None:
    _, end = _lent.pop(address)
    end()


def _drop(capsule: int) -> None:
    """A capsule that nobody took over."""
    for name in _KINDS:
        if _is_valid(capsule, name):
            _end(_pointer(capsule, name))


_deleter, _destructor = _DELETER(_end), _DESTRUCTOR(_drop)


def is_versioned(max_version: tuple[int, int] | None) -> bool:
    """Whether a consumer reads the capsules of DLPack 1.0, which have flags."""
    return max_version is not None and max_version >= _VERSION


def made(one: Described, end: Callable[[], None], max_version: tuple[int, int] | None, *, is_copied: bool) -> Any:
    """A capsule for one consumer.

    Args:
        one: what it describes.
        end: called once, in any thread, when the consumer needs it no more.
        max_version: the newest version of DLPack that the consumer reads; None for those before 1.0.
        is_copied: the consumer alone has it.
    """
    name = _VERSIONED if is_versioned(max_version) else _PLAIN
    managed = _KINDS[name]()
    numbers = ctypes.c_int64 * max(len(one.shape), 1)
    shape, strides = numbers(*one.shape), numbers(*one.strides)
    managed.tensor = _Tensor(
        data=one.address,
        device_type=one.device[0],
        device_id=one.device[1],
        ndim=len(one.shape),
        code=one.kind[0],
        bits=one.kind[1],
        lanes=1,
        shape=shape,
        strides=strides,
        byte_offset=0,
    )
    managed.deleter = _deleter
    if isinstance(managed, _Versioned):
        managed.major, managed.minor = _VERSION
        managed.flags = _READ_ONLY * one.is_read_only | _IS_COPIED * is_copied
    address = ctypes.addressof(managed)
    _lent[address] = (managed, shape, strides), end
    return _new(address, name, _destructor)


def taken(capsule: Any) -> tuple[Described, Callable[[], None]]:
    """What a capsule describes, and what is to be called once when it is needed no more.

    Raises:
        BufferError: it is none of DLPack's, or of a version to come, or was taken already; or its type has lanes.
    """
    place = id(capsule)
    name = next((one for one in _KINDS if _is_valid(place, one)), None)
    if name is None:
        raise BufferError("this is not a DLPack capsule, or was already consumed")
    address = _pointer(place, name)
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
    _rename(place, _USED[name])

    def end() -> None:
        if managed.deleter:
            managed.deleter(address)

    return described, end


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides))[: len(shape)]

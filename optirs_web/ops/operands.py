"""Operands of arithmetic: tensors, numbers, and arrays that go to the device of the other operand."""

from __future__ import annotations

import math
import struct
from typing import Any

from ..launch import Operand, Shape, need_float32
from ..runtime.dtypes import FLOAT32
from ..tensor_class import Tensor, tensor

__all__ = ["as_number", "operand", "shape_of"]


def as_number(value: float) -> float:
    """The float32 nearest to a number, which is infinite beyond the largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", float(value)))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def operand(value: Any, other: Any) -> Operand:
    """A float32 tensor, or a number that float32 can hold; arrays go to the other operand's device.

    Raises:
        UnsupportedError: a tensor of integers.
    """
    if isinstance(value, (bool, int, float)):
        return as_number(value)
    if not isinstance(value, Tensor):
        value = tensor(value, device=other.device if isinstance(other, Tensor) else None, dtype=FLOAT32)
    need_float32("arithmetic", value)
    result: Tensor = value
    return result


def shape_of(value: Operand) -> Shape:
    """Return the shape of a tensor, and () for a number."""
    return value.shape if isinstance(value, Tensor) else ()

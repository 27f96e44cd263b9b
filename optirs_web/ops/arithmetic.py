"""Operations that are one map function."""

from __future__ import annotations

import math
import struct
from typing import Any

from ..autograd import record
from ..runtime.dtypes import FLOAT32
from ..tensors import Tensor, empty, tensor
from .launch import Operand, Shape, apply, apply_in_place, need_float32
from .reduce import sum_to

__all__ = ["add", "add_into", "clone", "divide", "exp", "multiply", "negate", "relu", "subtract"]


def _operand(value: Any, other: Any) -> Operand:
    """A float32 tensor, or a number that float32 can hold; arrays go to the other operand's device."""
    if isinstance(value, (bool, int, float)):
        try:
            return float(struct.unpack("f", struct.pack("f", float(value)))[0])
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, Tensor):
        value = tensor(value, device=other.device if isinstance(other, Tensor) else None, dtype=FLOAT32)
    need_float32("arithmetic", value)
    operand: Tensor = value
    return operand


def _shape(operand: Operand) -> Shape:
    return operand.shape if isinstance(operand, Tensor) else ()


def _binary(name: str, a: Any, b: Any) -> tuple[Operand, Operand, Tensor]:
    a, b = _operand(a, b), _operand(b, a)
    return a, b, apply(name, name, a, b)


def add(a: Any, b: Any) -> Tensor:
    """Sum a + b, broadcast. Gradients: g and g."""
    a, b, result = _binary("add", a, b)
    return record(result, (a, lambda g: sum_to(g, _shape(a))), (b, lambda g: sum_to(g, _shape(b))))


def subtract(a: Any, b: Any) -> Tensor:
    """Difference a - b, broadcast. Gradients: g and -g."""
    a, b, result = _binary("subtract", a, b)
    return record(result, (a, lambda g: sum_to(g, _shape(a))), (b, lambda g: sum_to(negate(g), _shape(b))))


def multiply(a: Any, b: Any) -> Tensor:
    """Product a * b, broadcast. Gradients: g b and g a."""
    a, b, result = _binary("multiply", a, b)
    return record(
        result,
        (a, lambda g: sum_to(multiply(g, b), _shape(a))),
        (b, lambda g: sum_to(multiply(g, a), _shape(b))),
    )


def divide(a: Any, b: Any) -> Tensor:
    """Quotient a / b, broadcast. Gradients: g / b and -g a / b²."""
    a, b, result = _binary("divide", a, b)
    return record(
        result,
        (a, lambda g: sum_to(divide(g, b), _shape(a))),
        (b, lambda g: sum_to(negate(divide(multiply(divide(g, b), a), b)), _shape(b))),
    )


def negate(x: Tensor) -> Tensor:
    """The value with its sign changed. Gradient: -g."""
    return record(apply("negate", "negate", x), (x, negate))


def exp(x: Tensor) -> Tensor:
    """The exponential of each element, within 2 ulp. Gradient: that exponential times g."""
    result = apply("exp", "exp_", x)
    value = result.detach()
    return record(result, (x, lambda g: multiply(g, value)))


def relu(x: Tensor) -> Tensor:
    """The larger of x and 0; NaN stays NaN. The gradient at 0 is 0, as in torch."""
    return record(apply("relu", "relu", x), (x, lambda g: apply("relu", "relu_grad", g, x)))


def add_into(target: Tensor, addend: Tensor) -> None:
    """Add to `target` in place; leaves no history."""
    apply_in_place("add", "add", target, addend)


def clone(x: Tensor) -> Tensor:
    """A copy in memory of its own; leaves no history."""
    result = empty(x.shape, x.dtype, x.device)
    x.device.copy(x.view, result.view)
    return result

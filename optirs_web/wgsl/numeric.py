"""Arithmetic on single numbers, as WGSL defines it for const-expressions.

Booleans, integers and floats are Python's; f32 and f16 are Python floats that the type can represent. A shader-creation
error of WGSL (a number out of range, division by zero, NaN, infinity) raises `ConstantError`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable

from .types import ABSTRACT_INT, BOOL, F16, F32, I32, U32, Scalar

__all__ = ["INTEGER_RANGES", "ConstantError", "Number", "binary", "convert", "fit", "reinterpret", "round_f32", "unary"]

Number = bool | int | float

INTEGER_RANGES: dict[Scalar, tuple[int, int]] = {
    I32: (-(2**31), 2**31 - 1),
    U32: (0, 2**32 - 1),
    ABSTRACT_INT: (-(2**63), 2**63 - 1),
}
_FLOAT_FORMATS = {F32: "<f", F16: "<e"}
_PATTERN_FORMATS = {F32: "<f", I32: "<i", U32: "<I"}


class ConstantError(ValueError):
    """A const-expression has no value; the checker adds its position."""


def round_f32(value: float) -> float:
    """Return the nearest f32. Raises OverflowError beyond its range."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def fit(value: Number, type_: Scalar) -> Number:
    """Return the value in a type: an integer, which must be in range, or a float, which is rounded."""
    if type_ == BOOL:
        return bool(value)
    if type_ in INTEGER_RANGES:
        low, high = INTEGER_RANGES[type_]
        if not low <= value <= high:
            raise ConstantError(f"{value} is out of range of {type_}")
        return int(value)
    try:
        number = float(value)
        if type_ in _FLOAT_FORMATS:
            layout = _FLOAT_FORMATS[type_]
            number = struct.unpack(layout, struct.pack(layout, number))[0]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConstantError(f"{'not a number' if math.isnan(number) else 'the value'} is out of range of {type_}")
    return number


def convert(value: Number, type_: Scalar) -> Number:
    """Convert explicitly, as in ``u32(2.7)``: floats are truncated to integers, integers keep their low bits."""
    if type_ == BOOL:
        return value != 0
    if type_ in INTEGER_RANGES:
        low, high = INTEGER_RANGES[type_]
        if isinstance(value, float):
            return min(max(math.trunc(value), low), high)
        return value if low <= value <= high else wrap(int(value), type_)
    return fit(value, type_)


def wrap(value: int, type_: Scalar) -> int:
    """Return the value modulo 2^32, in the type's range."""
    value &= 0xFFFFFFFF
    return value - 2**32 if type_ == I32 and value >= 2**31 else value


def reinterpret(value: Number, source: Scalar, target: Scalar) -> Number:
    """``bitcast`` between i32, u32 and f32."""
    result: Number = struct.unpack(_PATTERN_FORMATS[target], struct.pack(_PATTERN_FORMATS[source], value))[0]
    return fit(result, target)


def _quotient(a: int, b: int) -> int:
    magnitude = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def _divide(a: Number, b: Number) -> Number:
    if b == 0:
        raise ConstantError("division by zero")
    return _quotient(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def _remainder(a: Number, b: Number) -> Number:
    if b == 0:
        raise ConstantError("remainder of a division by zero")
    return a - b * _quotient(a, b) if isinstance(a, int) and isinstance(b, int) else math.fmod(a, b)


_ARITHMETIC: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
_COMPARISON: dict[str, Callable[[Number, Number], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BITS: dict[str, Callable[[int, int], int]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}


def binary(symbol: str, type_: Scalar, a: Number, b: Number) -> Number:
    """Return the value of ``a symbol b``; `type_` is that of the left operand (and, except in shifts, of the right).

    Sums, differences and products of i32 and u32 wrap, as they do at run time.
    """
    if symbol in "+-*" and type_ in (I32, U32):
        return wrap(int(_ARITHMETIC[symbol](a, b)), type_)
    if symbol in _ARITHMETIC:
        try:
            result = _ARITHMETIC[symbol](a, b)
        except OverflowError as error:
            raise ConstantError(f"{a} {symbol} {b} is out of range of {type_}") from error
        return fit(result, type_)
    if symbol in _COMPARISON:
        return _COMPARISON[symbol](a, b)
    if symbol in _BITS:
        return _BITS[symbol](int(a), int(b)) if type_ != BOOL else bool(_BITS[symbol](bool(a), bool(b)))
    if symbol in ("&&", "||"):
        return (a and b) if symbol == "&&" else (a or b)
    return _shift(symbol, type_, int(a), int(b))


def _shift(symbol: str, type_: Scalar, a: int, amount: int) -> int:
    width = 64 if type_ == ABSTRACT_INT else 32
    if amount >= width:
        raise ConstantError(f"a shift by {amount} is not less than the width of {type_}, {width} bits")
    if symbol == ">>":
        return a >> amount
    low, high = INTEGER_RANGES[type_]
    if not low <= a << amount <= high:
        raise ConstantError(f"{a} << {amount} is out of range of {type_}")
    return a << amount


def unary(symbol: str, type_: Scalar, a: Number) -> Number:
    """Return the value of ``symbol a``."""
    if symbol == "!":
        return not a
    if symbol == "~":
        return ~int(a) if type_ != U32 else ~int(a) & 0xFFFFFFFF
    return wrap(-int(a), type_) if type_ == I32 else fit(-a, type_)

"""Evaluates operators and built-in functions on constant scalars, vectors, arrays and structs.

A composite value is the tuple of its components, elements or members. Every result is rounded to its type; an error of
WGSL raises `ConstantError`. The checker calls these functions while it determines types, in the same pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from . import numeric
from .numeric import ConstantError, Number
from .syntax import Call, Expression, Literal, Position, TypeName
from .typerules import element_of, scalar_count
from .types import ABSTRACT_FLOAT, ABSTRACT_INT, F16, F32, I32, U32, Array, Scalar, Struct, Type, Vector

__all__ = [
    "MAX_CONSTANT_SCALARS",
    "ConstantError",
    "Value",
    "binary",
    "builtin",
    "convert",
    "converted",
    "literal",
    "reinterpret",
    "type_name",
    "unary",
    "zero",
]

Value: TypeAlias = "Number | tuple[Value, ...]"

# WGSL asks tools to hold const-expressions of arrays up to this many elements.
MAX_CONSTANT_SCALARS = 2047


def parts(value: Value, type_: Type) -> tuple[Value, ...]:
    """Return the components of a vector's value; for a scalar, the value alone."""
    return value if isinstance(type_, Vector) and isinstance(value, tuple) else (value,)


def _scalar(value: Value) -> Number:
    assert not isinstance(value, tuple)
    return value


def _spread(value: Value, type_: Type, size: int) -> list[Number]:
    """Return `size` components; a scalar is repeated."""
    numbers = [_scalar(component) for component in parts(value, type_)]
    return numbers * size if len(numbers) == 1 else numbers


def _gather(numbers: Sequence[Number], shape: Type) -> Value:
    return tuple(numbers) if isinstance(shape, Vector) else numbers[0]


def _element(type_: Type) -> Scalar:
    element = element_of(type_)
    assert isinstance(element, Scalar)
    return element


def converted(value: Value, source: Type, target: Type) -> Value:
    """Return the value after an implicit conversion, of an abstract type to a concrete one."""
    if source == target:
        return value
    match target:
        case Scalar():
            return numeric.fit(_scalar(value), target)
        case Vector(element=element):
            return tuple(numeric.fit(_scalar(part), element) for part in parts(value, target))
        case Array(element=inner) if isinstance(value, tuple):
            return tuple(converted(part, element_of(source), inner) for part in value)
    return value


def convert(value: Value, source: Type, target: Scalar) -> Value:
    """Return ``target(value)`` of a scalar or of each component of a vector. Abstract numbers must be in range."""
    result = []
    for part in parts(value, source):
        number = numeric.convert(_scalar(part), target)
        if element_of(source) in (ABSTRACT_INT, ABSTRACT_FLOAT) and target in (I32, U32):
            number = numeric.fit(math.trunc(_scalar(part)), target)
        result.append(number)
    return _gather(result, source)


def reinterpret(value: Value, source: Type, target: Type) -> Value | None:
    """Return the value of ``bitcast``; None if it is left to the device (f16, and vectors that change their size)."""
    known = (I32, U32, F32)
    if element_of(source) not in known or element_of(target) not in known:
        return None
    numbers = [numeric.reinterpret(_scalar(p), _element(source), _element(target)) for p in parts(value, source)]
    return _gather(numbers, target)


def unary(symbol: str, type_: Type, value: Value) -> Value:
    """``-x``, ``!x``, ``~x``."""
    return _gather([numeric.unary(symbol, _element(type_), _scalar(p)) for p in parts(value, type_)], type_)


def binary(symbol: str, left: tuple[Value, Type], right: tuple[Value, Type]) -> Value:
    """Return ``a symbol b`` of two values with their types, which the checker has accepted."""
    shape = left[1] if isinstance(left[1], Vector) else right[1]
    size = shape.size if isinstance(shape, Vector) else 1
    element = _element(left[1])
    pairs = zip(_spread(*left, size), _spread(*right, size), strict=True)
    return _gather([numeric.binary(symbol, element, a, b) for a, b in pairs], shape)


def zero(type_: Type) -> Value | None:
    """Return the zero value; None if it has too many scalars."""
    if scalar_count(type_) > MAX_CONSTANT_SCALARS:
        return None
    match type_:
        case Vector(size, element):
            return (numeric.fit(0, element),) * size
        case Array(element, int() as count):
            return (_some(zero(element)),) * count
        case Struct(members=members):
            return tuple(_some(zero(member.type)) for member in members)
        case Scalar():
            return numeric.fit(0, type_)
    return None


def _some(value: Value | None) -> Value:
    assert value is not None
    return value


# Built-in functions.


def _sign(x: Number) -> Number:
    return (x > 0) - (x < 0)


def _bit_positions(x: int) -> list[int]:
    return [i for i in range(32) if x >> i & 1]


def _first_leading(x: int) -> int:
    return max(_bit_positions(~x if x < 0 else x), default=-1)


def _smoothstep(low: float, high: float, x: float) -> float:
    t = min(max((x - low) / (high - low), 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)


def _clamp(x: Number, low: Number, high: Number) -> Number:
    if low > high:
        raise ConstantError(f"clamp between {low} and {high}: the lower bound is above the upper")
    return min(max(x, low), high)


def _extract(x: int, offset: int, count: int) -> int:
    if offset + count > 32:
        raise ConstantError(f"bits {offset} to {offset + count} are not in 32 bits")
    field = x >> offset & ((1 << count) - 1)
    return field - (1 << count) if x < 0 and count and field >> (count - 1) else field


def _round(x: float) -> float:
    return float(round(x))


# Functions of each component, computed in double precision and rounded to the type at the end.
_COMPONENTWISE: dict[str, Callable[..., Number]] = {
    "abs": abs, "sign": _sign, "min": min, "max": max, "clamp": _clamp,
    "acos": math.acos, "acosh": math.acosh, "asin": math.asin, "asinh": math.asinh, "atan": math.atan,
    "atanh": math.atanh, "atan2": math.atan2, "cos": math.cos, "cosh": math.cosh, "sin": math.sin,
    "sinh": math.sinh, "tan": math.tan, "tanh": math.tanh, "exp": math.exp, "exp2": lambda x: 2.0**x,
    "log": math.log, "log2": math.log2, "pow": math.pow, "sqrt": math.sqrt,
    "inverseSqrt": lambda x: 1.0 / math.sqrt(x), "ceil": math.ceil, "floor": math.floor, "round": _round,
    "trunc": math.trunc, "fract": lambda x: x - math.floor(x), "fma": lambda a, b, c: a * b + c,
    "mix": lambda a, b, t: a * (1 - t) + b * t, "step": lambda edge, x: float(x >= edge),
    "saturate": lambda x: min(max(x, 0.0), 1.0), "smoothstep": _smoothstep, "degrees": math.degrees,
    "radians": math.radians, "ldexp": math.ldexp,
    "quantizeToF16": lambda x: numeric.fit(x, F16),
    "countOneBits": lambda x: (x & 0xFFFFFFFF).bit_count(),
    "countLeadingZeros": lambda x: 32 - (x & 0xFFFFFFFF).bit_length(),
    "countTrailingZeros": lambda x: min(_bit_positions(x), default=32),
    "extractBits": _extract,
    "select": lambda no, yes, condition: yes if condition else no,
}  # fmt: skip
_BIT_RESULTS: dict[str, Callable[[int], int]] = {
    "firstLeadingBit": _first_leading,
    "firstTrailingBit": lambda x: min(_bit_positions(x), default=-1),
    "reverseBits": lambda x: sum(1 << (31 - i) for i in _bit_positions(x)),
}


def _dot(a: Sequence[Number], b: Sequence[Number]) -> Number:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _length(a: Sequence[Number]) -> float:
    return math.sqrt(sum(float(x) * float(x) for x in a))


_REDUCTIONS: dict[str, Callable[..., Number]] = {
    "all": all,
    "any": any,
    "dot": _dot,
    "length": _length,
    "distance": lambda a, b: _length([x - y for x, y in zip(a, b, strict=True)]),
}


def builtin(name: str, arguments: Sequence[tuple[Value, Type]], result: Type) -> Value | None:
    """Return the value of a call; None for the few functions that are left to the device."""
    if not isinstance(result, Scalar | Vector):
        return None
    try:
        if name in _REDUCTIONS:
            numbers = [[_scalar(p) for p in parts(*argument)] for argument in arguments]
            return numeric.fit(_REDUCTIONS[name](*numbers), _element(result))
        size = result.size if isinstance(result, Vector) else 1
        columns = [_spread(value, type_, size) for value, type_ in arguments]
        if name in _BIT_RESULTS:
            bits = [numeric.wrap(_BIT_RESULTS[name](int(x)), _element(result)) for x in columns[0]]
            return _gather(bits, result)
        if name not in _COMPONENTWISE:
            return None
        rule = _COMPONENTWISE[name]
        row = [numeric.fit(rule(*column), _element(result)) for column in zip(*columns, strict=True)]
    except ConstantError:
        raise
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConstantError(f"'{name}' has no finite value here") from error
    return _gather(row, result)


# Back into the tree.


def type_name(type_: Type, position: Position) -> TypeName:
    """Return the node for a type."""
    match type_:
        case Vector(size, element):
            return TypeName(position, f"vec{size}", [type_name(element, position)])
        case Array(element, count):
            arguments: list[TypeName | Expression] = [type_name(element, position)]
            if count is not None:
                arguments.append(Literal(position, count, "u", U32))
            return TypeName(position, "array", arguments)
    return TypeName(position, str(type_))


def literal(value: Value, type_: Type, position: Position) -> Expression:
    """Return an expression with this value: a literal, or a vector or array of literals."""
    if not isinstance(value, tuple):
        return Literal(position, value, "", type_)
    inner = element_of(type_)
    same = isinstance(type_, Vector) and len(set(map(repr, value))) == 1
    values = value[:1] if same else value
    arguments = [literal(part, inner, position) for part in values]
    return Call(position, type_name(type_, position), arguments, "construct", type_)

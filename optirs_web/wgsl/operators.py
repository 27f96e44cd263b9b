"""The types of operands and results of operators (WGSL specification, sections 8.6 to 8.9)."""

from __future__ import annotations

from .typerules import CONCRETE_INTEGERS, INTEGERS, NUMBERS, converts, element_of, join, with_element
from .types import ABSTRACT_INT, BOOL, U32, Scalar, Type, Vector

__all__ = ["BinaryTypes", "binary_types", "unary_type"]

BinaryTypes = tuple[Type, Type, Type]
"""The types to which the left and the right operand convert, and that of the result."""

_ARITHMETIC = frozenset("+-*/%")
_ORDER = frozenset(("<", "<=", ">", ">="))
_EQUALITY = frozenset(("==", "!="))
_LOGIC = frozenset(("&&", "||"))
_SHIFT = frozenset(("<<", ">>"))

_UNARY = {
    "-": tuple(type_ for type_ in NUMBERS if type_ != U32),
    "~": INTEGERS,
    "!": (BOOL,),
}


def unary_type(symbol: str, operand: Type) -> Type | None:
    """Return the type of ``symbol operand``, which is the operand's; None if there is no such operator."""
    if not isinstance(operand, Scalar | Vector):
        return None
    return operand if element_of(operand) in _UNARY[symbol] else None


def binary_types(symbol: str, left: Type, right: Type) -> BinaryTypes | None:
    """Return the types of ``left symbol right``; None if there is no such operator."""
    if not isinstance(left, Scalar | Vector) or not isinstance(right, Scalar | Vector):
        return None
    if symbol in _SHIFT:
        return _shift(left, right)
    if symbol in _LOGIC:
        return (BOOL, BOOL, BOOL) if left == right == BOOL else None
    if symbol in _ARITHMETIC:
        return _arithmetic(left, right)
    common = join(left, right)
    if common is None:
        return None
    element = element_of(common)
    if symbol in _EQUALITY or (symbol in _ORDER and element in NUMBERS):
        return common, common, with_element(common, BOOL)
    if symbol in "&|^" and (element in INTEGERS or (element == BOOL and symbol != "^")):
        return common, common, common
    return None


def _arithmetic(left: Scalar | Vector, right: Scalar | Vector) -> BinaryTypes | None:
    """Return the types of arithmetic; a scalar with a vector is applied to every component."""
    if isinstance(left, Vector) and isinstance(right, Vector) and left.size != right.size:
        return None
    element = join(element_of(left), element_of(right))
    if not isinstance(element, Scalar) or element not in NUMBERS:
        return None
    shape = left if isinstance(left, Vector) else right
    return with_element(left, element), with_element(right, element), with_element(shape, element)


def _shift(left: Scalar | Vector, right: Scalar | Vector) -> BinaryTypes | None:
    """Return the types of a shift; the amount is u32, in the shape of the left operand."""
    amount = with_element(left, U32)
    if element_of(left) not in (ABSTRACT_INT, *CONCRETE_INTEGERS) or not converts(right, amount):
        return None
    return left, amount, left

"""Checks calls of built-in functions, and evaluates those that are const-expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import constants
from .builtins import match
from .constants import Value
from .scopes import Operand, fail
from .syntax import Call, Expression, TypeName, Unary
from .typerules import concrete, converts, element_of, is_abstract
from .types import ABSTRACT_INT, BOOL, F16, U32, Pointer, Scalar, Type, Vector

if TYPE_CHECKING:
    from .expressions import ExpressionChecker

__all__ = ["BuiltinCalls"]


class BuiltinCalls:
    """The rules for calls of built-in functions."""

    def __init__(self, checker: ExpressionChecker) -> None:
        self.checker = checker

    def call(self, node: Call) -> Operand | None:
        """Return the checked call, by the signatures of `builtins`; None if the function returns nothing."""
        node.kind = "builtin"
        name, position = node.callee.name, node.position
        operands = [self.argument(argument) for argument in node.arguments]
        matched = match(
            name, [operand.type for operand in operands], [operand.value is not None for operand in operands]
        )
        if isinstance(matched, str):
            raise fail(position, matched)
        pairs = list(zip(operands, matched.parameters, strict=True))
        operands = [
            operand
            if operand.type is parameter
            else self.checker.convert(operand, parameter, f"argument {number + 1} of '{name}'")
            for number, (operand, parameter) in enumerate(pairs)
        ]
        if name in ("subgroupBroadcast", "quadBroadcast") and operands[1].value is None:
            raise fail(operands[1].node.position, f"the lane of '{name}' must be a const-expression")
        if matched.result is None:
            node.arguments, node.type = [operand.node for operand in operands], None
            return None
        arguments = [(operand.value, operand.type) for operand in operands if operand.value is not None]
        value = None
        if len(arguments) == len(operands):
            result = matched.result
            value = self.checker.evaluate(position, lambda: constants.builtin(name, arguments, result))
        if value is None and is_abstract(matched.result):
            operands = [self.checker.convert(operand, concrete(operand.type), "this") for operand in operands]
            result_type = concrete(matched.result)
        else:
            result_type = matched.result
        node.arguments = [operand.node for operand in operands]
        return Operand(node, result_type, value)

    def argument(self, node: Expression) -> Operand:
        """Check an argument of a built-in function; only here is ``&x`` allowed."""
        if not isinstance(node, Unary) or node.operator != "&":
            return self.checker.value(node)
        target = self.checker.operand(node.operand)
        if target.memory is None or target.memory.is_component:
            raise fail(node.position, "'&' needs a variable, a member or an element in memory")
        node.operand = target.node
        node.type = Pointer(target.memory.space, target.type, target.memory.access)
        return Operand(node, node.type)

    def bitcast(self, node: Call) -> Operand:
        """``bitcast<T>(x)``."""
        node.kind = "builtin"
        if len(node.callee.arguments) != 1 or len(node.arguments) != 1:
            raise fail(node.position, "write bitcast<T>(x), with one type and one value")
        target = self.checker.resolve(_as_type(node.callee.arguments[0]))
        operand = self.checker.value(node.arguments[0])
        source = concrete(operand.type)
        if element_of(operand.type) == ABSTRACT_INT and element_of(target) == U32:
            source = target if converts(operand.type, target) else source
        operand = self.checker.convert(operand, source, "this")
        if _shape(source) is None or _shape(source) != _shape(target):
            raise fail(node.position, f"bitcast from {source} to {target}: both must be numbers of one size and shape")
        node.arguments[0] = operand.node
        value: Value | None = operand.value
        if value is not None:
            known = value
            value = self.checker.evaluate(node.position, lambda: constants.reinterpret(known, source, target))
        return Operand(node, target, value)


def _as_type(argument: TypeName | Expression) -> TypeName:
    assert isinstance(argument, TypeName)
    return argument


def _shape(type_: Type) -> tuple[int, int] | None:
    """Return the number of components and the bits of each; None for types that cannot be reinterpreted."""
    if not isinstance(type_, Scalar | Vector) or element_of(type_) == BOOL:
        return None
    return type_.size if isinstance(type_, Vector) else 1, 16 if element_of(type_) == F16 else 32

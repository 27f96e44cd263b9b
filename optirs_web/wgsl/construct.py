"""Checks constructions and conversions: ``f32(i)``, ``vec3(a, b)``, ``array<f32, 2>(x, y)``, ``State(0.0, 1u)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import constants
from .constants import MAX_CONSTANT_SCALARS, Value
from .scopes import Operand, fail
from .syntax import Call, Position
from .typerules import element_of, holds, is_abstract, is_constructible, join, scalar_count, with_element
from .types import ABSTRACT_INT, Array, Scalar, Struct, SubgroupMatrix, Type, Vector

if TYPE_CHECKING:
    from .expressions import ExpressionChecker

__all__ = ["Constructor"]

_INFERRED = {"vec2": 2, "vec3": 3, "vec4": 4}


class Constructor:
    """The rules for calls whose callee is a type."""

    def __init__(self, checker: ExpressionChecker) -> None:
        self.checker = checker

    def construct(self, node: Call) -> Operand:
        """Check a construction, and convert the arguments of the node in place."""
        operands = [self.checker.value(argument) for argument in node.arguments]
        callee = node.callee
        if callee.name in _INFERRED and not callee.arguments:
            result = self.vector(node, _INFERRED[callee.name], None, operands)
        elif callee.name == "array" and not callee.arguments:
            result = self.inferred_array(node, operands)
        else:
            result = self.typed(node, self.checker.resolve(callee), operands)
        node.arguments = [operand.node for operand in operands]
        return result

    def typed(self, node: Call, type_: Type, operands: list[Operand]) -> Operand:
        """Check a construction whose type is written in full."""
        if not is_constructible(type_):
            raise fail(node.position, f"{type_} cannot be constructed: it lives in memory only")
        if not operands:
            return Operand(node, type_, None if holds(type_, SubgroupMatrix) else constants.zero(type_))
        parameters: list[tuple[str, Type]]
        match type_:
            case SubgroupMatrix(element=element):
                parameters = [("each element", element)]
            case Scalar():
                return self.scalar(node, type_, operands)
            case Vector(size, element):
                return self.vector(node, size, element, operands)
            case Array(element, count):
                parameters = [("an element", element)] * (count or 0)
            case Struct(members=members):
                parameters = [(f"member '{member.name}'", member.type) for member in members]
            case _:
                parameters = []
        if len(operands) != len(parameters):
            raise fail(node.position, f"{type_} takes {len(parameters)} values or none, not {len(operands)}")
        for number, (role, parameter) in enumerate(parameters):
            operands[number] = self.checker.convert(operands[number], parameter, role)
        return Operand(node, type_, None if isinstance(type_, SubgroupMatrix) else self.values(operands, type_))

    def values(self, operands: list[Operand], type_: Type) -> Value | None:
        """Return the tuple of all values; None if one is not constant or there are too many."""
        values = [operand.value for operand in operands if operand.value is not None]
        if len(values) < len(operands) or (
            not isinstance(type_, Vector) and scalar_count(type_) > MAX_CONSTANT_SCALARS
        ):
            return None
        return tuple(values)

    def scalar(self, node: Call, type_: Scalar, operands: list[Operand]) -> Operand:
        """``f32(x)``."""
        operand = operands[0]
        if len(operands) != 1 or not isinstance(operand.type, Scalar):
            raise fail(node.position, f"{type_}(...) takes one scalar")
        operands[0], value = self.converted(operand, type_, node.position)
        return Operand(node, type_, value)

    def converted(self, operand: Operand, target: Scalar, position: Position) -> tuple[Operand, Value | None]:
        """Return the argument of an explicit conversion, now of the target type if it was abstract, and the result."""
        if operand.value is None:
            return operand, None
        known, source = operand.value, operand.type
        value = self.checker.evaluate(position, lambda: constants.convert(known, source, target))
        if is_abstract(source):
            type_ = with_element(source, target)
            operand = Operand(constants.literal(value, type_, operand.node.position), type_, value)
        return operand, value

    def vector(self, node: Call, size: int, element: Scalar | None, operands: list[Operand]) -> Operand:
        """Check a vector made of no arguments, of one scalar, of another vector, or of scalars and vectors joined."""
        for operand in operands:
            if not isinstance(operand.type, Scalar | Vector):
                raise fail(operand.node.position, f"a vector is made of scalars and vectors, not of {operand.type}")
        if len(operands) == 1 and isinstance(operands[0].type, Vector) and element is not None:
            return self.converted_vector(node, size, element, operands)
        if element is None:
            element = self.common_element(node, operands)
        count = sum(operand.type.size if isinstance(operand.type, Vector) else 1 for operand in operands)
        is_splat = len(operands) == 1 and isinstance(operands[0].type, Scalar)
        if operands and count != size and not is_splat:
            raise fail(node.position, f"vec{size} takes 1 or {size} components, not {count}")
        for number, operand in enumerate(operands):
            operands[number] = self.checker.convert(operand, with_element(operand.type, element), "a component")
        type_ = Vector(size, element)
        if not operands:
            return Operand(node, type_, constants.zero(type_))
        values = [operand.value for operand in operands if operand.value is not None]
        if len(values) < len(operands):
            return Operand(node, type_)
        flat = [
            component
            for operand, value in zip(operands, values, strict=True)
            for component in constants.parts(value, operand.type)
        ]
        return Operand(node, type_, tuple(flat * size if is_splat else flat))

    def converted_vector(self, node: Call, size: int, element: Scalar, operands: list[Operand]) -> Operand:
        """``vec3<f32>(v)``."""
        source = operands[0].type
        if not isinstance(source, Vector) or source.size != size:
            raise fail(node.position, f"vec{size} takes 1 or {size} components, not {source}")
        operands[0], value = self.converted(operands[0], element, node.position)
        return Operand(node, Vector(size, element), value)

    def common_element(self, node: Call, operands: list[Operand]) -> Scalar:
        """Return the scalar type to which all components of ``vec3(a, b)`` convert."""
        common: Type | None = element_of(operands[0].type) if operands else ABSTRACT_INT
        for operand in operands[1:]:
            common = None if common is None else join(common, element_of(operand.type))
        if not isinstance(common, Scalar):
            types = ", ".join(str(operand.type) for operand in operands)
            raise fail(node.position, f"the components of a vector must have one type, not {types}")
        return common

    def inferred_array(self, node: Call, operands: list[Operand]) -> Operand:
        """``array(a, b, c)``."""
        common = operands[0].type if operands else None
        for operand in operands[1:]:
            common = None if common is None else join(common, operand.type)
        if common is None or not is_constructible(common):
            raise fail(node.position, "array(...) needs elements of one type; write array<T, N>(...)")
        type_ = Array(common, len(operands))
        if scalar_count(type_) > MAX_CONSTANT_SCALARS and is_abstract(type_):
            raise fail(node.position, f"more than {MAX_CONSTANT_SCALARS} numbers; write array<T, N>(...)")
        for number, operand in enumerate(operands):
            operands[number] = self.checker.convert(operand, common, "an element")
        return Operand(node, type_, self.values(operands, type_))

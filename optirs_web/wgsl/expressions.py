"""Checks expressions, and evaluates those that are constant.

Every rule takes a node and returns an `Operand`: the node that replaces it, its type, its value if it is a
const-expression, and the memory to which it refers, if any. Abstract numbers stay abstract in operations with each
other; where a concrete type is required, the expression becomes a literal of that type, rounded once, as in WGSL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from . import constants
from .builtin_calls import BuiltinCalls
from .builtins import BUILTINS
from .constants import ConstantError, Value
from .construct import Constructor
from .operators import binary_types, unary_type
from .scopes import Binding, Memory, Operand, Scopes, fail, similar
from .syntax import (
    Alias,
    Binary,
    Call,
    Expression,
    Function,
    Index,
    Literal,
    Member,
    Name,
    Position,
    StructDeclaration,
    TypeName,
    Unary,
)
from .typerules import (
    CONCRETE_INTEGERS,
    INTEGERS,
    concrete,
    converts,
    element_of,
    holds,
    is_abstract,
    is_constructible,
)
from .types import (
    ABSTRACT_FLOAT,
    ABSTRACT_INT,
    BOOL,
    F16,
    F32,
    I32,
    U32,
    Array,
    Atomic,
    Scalar,
    Struct,
    Type,
    Vector,
)
from .vocabulary import MATRIX_FUNCTIONS, PREDECLARED_TYPES

__all__ = ["ExpressionChecker"]

_T = TypeVar("_T")
_SUFFIXES = {"i": I32, "u": U32, "f": F32, "h": F16}
_COMPONENTS = ("xyzw", "rgba")


class ExpressionChecker(ABC):
    """Checks expressions; subclasses resolve the names of the module."""

    def __init__(self) -> None:
        self.scopes = Scopes()
        self.known: dict[int, tuple[Expression, Value]] = {}
        self.constructor = Constructor(self)
        self.builtins = BuiltinCalls(self)
        self.rules: dict[type, Callable[..., Operand]] = {
            Literal: self.literal,
            Name: self.name,
            Unary: self.unary,
            Binary: self.binary,
            Index: self.index,
            Member: self.member,
            Call: self.call_value,
        }

    # What the module provides.

    @abstractmethod
    def module_name(self, name: str) -> object | None:
        """The module's declaration of that name."""

    @abstractmethod
    def module_binding(self, name: str, position: Position) -> Binding:
        """The binding of a constant or variable of the module."""

    @abstractmethod
    def resolve(self, name: TypeName) -> Type:
        """The type that a type name refers to."""

    @abstractmethod
    def signature(self, function: Function, position: Position) -> tuple[list[Type], Type | None]:
        """The types of the parameters and of the result of a function that is called at `position`."""

    @abstractmethod
    def require_f16(self, position: Position) -> None:
        """Refuse f16 in a module that does not enable it."""

    @abstractmethod
    def module_names(self) -> list[str]:
        """All names that the module declares."""

    # Ways to check an expression.

    def operand(self, node: Expression) -> Operand:
        """Check any expression, including one that refers to memory which cannot be read as a whole."""
        result = self.rules[type(node)](node)
        result.node.type = result.type
        if result.value is not None:
            self.known[id(result.node)] = result.node, result.value
        return result

    def value(self, node: Expression) -> Operand:
        """Check an expression whose value is used."""
        result = self.operand(node)
        if result.memory is not None and not is_constructible(result.type):
            how = "read it with atomicLoad(&x)" if holds(result.type, Atomic) else "use its elements"
            raise fail(node.position, f"a value of type {result.type} cannot be used as a whole; {how}")
        return result

    def concrete(self, node: Expression) -> Operand:
        """Check an expression that is evaluated by the shader; abstract numbers become i32 and f32."""
        result = self.value(node)
        type_ = concrete(result.type)
        return result if type_ is result.type else self.convert(result, type_, "this")

    def convert(self, operand: Operand, target: Type, role: str) -> Operand:
        """Return the operand converted implicitly to `target`; `role` is its description in messages."""
        if operand.type == target:
            return operand
        position = operand.node.position
        if not converts(operand.type, target) or operand.value is None:
            hint = ""
            if isinstance(target, Scalar) and isinstance(operand.type, Scalar) and target != BOOL:
                hint = f"; write {target}(...)"
            raise fail(position, f"{role} must be {target}, but this is {operand.type}{hint}")
        source, value = operand.type, operand.value
        result = self.evaluate(position, lambda: constants.converted(value, source, target))
        if is_abstract(target):
            return Operand(operand.node, target, result)
        node = operand.node
        if isinstance(node, Literal) and not isinstance(result, tuple):
            node.value, node.type = result, target
        else:
            node = constants.literal(result, target, position)
        return Operand(node, target, result)

    def constant(self, node: Expression, role: str) -> Operand:
        """Check an expression that must be constant. The tree keeps it as it was written."""
        result = self.value(node)
        if result.value is None:
            raise fail(node.position, f"{role} must be a const-expression: literals, constants and operations on them")
        return result

    def constant_integer(self, node: Expression, role: str) -> int:
        """Return the value of a const-expression that must be an integer."""
        result = self.constant(node, role)
        if result.type not in INTEGERS or not isinstance(result.value, int):
            raise fail(node.position, f"{role} must be an integer, but this is {result.type}")
        return result.value

    def evaluate(self, position: Position, rule: Callable[[], _T]) -> _T:
        """Return the result of `rule`; a `ConstantError` becomes an error at `position`."""
        try:
            return rule()
        except ConstantError as error:
            raise fail(position, str(error)) from error

    # The rules.

    def literal(self, node: Literal) -> Operand:
        """Check a literal, which is abstract without a suffix."""
        if isinstance(node.value, bool):
            return Operand(node, BOOL, node.value)
        if node.suffix:
            if node.suffix == "h":
                self.require_f16(node.position)
            return Operand(node, _SUFFIXES[node.suffix], node.value)
        return Operand(node, ABSTRACT_FLOAT if isinstance(node.value, float) else ABSTRACT_INT, node.value)

    def name(self, node: Name) -> Operand:
        """Check the name of a variable or constant."""
        binding = self.scopes.find(node.name)
        if binding is None:
            binding = self.module_binding(node.name, node.position)
        return Operand(node, binding.type, binding.value, binding.memory)

    def unknown(self, name: str, position: Position) -> Exception:
        """Return the error for a name that is not declared."""
        known = [*self.scopes.names(), *self.module_names(), *BUILTINS, *PREDECLARED_TYPES]
        return fail(position, f"there is no '{name}' here{similar(name, known)}")

    def unary(self, node: Unary) -> Operand:
        """``-x``, ``!x``, ``~x``."""
        if node.operator == "&":
            raise fail(node.position, "'&' is only for an argument of a built-in, as in atomicAdd(&x, 1)")
        inner = self.value(node.operand)
        type_ = unary_type(node.operator, inner.type)
        if type_ is None:
            hint = "; subtract from 0u, or convert to i32" if node.operator == "-" else ""
            raise fail(node.position, f"'{node.operator}' does not apply to {inner.type}{hint}")
        node.operand = inner.node
        if inner.value is None:
            return Operand(node, type_)
        value = inner.value
        return Operand(node, type_, self.evaluate(node.position, lambda: constants.unary(node.operator, type_, value)))

    def binary(self, node: Binary) -> Operand:
        """Check a binary operation."""
        left, right, result = self.combine(node, self.value(node.left), self.value(node.right))
        node.left, node.right = left.node, right.node
        if left.value is None or right.value is None:
            return Operand(node, result)
        pair = (left.value, left.type), (right.value, right.type)
        value = self.evaluate(node.position, lambda: constants.binary(node.operator, *pair))
        if is_abstract(left.type) and not is_abstract(result):
            return Operand(constants.literal(value, result, node.position), result, value)
        return Operand(node, result, value)

    def combine(self, node: Binary, left: Operand, right: Operand) -> tuple[Operand, Operand, Type]:
        """Return the converted operands of a binary operator, and the type of its result."""
        symbol, position = node.operator, node.position
        if symbol in ("<<", ">>") and right.value is None:
            left = self.convert(left, concrete(left.type), "the left operand")
        types = binary_types(symbol, left.type, right.type)
        if types is None:
            raise fail(position, f"'{symbol}' does not apply to {left.type} and {right.type}{_hint(left, right)}")
        if left.type is not types[0]:
            left = self.convert(left, types[0], "the left operand")
        if right.type is not types[1]:
            right = self.convert(right, types[1], "the right operand")
        if left.value is None and right.value is not None:
            self.check_right(symbol, right, position)
        return left, right, types[2]

    def check_right(self, symbol: str, right: Operand, position: Position) -> None:
        """Refuse a constant divisor or shift amount that is invalid for every left operand."""
        assert right.value is not None
        numbers = constants.parts(right.value, right.type)
        if symbol in ("/", "%") and element_of(right.type) in CONCRETE_INTEGERS and 0 in numbers:
            raise fail(position, "division by zero")
        if symbol in ("<<", ">>") and any(isinstance(number, int) and number >= 32 for number in numbers):
            raise fail(position, "a shift by 32 bits or more")

    def index(self, node: Index) -> Operand:
        """Check ``x[i]``; a constant index must be within constant bounds."""
        base = self.operand(node.base)
        index = self.value(node.index)
        if not isinstance(base.type, Array | Vector):
            raise fail(node.position, f"a value of type {base.type} has no elements to index")
        if index.type not in INTEGERS:
            raise fail(node.index.position, f"an index must be i32 or u32, but this is {index.type}")
        count = base.type.size if isinstance(base.type, Vector) else base.type.count
        position = index.value
        if isinstance(position, int) and (position < 0 or (count is not None and position >= count)):
            raise fail(node.index.position, f"index {position} is not within the {count} elements of {base.type}")
        if index.value is None:
            base = self.convert(base, concrete(base.type), "this")
        node.base, node.index = base.node, self.convert(index, concrete(index.type), "an index").node
        assert isinstance(base.type, Array | Vector)
        value = base.value[position] if isinstance(base.value, tuple) and isinstance(position, int) else None
        return Operand(node, base.type.element, value, _part(base.memory, isinstance(base.type, Vector)))

    def member(self, node: Member) -> Operand:
        """Check a member of a struct, or components of a vector."""
        base = self.operand(node.base)
        node.base = base.node
        if isinstance(base.type, Struct):
            return self.struct_member(node, base, base.type)
        if not isinstance(base.type, Vector):
            raise fail(node.position, f"a value of type {base.type} has no member '{node.name}'")
        return self.swizzle(node, base, base.type)

    def struct_member(self, node: Member, base: Operand, type_: Struct) -> Operand:
        """Check ``x.name`` of a struct."""
        for number, member in enumerate(type_.members):
            if member.name == node.name:
                value = base.value[number] if isinstance(base.value, tuple) else None
                return Operand(node, member.type, value, base.memory)
        known = [member.name for member in type_.members]
        raise fail(node.position, f"struct {type_} has no member '{node.name}'{similar(node.name, known)}")

    def swizzle(self, node: Member, base: Operand, type_: Vector) -> Operand:
        """Check ``x.zyx`` of a vector."""
        letters = next((set_ for set_ in _COMPONENTS if set(node.name) <= set(set_)), "")
        picks = [letters.find(letter) for letter in node.name]
        if not letters or len(picks) > 4 or max(picks) >= type_.size:
            raise fail(node.position, f"{type_} has no components '{node.name}'; there are {'xyzw'[: type_.size]}")
        chosen = [base.value[pick] for pick in picks] if isinstance(base.value, tuple) else None
        if len(picks) == 1:
            return Operand(node, type_.element, chosen[0] if chosen else None, _part(base.memory, True))
        return Operand(node, Vector(len(picks), type_.element), tuple(chosen) if chosen else None)

    # Calls.

    def call_value(self, node: Call) -> Operand:
        """Check a call whose value is used."""
        result = self.call(node)
        if result is None:
            raise fail(node.position, f"'{node.callee.name}' returns nothing, so it is a statement of its own")
        return result

    def call(self, node: Call) -> Operand | None:
        """Check a call; None if it returns nothing."""
        name = node.callee.name
        if self.scopes.find(name) is not None:
            raise fail(node.position, f"'{name}' is a variable here and cannot be called")
        declared = self.module_name(name)
        if isinstance(declared, Function):
            return self.user_call(node, declared)
        if isinstance(declared, StructDeclaration | Alias) or name in PREDECLARED_TYPES:
            node.kind = "construct"
            return self.constructor.construct(node)
        if declared is not None:
            raise fail(node.position, f"'{name}' is neither a function nor a type")
        if name == "bitcast":
            return self.builtins.bitcast(node)
        if name in BUILTINS:
            return self.builtins.call(node)
        if name in MATRIX_FUNCTIONS:
            from .subgroup_matrices import MatrixCalls  # which few modules need

            return MatrixCalls(self, self.builtins.argument).call(node)
        raise self.unknown(name, node.position)

    def user_call(self, node: Call, function: Function) -> Operand | None:
        """Check a call of a function of the module."""
        node.kind = "function"
        parameters, result = self.signature(function, node.position)
        if len(node.arguments) != len(parameters):
            raise fail(node.position, f"'{function.name}' takes {len(parameters)} arguments, not {len(node.arguments)}")
        for number, (argument, parameter) in enumerate(zip(node.arguments, parameters, strict=True)):
            role = f"argument {number + 1} of '{function.name}'"
            node.arguments[number] = self.convert(self.value(argument), parameter, role).node
        node.type = result
        return None if result is None else Operand(node, result)


def _part(memory: Memory | None, is_component: bool) -> Memory | None:
    """Return the memory of an element or member."""
    if memory is None or not is_component:
        return memory
    return Memory(memory.name, memory.space, memory.access, True)


def _hint(left: Operand, right: Operand) -> str:
    elements = element_of(left.type), element_of(right.type)
    if all(isinstance(element, Scalar) and element != BOOL for element in elements) and elements[0] != elements[1]:
        return f"; WGSL converts nothing implicitly: write {concrete(elements[0])}(...)"
    return ""

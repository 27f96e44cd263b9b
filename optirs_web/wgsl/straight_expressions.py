"""If-conversion of expressions: evaluates them symbolically, with the current values of variables."""

from __future__ import annotations

from typing import NoReturn

from ..errors import ShaderError
from .straight import Builder, Value, leaf_names, type_of
from .syntax import Binary, Call, Constant, Expression, Literal, Member, Name, Position, Unary
from .types import Scalar, Struct, Type

__all__ = ["Evaluator", "Values", "check_type", "refuse"]

Values = dict[str, Value]
"""By unique name of each variable, the leaves of its value."""


def refuse(position: Position, message: str) -> NoReturn:
    """Raise ShaderError for code that a map function cannot have."""
    raise ShaderError(
        f"in a map function, which must also run on whole arrays, {message}",
        file=position.file, line=position.line, column=position.column,
    )  # fmt: skip


def check_type(position: Position, type_: Type | None) -> Type:
    """Return a type, if values of a map function can have it; raises ShaderError otherwise."""
    match type_:
        case Scalar("f32" | "i32" | "u32" | "bool"):
            return type_
        case Struct(members=members):
            for member in members:
                check_type(position, member.type)
            return type_
        case None:
            refuse(position, "a function must return a value")
        case _:
            refuse(position, f"values are f32, i32, u32, bool or structs of these, not {type_}")


class Evaluator:
    """Evaluates the expressions of a function, and keeps its scopes; a part of the straightener of the function.

    `called` collects the names of the functions that it calls.
    """

    def __init__(self, builder: Builder, constants: dict[str, Constant], called: set[str]) -> None:
        self.builder = builder
        self.constants = constants
        self.called = called
        self.scopes: list[dict[str, str]] = [{}]
        self.variables = 0

    def declare(self, name: str, value: Value, values: Values) -> None:
        """Add a variable to the innermost scope."""
        self.variables += 1
        self.scopes[-1][name] = variable = f"{name} {self.variables}"
        values[variable] = value

    def find(self, name: str) -> str | None:
        """Return the unique name of the visible variable of that name; None if there is none."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def scalar(self, expression: Expression, values: Values) -> Expression:
        """Return the leaf of a scalar expression."""
        return self.evaluate(expression, values)[0]

    def evaluate(self, expression: Expression, values: Values) -> Value:
        """Return the leaves of an expression's value."""
        match expression:
            case Literal(position, value, _):
                return (Literal(position, value, type=type_of(expression)),)
            case Name():
                return self.name(expression, values)
            case Unary(position, ("-" | "!" | "~") as sign, operand):
                inner, type_ = self.scalar(operand, values), check_type(position, type_of(expression))
                return (self.builder.emit(Unary(position, sign, inner, type_)),)
            case Binary(position, sign, left, right):
                new_left, new_right = self.scalar(left, values), self.scalar(right, values)
                type_ = check_type(position, type_of(expression))
                return (self.builder.emit(Binary(position, sign, new_left, new_right, type_)),)
            case Member(position, base, name):
                offset, type_ = self.member(position, type_of(base), name)
                return self.evaluate(base, values)[offset : offset + len(leaf_names(type_))]
            case Call():
                return self.call(expression, values)
        refuse(expression.position, "there are no arrays, vectors and pointers")

    def name(self, expression: Name, values: Values) -> Value:
        """Return the value of a variable or of a constant of the module."""
        variable = self.find(expression.name)
        if variable is not None:
            return values[variable]
        constant = self.constants.get(expression.name)
        if constant is None:
            refuse(
                expression.position,
                f"'{expression.name}' cannot be used: it is no constant, and not the function's own",
            )
        scopes, self.scopes = self.scopes, [{}]
        value = self.evaluate(constant.value, {})
        self.scopes = scopes
        type_ = check_type(expression.position, type_of(expression))
        return tuple(
            Literal(expression.position, leaf.value, type=leaf_type) if isinstance(leaf, Literal) else leaf
            for leaf, (_, leaf_type) in zip(value, leaf_names(type_), strict=True)
        )

    def member(self, position: Position, type_: Type, name: str) -> tuple[int, Type]:
        """Return the index of a member's first leaf in a struct, and its type."""
        if not isinstance(type_, Struct):
            refuse(position, f"values are scalars and structs of scalars, not {type_}")
        offset = 0
        for member in type_.members:
            if member.name == name:
                return offset, member.type
            offset += len(leaf_names(member.type))
        raise AssertionError(f"{position}: {type_} has no member {name}")

    def zero(self, type_: Type, position: Position) -> Value:
        """Return the zero value, which a variable without an initializer has."""
        zeros: dict[str, bool | int | float] = {"f32": 0.0, "bool": False}
        return tuple(Literal(position, zeros.get(leaf.name, 0), type=leaf) for _, leaf in leaf_names(type_))

    def call(self, call: Call, values: Values) -> Value:
        """Return the value of a call of a function or built-in, or of a construction or conversion."""
        type_ = check_type(call.position, call.type)
        arguments = [self.evaluate(argument, values) for argument in call.arguments]
        if call.kind == "construct":
            if not arguments:
                return self.zero(type_, call.position)
            if isinstance(type_, Struct) or type_of(call.arguments[0]) == type_:
                return tuple(leaf for value in arguments for leaf in value)
        operands = [
            self.builder.assemble(check_type(argument.position, type_of(argument)), value)
            for argument, value in zip(call.arguments, arguments, strict=True)
        ]
        if call.kind == "function":
            self.called.add(call.callee.name)
        if call.kind == "builtin" and isinstance(type_, Struct):
            refuse(call.position, f"'{call.callee.name}' is not available: it returns a built-in struct")
        result = self.builder.emit(Call(call.position, call.callee, operands, call.kind, type_))
        if not isinstance(type_, Struct):
            return (result,)
        assert isinstance(result, Name)
        return tuple(Name(call.position, path, type=leaf) for path, leaf in leaf_names(type_, result.name))

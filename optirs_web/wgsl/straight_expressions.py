"""If-conversion, the expressions: what each comes to in terms of the values that variables have at that place."""

from __future__ import annotations

from typing import NoReturn

from ..errors import ShaderError
from .straight import Builder, Value, leaf_names, type_of
from .syntax import Binary, Call, Constant, Expression, Literal, Member, Name, Position, Unary
from .types import Scalar, Struct, Type

__all__ = ["Evaluator", "Values", "check_type", "refuse"]

Values = dict[str, Value]
"""For each variable, under a name that no other has, its leaves."""


def refuse(position: Position, message: str) -> NoReturn:
    """Say what at that place keeps a function from being a map function."""
    raise ShaderError(
        f"in a map function, which must also run on whole arrays, {message}",
        file=position.file, line=position.line, column=position.column,
    )  # fmt: skip


def check_type(position: Position, type_: Type | None) -> Type:
    """The type, if values of a map function can be of it; raises ShaderError otherwise."""
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
    """Expressions and scopes of one function.

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
        """The variable that the name stands for here; None if for none."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def scalar(self, expression: Expression, values: Values) -> Expression:
        """A scalar expression's one leaf."""
        return self.evaluate(expression, values)[0]

    def evaluate(self, expression: Expression, values: Values) -> Value:
        """The leaves of the expression's value."""
        match expression:
            case Literal(position, value, _):
                return (Literal(position, value, type=type_of(expression)),)
            case Name():
                return self.name(expression, values)
            case Unary(position, ("-" | "!" | "~") as sign, operand):
                inner, type_ = self.scalar(operand, values), check_type(position, type_of(expression))
                return (self.builder.emit(Unary(position, sign, inner, type_)),)
            case Binary(position, sign, left, right):
                first, second = self.scalar(left, values), self.scalar(right, values)
                type_ = check_type(position, type_of(expression))
                return (self.builder.emit(Binary(position, sign, first, second, type_)),)
            case Member(position, base, name):
                offset, type_ = self.member(position, type_of(base), name)
                return self.evaluate(base, values)[offset : offset + len(leaf_names(type_))]
            case Call():
                return self.call(expression, values)
        refuse(expression.position, "there are no arrays, vectors and pointers")

    def name(self, expression: Name, values: Values) -> Value:
        """What a variable or a constant of the module stands for."""
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
        """At which leaf of a struct the member begins, and its type."""
        if not isinstance(type_, Struct):
            refuse(position, f"values are scalars and structs of scalars, not {type_}")
        offset = 0
        for member in type_.members:
            if member.name == name:
                return offset, member.type
            offset += len(leaf_names(member.type))
        raise AssertionError(f"{position}: {type_} has no member {name}")

    def zero(self, type_: Type, position: Position) -> Value:
        """The zero value, which a variable without an initial value has."""
        zeros: dict[str, bool | int | float] = {"f32": 0.0, "bool": False}
        return tuple(Literal(position, zeros.get(leaf.name, 0), type=leaf) for _, leaf in leaf_names(type_))

    def call(self, call: Call, values: Values) -> Value:
        """A call of a function or built-in, or the construction or conversion of a value."""
        type_ = check_type(call.position, call.type)
        given = [self.evaluate(argument, values) for argument in call.arguments]
        if call.kind == "construct":
            if not given:
                return self.zero(type_, call.position)
            if isinstance(type_, Struct) or type_of(call.arguments[0]) == type_:
                return tuple(leaf for value in given for leaf in value)
        operands = [
            self.builder.assemble(check_type(argument.position, type_of(argument)), value)
            for argument, value in zip(call.arguments, given, strict=True)
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

"""Evaluates the constants of a checked module, for printing them in C."""

from __future__ import annotations

from . import constants
from .checker import check_values
from .constants import Value
from .syntax import Binary, Call, Constant, Expression, Literal, Module, Name, Unary
from .types import Scalar

__all__ = ["Values"]


class Values:
    """The values of const-expressions.

    Literals, names, operators and conversions are evaluated directly; for others the module is checked again.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.named = {
            declaration.name: declaration.value
            for declaration in module.declarations
            if isinstance(declaration, Constant)
        }
        self.known: dict[int, tuple[Expression, Value]] | None = None

    def of(self, node: Expression) -> Value:
        """Return the value of an expression that the checker takes as constant."""
        value = self.simple(node)
        if value is not None:
            return value
        if self.known is None:
            self.known = check_values(self.module).constants
        return self.known[id(node)][1]

    def simple(self, node: Expression) -> Value | None:
        """Return the value of an expression of literals, names, operators and conversions; None for any other."""
        match node:
            case Literal(value=value):
                return value
            case Name(name=name) if name in self.named:
                return self.simple(self.named[name])
            case Unary(operator=operator, operand=inner):
                of_inner = self.simple(inner)
                if of_inner is not None and inner.type is not None:
                    return constants.unary(operator, inner.type, of_inner)
            case Binary(operator=operator, left=left, right=right):
                pair = self.simple(left), self.simple(right)
                if pair[0] is not None and pair[1] is not None and left.type is not None and right.type is not None:
                    return constants.binary(operator, (pair[0], left.type), (pair[1], right.type))
            case Call(kind="construct", arguments=[argument], type=Scalar() as type_):
                of_argument = self.simple(argument)
                if of_argument is not None and argument.type is not None:
                    return constants.convert(of_argument, argument.type, type_)
        return None

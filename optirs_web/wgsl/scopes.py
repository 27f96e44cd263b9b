"""What names stand for while a module is checked: the nested scopes of a function, and the module around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ShaderError, nearest
from .constants import Value
from .syntax import Expression, Position
from .types import Type

__all__ = ["Binding", "Operand", "Place", "Scopes", "fail", "similar"]


def fail(position: Position, message: str) -> ShaderError:
    """The error to raise at that place."""
    return ShaderError(message, file=position.file, line=position.line, column=position.column)


def similar(name: str, known: Iterable[str]) -> str:
    """Return the end of a message, which names the nearest of the known names; "" if none is near."""
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Memory: the variable it belongs to, its address space and access; a vector's component has no address."""

    name: str
    space: str
    access: str
    is_component: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """A declared value. `value` is known for constants; `place` is set for variables.

    `kind` is "let", "var", "const", "override", "parameter", or the address space of a module's variable.
    """

    kind: str
    type: Type
    value: Value | None = None
    place: Place | None = None


@dataclass(slots=True)
class Operand:
    """A checked expression. `node` takes the expression's place in the tree; `value` is set for const-expressions."""

    node: Expression
    type: Type
    value: Value | None = None
    place: Place | None = None


class Scopes:
    """The scopes of one function, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[dict[str, Binding]] = []

    def find(self, name: str) -> Binding | None:
        """The innermost declaration of that name."""
        for scope in reversed(self.stack):
            if name in scope:
                return scope[name]
        return None

    def declare(self, name: str, binding: Binding, position: Position) -> None:
        """Add to the innermost scope, where the name must be new."""
        if name in self.stack[-1]:
            raise fail(position, f"'{name}' is declared twice in one scope; choose another name")
        self.stack[-1][name] = binding

    def names(self) -> list[str]:
        """All names that can be seen."""
        return [name for scope in self.stack for name in scope]

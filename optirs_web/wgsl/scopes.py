"""The bindings of names while a module is checked, and the results of checking expressions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ShaderError, nearest
from .constants import Value
from .syntax import Expression, Position
from .types import Type

__all__ = ["Binding", "Memory", "Operand", "Scopes", "fail", "similar"]


def fail(position: Position, message: str) -> ShaderError:
    """Return the error to raise for source code at `position`."""
    return ShaderError(message, file=position.file, line=position.line, column=position.column)


def similar(name: str, known: Iterable[str]) -> str:
    """Return the end of a message, which names the nearest of the known names; "" if none is near."""
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory to which an expression refers: its variable, address space and access mode.

    `is_component`: it is a component of a vector, which has no address.
    """

    name: str
    space: str
    access: str
    is_component: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """A declared value. `value` is set for constants, `memory` for variables.

    `kind` is "let", "var", "const", "override", "parameter", or the address space of a module's variable.
    """

    kind: str
    type: Type
    value: Value | None = None
    memory: Memory | None = None


@dataclass(slots=True)
class Operand:
    """A checked expression. `node` replaces the expression in the tree; `value` is set for const-expressions."""

    node: Expression
    type: Type
    value: Value | None = None
    memory: Memory | None = None


class Scopes:
    """The scopes of one function, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[dict[str, Binding]] = []

    def find(self, name: str) -> Binding | None:
        """Return the binding of that name in the innermost scope that declares it, or None."""
        for scope in reversed(self.stack):
            if name in scope:
                return scope[name]
        return None

    def declare(self, name: str, binding: Binding, position: Position) -> None:
        """Add a binding to the innermost scope, where the name must be new."""
        if name in self.stack[-1]:
            raise fail(position, f"'{name}' is declared twice in one scope; choose another name")
        self.stack[-1][name] = binding

    def names(self) -> list[str]:
        """Return all names that are visible."""
        return [name for scope in self.stack for name in scope]

"""What functions do to variables of their module: which they need as parameters, and where C's order would matter.

C leaves open in which order the operands of an expression are computed. So an expression in which one part changes what
another reads is refused.
"""

from __future__ import annotations

from ..errors import UnsupportedError
from .builtins import meets_others
from .syntax import Assign, Call, Expression, Function, GlobalVariable, Index, Member, Module, Name, Unary
from .tree import walk

__all__ = ["Effects", "root_of"]


def root_of(node: Expression) -> str:
    """The variable that a place lies in."""
    while isinstance(node, Index | Member):
        node = node.base
    assert isinstance(node, Name)
    return node.name


class Effects:
    """Of the functions of a module, those that they call included."""

    def __init__(self, module: Module) -> None:
        self.order = [one.name for one in module.declarations if isinstance(one, GlobalVariable)]
        self.functions = {one.name: one for one in module.declarations if isinstance(one, Function)}
        self.known: dict[str, tuple[set[str], set[str], bool]] = {}

    def needs(self, function: str) -> list[str]:
        """The variables of the module that a function touches, in the order of the module."""
        names = self.function(function)[0]
        return [name for name in self.order if name in names]

    def function(self, name: str) -> tuple[set[str], set[str], bool]:
        """What it reads, what it writes, and whether it does more than return a value."""
        if name not in self.known:
            self.known[name] = self.of([self.functions[name].body])
        return self.known[name]

    def of(self, nodes: list[object]) -> tuple[set[str], set[str], bool]:
        """Of a stretch of code."""
        reads: set[str] = set()
        writes: set[str] = set()
        impure = False
        for node in (inner for one in nodes for inner in walk(one)):
            if isinstance(node, Name) and node.name in self.order:
                reads.add(node.name)
            elif isinstance(node, Assign) and node.target is not None:
                writes.add(root_of(node.target))
            elif isinstance(node, Call):
                found = self.call(node)
                reads |= found[0]
                writes |= found[1]
                impure = impure or found[2]
        writes &= set(self.order)
        return reads, writes, impure or bool(writes)

    def call(self, node: Call) -> tuple[set[str], set[str], bool]:
        """Of a call itself, without its arguments."""
        name = node.callee.name
        if node.kind == "function":
            return self.function(name)
        if node.kind == "builtin" and meets_others(name):
            first = node.arguments[0] if node.arguments else None
            is_write = name.startswith("atomic") and name != "atomicLoad"
            root = {root_of(first.operand)} if is_write and isinstance(first, Unary) else set()
            return set(), root, True
        return set(), set(), False

    def is_impure(self, node: Expression) -> bool:
        """Whether computing it does more than give its value."""
        return self.of([node])[2]

    def check(self, nodes: list[Expression]) -> None:
        """Refuse expressions, computed together, of which one part changes what another reads."""
        calls = [node for one in nodes for node in walk(one) if isinstance(node, Call)]
        for call in calls:
            _, writes, impure = self.call(call)
            if not impure:
                continue
            inside = {id(node) for node in walk(call)}
            for node in (node for one in nodes for node in walk(one) if id(node) not in inside):
                touched = {node.name} if isinstance(node, Name) else set()
                if isinstance(node, Call) and not any(id(one) == id(call) for one in walk(node)):
                    reads, other, _ = self.call(node)
                    touched = reads | other
                if touched & writes:
                    raise UnsupportedError(
                        f"{call.position}: '{call.callee.name}' changes '{min(touched & writes)}', which the rest of "
                        "this expression reads; C leaves the order open, so give the call a `let` of its own"
                    )

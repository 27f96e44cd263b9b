"""What functions do to variables of their module: which they need as parameters, and where C's order would matter.

C leaves open in which order the operands of an expression are computed. So calls that change what others read are made
one by one before the expression, and an expression that reads itself what one of its calls changes is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import UnsupportedError
from .builtins import meets_others
from .syntax import Assign, Binary, Call, Expression, Function, GlobalVariable, Index, Member, Module, Name, Unary
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
        calls = (node for one in self.functions.values() for node in walk(one.body) if isinstance(node, Call))
        self.has_impure = any(self.call(call)[2] for call in calls)

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

    def in_order(self, nodes: list[Expression]) -> list[Call]:
        """The calls that have to be made one after the other, before expressions that are computed together.

        Raises:
            UnsupportedError: that does not help, as one of them changes what is read in between, or may not be made.
        """
        if not self.has_impure:
            return []
        calls = [call for one in nodes for call in _calls(one) if self.call(call)[2]]
        conflict = False
        for call in calls:
            writes = self.call(call)[1]
            inside = {id(node) for node in walk(call)}
            for node in (node for one in nodes for node in walk(one) if id(node) not in inside):
                if isinstance(node, Name) and node.name in writes:
                    raise self.refusal(call, node.name)
                if isinstance(node, Call) and not _holds(node, call):
                    reads, others, _ = self.call(node)
                    conflict = conflict or not writes.isdisjoint(reads | others)
        if conflict and any(_holds(node.right, call) for node in _choices(nodes) for call in calls):
            raise self.refusal(calls[0], "something")
        return calls if conflict else []

    def refusal(self, call: Call, what: str) -> UnsupportedError:
        """The error for an expression whose order C does not keep."""
        return UnsupportedError(
            f"{call.position}: '{call.callee.name}' changes '{what}', which the rest of this expression reads; C leaves"
            " the order open, so give the call a `let` of its own"
        )


def _calls(node: Expression) -> Iterator[Call]:
    """The calls in an expression, as they are made."""
    children: list[Expression] = []
    match node:
        case Unary():
            children = [node.operand]
        case Binary():
            children = [node.left, node.right]
        case Index():
            children = [node.base, node.index]
        case Member():
            children = [node.base]
        case Call():
            children = node.arguments
    for child in children:
        yield from _calls(child)
    if isinstance(node, Call):
        yield node


def _holds(node: Expression, call: Call) -> bool:
    return any(one is call for one in walk(node))


def _choices(nodes: list[Expression]) -> list[Binary]:
    """What computes its right operand only if it has to."""
    return [node for one in nodes for node in walk(one) if isinstance(node, Binary) and node.operator in ("&&", "||")]

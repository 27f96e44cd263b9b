"""The reads and writes of module variables by functions, for printing them in C.

They determine the variables that a function needs as parameters, and the calls whose order matters. C does not define
the order in which the operands of an expression are computed. So calls that change a variable that other operands read
are made before the expression, one after the other; an expression that reads such a variable itself is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import UnsupportedError
from .builtins import has_side_effects
from .syntax import Assign, Binary, Call, Expression, Function, GlobalVariable, Index, Member, Module, Name, Unary
from .tree import walk

__all__ = ["Effects", "root_of"]


def root_of(node: Expression) -> str:
    """Return the name of the variable that a memory access refers to."""
    while isinstance(node, Index | Member):
        node = node.base
    assert isinstance(node, Name)
    return node.name


class Effects:
    """The reads, writes and side effects of a module's functions, including those of the functions they call."""

    def __init__(self, module: Module) -> None:
        self.order = [
            declaration.name for declaration in module.declarations if isinstance(declaration, GlobalVariable)
        ]
        self.functions = {
            declaration.name: declaration for declaration in module.declarations if isinstance(declaration, Function)
        }
        self.known: dict[str, tuple[set[str], set[str], bool]] = {}
        calls = (
            node for declaration in self.functions.values() for node in walk(declaration.body) if isinstance(node, Call)
        )
        self.has_impure = any(self.call(call)[2] for call in calls)

    def needs(self, function: str) -> list[str]:
        """Return the variables of the module that a function reads or writes, in the order of their declaration."""
        names = self.function(function)[0]
        return [name for name in self.order if name in names]

    def function(self, name: str) -> tuple[set[str], set[str], bool]:
        """Return the variables that a function reads, those that it writes, and True if it has side effects."""
        if name not in self.known:
            self.known[name] = self.of([self.functions[name].body])
        return self.known[name]

    def of(self, nodes: list[object]) -> tuple[set[str], set[str], bool]:
        """Return the reads, the writes and the side effects of nodes, as `function` does."""
        reads: set[str] = set()
        writes: set[str] = set()
        impure = False
        for node in (inner for root in nodes for inner in walk(root)):
            if isinstance(node, Name) and node.name in self.order:
                reads.add(node.name)
            elif isinstance(node, Assign) and node.target is not None:
                writes.add(root_of(node.target))
            elif isinstance(node, Call):
                effects = self.call(node)
                reads |= effects[0]
                writes |= effects[1]
                impure = impure or effects[2]
        writes &= set(self.order)
        return reads, writes, impure or bool(writes)

    def call(self, node: Call) -> tuple[set[str], set[str], bool]:
        """Return the reads, the writes and the side effects of a call itself, without those of its arguments."""
        name = node.callee.name
        if node.kind == "function":
            return self.function(name)
        if node.kind == "builtin" and has_side_effects(name):
            pointer = node.arguments[0] if node.arguments else None
            is_write = name.startswith("atomic") and name != "atomicLoad"
            root = {root_of(pointer.operand)} if is_write and isinstance(pointer, Unary) else set()
            return set(), root, True
        return set(), set(), False

    def is_impure(self, node: Expression) -> bool:
        """Return True if evaluating an expression has side effects."""
        return self.of([node])[2]

    def in_order(self, nodes: list[Expression]) -> list[Call]:
        """Return the calls that must be made in this order before expressions that are evaluated together.

        Raises:
            UnsupportedError: that would change the result, as one of them changes a variable that the expressions read
                themselves, or is made only under a condition.
        """
        if not self.has_impure:
            return []
        calls = [call for expression in nodes for call in _calls(expression) if self.call(call)[2]]
        conflict = False
        for call in calls:
            writes = self.call(call)[1]
            inside = {id(node) for node in walk(call)}
            for node in (node for expression in nodes for node in walk(expression) if id(node) not in inside):
                if isinstance(node, Name) and node.name in writes:
                    raise self.refusal(call, node.name)
                if isinstance(node, Call) and not _holds(node, call):
                    reads, other_writes, _ = self.call(node)
                    conflict = conflict or not writes.isdisjoint(reads | other_writes)
        if conflict and any(_holds(node.right, call) for node in _choices(nodes) for call in calls):
            raise self.refusal(calls[0], "something")
        return calls if conflict else []

    def refusal(self, call: Call, variable: str) -> UnsupportedError:
        """Return the error for an expression whose order of evaluation C does not define."""
        return UnsupportedError(
            f"{call.position}: '{call.callee.name}' changes '{variable}', which the rest of this expression reads; C "
            "leaves the order open, so give the call a `let` of its own"
        )


def _calls(node: Expression) -> Iterator[Call]:
    """Yield the calls in an expression in the order of evaluation."""
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
    return any(inner is call for inner in walk(node))


def _choices(nodes: list[Expression]) -> list[Binary]:
    """Return the operations that evaluate their right operand only if it is needed."""
    return [
        node
        for expression in nodes
        for node in walk(expression)
        if isinstance(node, Binary) and node.operator in ("&&", "||")
    ]

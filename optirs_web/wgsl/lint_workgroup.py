"""The lint for workgroup memory that is read before it is stored.

It holds whatever the workgroup before left there: WGSL promises zeros, wgpu does not clear it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .scopes import fail
from .syntax import (
    Assign,
    Binary,
    Block,
    Call,
    Expression,
    For,
    Function,
    GlobalVariable,
    If,
    Index,
    LocalDeclaration,
    Loop,
    Member,
    Module,
    Name,
    Position,
    Statement,
    Switch,
    Unary,
    While,
)
from .tree import walk
from .types import size_of

__all__ = ["check_workgroup_memory", "workgroup_bytes"]


def workgroup_bytes(module: Module) -> int:
    """Return the bytes of workgroup memory that a checked module declares."""
    variables = [node for node in module.declarations if isinstance(node, GlobalVariable)]
    return sum(size_of(node.type) for node in variables if node.space == "workgroup" and node.type is not None)


def check_workgroup_memory(module: Module) -> None:
    """In the order of the source, every entry point must store a workgroup variable before it reads it."""
    _Workgroup(module).run()


@dataclass
class _Use:
    """What a stretch of code does with workgroup variables: reads that no store precedes, and stores."""

    reads: dict[str, Position] = field(default_factory=dict)
    stores: set[str] = field(default_factory=set)

    def then(self, later: _Use) -> None:
        """Add what comes after."""
        for name, position in later.reads.items():
            if name not in self.stores:
                self.reads.setdefault(name, position)
        self.stores |= later.stores

    def read(self, name: str, position: Position) -> None:
        """Add a read."""
        if name not in self.stores:
            self.reads.setdefault(name, position)


class _Workgroup:
    """What each function does, its callees included; each is looked at once."""

    def __init__(self, module: Module) -> None:
        self.names = {
            one.name for one in module.declarations if isinstance(one, GlobalVariable) and one.space == "workgroup"
        }
        self.functions = {one.name: one for one in module.declarations if isinstance(one, Function)}
        self.done: dict[str, _Use] = {}
        self.hidden: set[str] = set()

    def run(self) -> None:
        if not self.names:
            return
        for one in self.functions.values():
            if one.attributes:
                for name, position in self.function(one).reads.items():
                    raise fail(
                        position,
                        f"workgroup memory '{name}' is read before it is stored; it does not begin at zero, so store "
                        "it first and wait at a workgroupBarrier()",
                    )

    def function(self, one: Function) -> _Use:
        if one.name not in self.done:
            hidden, self.hidden = self.hidden, {parameter.name for parameter in one.parameters}
            self.hidden |= {node.name for node in walk(one.body) if isinstance(node, LocalDeclaration)}
            self.done[one.name] = self.statements(one.body.statements)
            self.hidden = hidden
        return self.done[one.name]

    def statements(self, statements: list[Statement]) -> _Use:
        use = _Use()
        for one in statements:
            use.then(self.statement(one))
        return use

    def statement(self, one: Statement) -> _Use:
        use = _Use()
        match one:
            case Block():
                return self.statements(one.statements)
            case If():
                self.expression(one.condition, use)
                self.branches([one.then, one.otherwise], use)
            case Switch():
                self.expression(one.selector, use)
                self.branches([case.body for case in one.cases], use)
            case For():
                if one.initial is not None:
                    use.then(self.statement(one.initial))
                self.expression(one.condition, use)
                use.then(self.statements(one.body.statements))
                if one.update is not None:
                    use.then(self.statement(one.update))
            case While():
                self.expression(one.condition, use)
                use.then(self.statements(one.body.statements))
            case Loop():
                use.then(self.statements(one.body.statements))
                use.then(self.statements(one.continuing.statements if one.continuing else []))
                self.expression(one.break_if, use)
            case Assign():
                self.assign(one, use)
            case _:
                for name in ("value", "call"):
                    self.expression(getattr(one, name, None), use)
        return use

    def branches(self, blocks: list[Block | None], use: _Use) -> None:
        """Each begins with what holds before; a store in one counts afterwards."""
        found = [self.statements(block.statements) for block in blocks if block is not None]
        stores = {name for one in found for name in one.stores}
        for one in found:
            one.stores = set()
            use.then(one)
        use.stores |= stores

    def assign(self, one: Assign, use: _Use) -> None:
        self.expression(one.value, use)
        root = self.indices(one.target, use)
        if root is not None:
            if one.operator:
                use.read(root, one.position)
            use.stores.add(root)

    def indices(self, target: Expression | None, use: _Use) -> str | None:
        """Read what the target's indices read, and give its variable if that lies in workgroup memory."""
        while isinstance(target, Index | Member):
            if isinstance(target, Index):
                self.expression(target.index, use)
            target = target.base
        return target.name if isinstance(target, Name) and self.is_ours(target.name) else None

    def is_ours(self, name: str) -> bool:
        return name in self.names and name not in self.hidden

    def expression(self, node: Expression | None, use: _Use) -> None:
        match node:
            case Name():
                if self.is_ours(node.name):
                    use.read(node.name, node.position)
            case Unary():
                self.expression(node.operand, use)
            case Binary():
                self.expression(node.left, use)
                self.expression(node.right, use)
            case Index():
                self.expression(node.base, use)
                self.expression(node.index, use)
            case Member():
                self.expression(node.base, use)
            case Call():
                self.call(node, use)

    def call(self, node: Call, use: _Use) -> None:
        arguments = list(node.arguments)
        root = None
        if node.callee.name in ("atomicStore", "subgroupMatrixStore") and isinstance(arguments[0], Unary):
            root = self.indices(arguments.pop(0).operand, use)  # type: ignore[union-attr]
        for argument in arguments:
            self.expression(argument, use)
        if root is not None:
            use.stores.add(root)
        if node.kind == "function":
            use.then(self.function(self.functions[node.callee.name]))

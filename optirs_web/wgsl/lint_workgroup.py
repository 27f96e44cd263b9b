"""The lint for workgroup memory that is read before it is stored.

It has the values that an earlier workgroup left: WGSL promises zeros, but wgpu does not clear it.
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
    """Raise ShaderError if an entry point reads a workgroup variable before a store, in the order of the source."""
    _Workgroup(module).run()


@dataclass
class _Use:
    """The workgroup variables that code reads before it stores them, and those that it stores."""

    reads: dict[str, Position] = field(default_factory=dict)
    stores: set[str] = field(default_factory=set)

    def then(self, later: _Use) -> None:
        """Add the use by code that follows."""
        for name, position in later.reads.items():
            if name not in self.stores:
                self.reads.setdefault(name, position)
        self.stores |= later.stores

    def read(self, name: str, position: Position) -> None:
        """Add a read."""
        if name not in self.stores:
            self.reads.setdefault(name, position)


class _Workgroup:
    """The use of workgroup variables by each function and its callees, computed once for each."""

    def __init__(self, module: Module) -> None:
        self.names = {
            declaration.name
            for declaration in module.declarations
            if isinstance(declaration, GlobalVariable) and declaration.space == "workgroup"
        }
        self.functions = {
            declaration.name: declaration for declaration in module.declarations if isinstance(declaration, Function)
        }
        self.done: dict[str, _Use] = {}
        self.hidden: set[str] = set()

    def run(self) -> None:
        if not self.names:
            return
        for function in self.functions.values():
            if function.attributes:
                for name, position in self.function(function).reads.items():
                    raise fail(
                        position,
                        f"workgroup memory '{name}' is read before it is stored; it does not begin at zero, so store "
                        "it first and wait at a workgroupBarrier()",
                    )

    def function(self, function: Function) -> _Use:
        if function.name not in self.done:
            hidden, self.hidden = self.hidden, {parameter.name for parameter in function.parameters}
            self.hidden |= {node.name for node in walk(function.body) if isinstance(node, LocalDeclaration)}
            self.done[function.name] = self.statements(function.body.statements)
            self.hidden = hidden
        return self.done[function.name]

    def statements(self, statements: list[Statement]) -> _Use:
        use = _Use()
        for statement in statements:
            use.then(self.statement(statement))
        return use

    def statement(self, statement: Statement) -> _Use:
        use = _Use()
        match statement:
            case Block():
                return self.statements(statement.statements)
            case If():
                self.expression(statement.condition, use)
                self.branches([statement.then, statement.otherwise], use)
            case Switch():
                self.expression(statement.selector, use)
                self.branches([case.body for case in statement.cases], use)
            case For():
                if statement.initial is not None:
                    use.then(self.statement(statement.initial))
                self.expression(statement.condition, use)
                use.then(self.statements(statement.body.statements))
                if statement.update is not None:
                    use.then(self.statement(statement.update))
            case While():
                self.expression(statement.condition, use)
                use.then(self.statements(statement.body.statements))
            case Loop():
                use.then(self.statements(statement.body.statements))
                use.then(self.statements(statement.continuing.statements if statement.continuing else []))
                self.expression(statement.break_if, use)
            case Assign():
                self.assign(statement, use)
            case _:
                for name in ("value", "call"):
                    self.expression(getattr(statement, name, None), use)
        return use

    def branches(self, blocks: list[Block | None], use: _Use) -> None:
        """Add blocks of which one runs: a store in one of them counts after them, but not in the others."""
        branches = [self.statements(block.statements) for block in blocks if block is not None]
        stores = {name for branch in branches for name in branch.stores}
        for branch in branches:
            branch.stores = set()
            use.then(branch)
        use.stores |= stores

    def assign(self, statement: Assign, use: _Use) -> None:
        self.expression(statement.value, use)
        root = self.indices(statement.target, use)
        if root is not None:
            if statement.operator:
                use.read(root, statement.position)
            use.stores.add(root)

    def indices(self, target: Expression | None, use: _Use) -> str | None:
        """Add the reads in the target's indices, and return its variable if that is in workgroup memory."""
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

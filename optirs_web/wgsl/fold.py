"""Constant folding: removes branches that are never taken, and locals, functions and parameters left unused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .builtins import has_side_effects
from .checker import check_values, has_exit, leaves
from .constants import Value
from .references import module_references
from .scopes import fail
from .syntax import (
    Assign,
    Binary,
    Block,
    Call,
    CallStatement,
    ConstAssert,
    Expression,
    For,
    Function,
    GlobalVariable,
    If,
    Index,
    Literal,
    LocalDeclaration,
    Loop,
    Member,
    Module,
    Name,
    Return,
    Statement,
    Switch,
    TypeName,
    Unary,
    While,
)
from .tree import walk
from .types import BOOL, F16, F32, I32, U32, Type

__all__ = ["drop_unused_builtins", "fold", "prune"]

_SUFFIXES: dict[Type, str] = {I32: "i", U32: "u", F32: "f", F16: "h"}


def fold(module: Module) -> None:
    """Check a module without imports and remove the branches whose conditions are constant.

    Locals that are unused afterwards are removed too, and so is every `const_assert`, which holds after the check.
    """
    constants, uses = check_values(module)
    folder = _Folder(constants, _functions_with_effects(module, uses))
    module.declarations = [
        declaration for declaration in module.declarations if not isinstance(declaration, ConstAssert)
    ]
    for declaration in module.declarations:
        if isinstance(declaration, Function):
            declaration.body = folder.block(declaration.body, {parameter.name for parameter in declaration.parameters})
            _drop_unused(declaration.body.statements, set(), folder)


def prune(module: Module, roots: Iterable[str]) -> None:
    """Keep the declarations with these names, and those on which they depend."""
    declared = {declaration.name: declaration for declaration in module.declarations if hasattr(declaration, "name")}
    kept: set[str] = set()
    work = list(roots)
    while work:
        name = work.pop()
        if name in declared and name not in kept:
            kept.add(name)
            work.extend(reference.name for reference in module_references(declared[name]))
    module.declarations = [
        declaration for declaration in module.declarations if getattr(declaration, "name", None) in kept
    ]


def drop_unused_builtins(module: Module) -> None:
    """Drop `subgroup_id` and `num_subgroups`, which need an extension, from an entry point if no function uses them.

    Files that an @if selects have functions with the same parameters, some of which are unused in one of the files.
    """
    functions = {
        declaration.name: declaration for declaration in module.declarations if isinstance(declaration, Function)
    }
    builtins = [
        (entry, parameter)
        for entry in functions.values()
        for parameter in entry.parameters
        for attribute in parameter.attributes
        if isinstance(value := attribute.arguments[0], Name) and value.name in ("subgroup_id", "num_subgroups")
    ]
    calls: dict[str, list[Call]] = {}
    for call in walk(module.declarations) if builtins else ():
        if isinstance(call, Call) and call.kind == "function":
            calls.setdefault(call.callee.name, []).append(call)
    for entry, parameter in builtins:
        passed = [
            (name, number)
            for name, calls_of_function in calls.items()
            if len(calls_of_function) == 1
            for number, argument in enumerate(calls_of_function[0].arguments)
            if isinstance(argument, Name)
            and argument.name == parameter.name
            and functions[name].parameters[number].name not in _names(functions[name].body)
        ]
        if len(passed) == sum(isinstance(node, Name) and node.name == parameter.name for node in walk(entry.body)):
            entry.parameters.remove(parameter)
            for name, number in reversed(passed):
                del calls[name][0].arguments[number], functions[name].parameters[number]


def _functions_with_effects(module: Module, uses: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the functions with side effects: they use a module's variable or synchronize with other invocations."""
    variables = {declaration.name for declaration in module.declarations if isinstance(declaration, GlobalVariable)}
    callers: dict[str, list[str]] = {}
    for name, used in uses.items():
        for callee in used:
            callers.setdefault(callee, []).append(name)
    work = [
        name
        for name, used in uses.items()
        if any(reference in variables or has_side_effects(reference) for reference in used)
    ]
    impure: set[str] = set()
    while work:
        name = work.pop()
        if name not in impure:
            impure.add(name)
            work += callers.get(name, [])
    return impure


@dataclass
class _Folder:
    """Folds statements and expressions.

    Attributes:
        known: const-expressions and their values, by the `id` of the nodes.
        impure: the functions with side effects.
    """

    known: dict[int, tuple[Expression, Value]]
    impure: set[str]
    rules: dict[type, Callable[..., list[Statement]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = {If: self.if_, While: self.while_, For: self.for_, Loop: self.loop, Switch: self.switch}

    def is_pure(self, node: Expression | None) -> bool:
        """Return True if an expression has no side effects, so that it may be removed."""
        return not any(
            isinstance(inner, Call) and (inner.callee.name in self.impure or has_side_effects(inner.callee.name))
            for inner in walk(node)
        )

    # Statements: each rule returns the statements that replace its argument.

    def block(self, block: Block, taken: set[str] | None = None) -> Block:
        """Return a folded block; `taken` are the names that its scope declares before it begins."""
        return Block(block.position, self.sequence(block.statements, taken or set()))

    def sequence(self, statements: list[Statement], taken: set[str]) -> list[Statement]:
        result: list[Statement] = []
        last: dict[str, int] | None = None
        taken = set(taken)
        for number, statement in enumerate(statements):
            for folded in self.statement(statement):
                if isinstance(folded, Block) and not isinstance(statement, Block):  # a branch that is always taken
                    last = _last_uses(statements) if last is None else last
                    inner = _declared(folded.statements)
                    if not inner & taken and all(last[name] == number for name in inner):
                        result += folded.statements
                        taken |= inner
                        continue
                result.append(folded)
            taken |= _declared([statement])
            if result and leaves(result[-1], jumps=True):
                break
        return result

    def statement(self, statement: Statement) -> list[Statement]:
        match statement:
            case Block():
                inner = self.block(statement)
                return [inner] if inner.statements else []
            case LocalDeclaration(keyword="const"):
                return [statement]
            case LocalDeclaration(value=value) | Return(value=value) if value is not None:
                statement.value = self.expression(value)
            case Assign(target=target, value=value):
                statement.target = None if target is None else self.expression(target)
                statement.value = self.expression(value)
            case CallStatement(call=call):
                call.arguments = [self.expression(argument) for argument in call.arguments]
            case ConstAssert():
                return []
            case If() | While() | For() | Loop() | Switch():
                return self.rules[type(statement)](statement)
        return [statement]

    def if_(self, statement: If) -> list[Statement]:
        condition = self.expression(statement.condition)
        if isinstance(condition, Literal):
            chosen = statement.then if condition.value else statement.otherwise
            return [] if chosen is None else self.statement(chosen)
        then = self.block(statement.then)
        otherwise = None if statement.otherwise is None else self.block(statement.otherwise)
        if otherwise is not None and not otherwise.statements:
            otherwise = None
        if not then.statements and otherwise is None and self.is_pure(condition):
            return []
        return [If(statement.position, condition, then, otherwise)]

    def while_(self, statement: While) -> list[Statement]:
        statement.condition, statement.body = self.expression(statement.condition), self.block(statement.body)
        return [] if isinstance(statement.condition, Literal) and not statement.condition.value else [statement]

    def for_(self, statement: For) -> list[Statement]:
        if statement.initial is not None:
            self.statement(statement.initial)
        if statement.update is not None:
            self.statement(statement.update)
        if statement.condition is not None:
            statement.condition = self.expression(statement.condition)
        statement.body = self.block(statement.body)
        self.check_exit(statement, statement.condition, statement.body)
        if statement.unrolled is None:
            return [statement]
        is_unrolled = self.expression(statement.unrolled)
        statement.unrolled = None
        if not isinstance(is_unrolled, Literal) or not is_unrolled.value:
            return [statement]
        from .unroll import iterations  # which few kernels need

        return iterations(statement, self.known)

    def loop(self, statement: Loop) -> list[Statement]:
        statement.body = self.block(statement.body)
        if statement.continuing is not None:
            statement.continuing = self.block(statement.continuing)
        if statement.break_if is not None:
            statement.break_if = self.expression(statement.break_if)
        self.check_exit(statement, statement.break_if, statement.body)
        return [statement]

    def check_exit(self, loop: For | Loop, condition: Expression | None, body: Block) -> None:
        if condition is None and not has_exit(body):
            raise fail(loop.position, "with these constants this loop never ends")

    def switch(self, statement: Switch) -> list[Statement]:
        statement.selector = self.expression(statement.selector)
        for case in statement.cases:
            case.body = self.block(case.body)
        return [statement]

    # Expressions.

    def expression(self, node: Expression) -> Expression:
        """Return an expression in which constant conditions are decided."""
        if node.type == BOOL and id(node) in self.known:
            value = self.known[id(node)][1]
            return Literal(node.position, bool(value), "", BOOL)
        match node:
            case Unary():
                node.operand = self.expression(node.operand)
            case Binary():
                return self.binary(node)
            case Index():
                node.base, node.index = self.expression(node.base), self.expression(node.index)
            case Member():
                node.base = self.expression(node.base)
            case Call():
                return self.call(node)
        return node

    def binary(self, node: Binary) -> Expression:
        node.left, node.right = self.expression(node.left), self.expression(node.right)
        if node.operator in ("&&", "||"):
            decides = node.operator == "||"
            if isinstance(node.left, Literal):
                return node.left if node.left.value is decides else node.right
            if isinstance(node.right, Literal) and node.right.value is not decides:
                return node.left
            if isinstance(node.right, Literal) and self.is_pure(node.left):
                return node.right
        return node

    def call(self, node: Call) -> Expression:
        node.arguments = [self.expression(argument) for argument in node.arguments]
        if node.kind == "builtin" and node.callee.name == "select" and isinstance(node.arguments[2], Literal):
            otherwise, then, condition = node.arguments
            kept, dropped = (
                (then, otherwise) if isinstance(condition, Literal) and condition.value else (otherwise, then)
            )
            return _fixed(kept) if self.is_pure(dropped) else node
        return node


def _fixed(node: Expression) -> Expression:
    """Return a literal with the suffix of its type, so that it keeps the type in any context."""
    if isinstance(node, Literal) and not node.suffix and node.type in _SUFFIXES:
        node.suffix = _SUFFIXES[node.type]
    return node


def _declared(statements: list[Statement]) -> set[str]:
    return {statement.name for statement in statements if isinstance(statement, LocalDeclaration)}


def _last_uses(statements: list[Statement]) -> dict[str, int]:
    """Return, by name, the index of the last statement in which it occurs, in any scope."""
    return {
        node.name: number
        for number, statement in enumerate(statements)
        for node in walk(statement)
        if isinstance(node, Name | TypeName | LocalDeclaration)
    }


def _drop_unused(statements: list[Statement], used: set[str], folder: _Folder) -> None:
    """Remove each `let` and `const` that is not used after it, from the last statement to the first.

    `used` has the names that occur after the statements; the names in them are added to it.
    """
    for number in range(len(statements) - 1, -1, -1):
        statement = statements[number]
        is_unused = (
            isinstance(statement, LocalDeclaration) and statement.keyword != "var" and statement.name not in used
        )
        if is_unused and isinstance(statement, LocalDeclaration) and folder.is_pure(statement.value):
            del statements[number]
            continue
        blocks, around, before = _parts(statement)
        if blocks:
            used |= _names(around)
            after = set(used)
            for block in blocks:
                inner = set(after)
                _drop_unused(block.statements, inner, folder)
                used |= inner
        used |= _names(before)


def _parts(statement: Statement) -> tuple[list[Block], object, object]:
    """Return the blocks of a statement, the nodes that may be evaluated after one of them, and all other nodes."""
    match statement:
        case Block():
            return [statement], None, None
        case If(then=then, otherwise=otherwise):
            return [then] if otherwise is None else [then, otherwise], None, statement.condition
        case For(body=body):
            return [body], [statement.condition, statement.update], statement.initial
        case While(body=body):
            return [body], None, statement.condition
        case Switch(cases=cases):
            return [case.body for case in cases], None, [statement.selector, [case.selectors for case in cases]]
    return [], None, statement  # in a `loop` the declarations of the body are visible in the continuing block


def _names(node: object) -> set[str]:
    """Return every name in a node that may refer to a local."""
    return {inner.name for inner in walk(node) if isinstance(inner, Name | TypeName)}

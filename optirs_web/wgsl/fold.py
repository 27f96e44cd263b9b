"""What constants decide before the shader runs: branches never taken go, and what nobody uses goes with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .builtins import meets_others
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

    Locals that are then not used go too, and so does every `const_assert`, since it held.
    """
    constants, uses = check_values(module)
    folder = _Folder(constants, _functions_with_effects(module, uses))
    module.declarations = [one for one in module.declarations if not isinstance(one, ConstAssert)]
    for one in module.declarations:
        if isinstance(one, Function):
            one.body = folder.block(one.body, {parameter.name for parameter in one.parameters})
            _drop_unused(one.body.statements, set(), folder)


def prune(module: Module, roots: Iterable[str]) -> None:
    """Keep what the declarations named reach."""
    declared = {one.name: one for one in module.declarations if hasattr(one, "name")}
    kept: set[str] = set()
    work = list(roots)
    while work:
        name = work.pop()
        if name in declared and name not in kept:
            kept.add(name)
            work.extend(reference.name for reference in module_references(declared[name]))
    module.declarations = [one for one in module.declarations if getattr(one, "name", None) in kept]


def drop_unused_builtins(module: Module) -> None:
    """Drop `subgroup_id` and `num_subgroups` from an entry point if no function uses them, which need an extension.

    Files between which an @if chooses have functions with the same parameters, and some pass such a parameter unused.
    """
    functions = {one.name: one for one in module.declarations if isinstance(one, Function)}
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
    """Functions that may do more than return a value: they touch a module's variable, or meet other invocations."""
    variables = {one.name for one in module.declarations if isinstance(one, GlobalVariable)}
    callers: dict[str, list[str]] = {}
    for name, used in uses.items():
        for other in used:
            callers.setdefault(other, []).append(name)
    work = [name for name, used in uses.items() if any(one in variables or meets_others(one) for one in used)]
    found: set[str] = set()
    while work:
        name = work.pop()
        if name not in found:
            found.add(name)
            work += callers.get(name, [])
    return found


@dataclass
class _Folder:
    """`known` has const-expressions and their values by the `id` of the nodes."""

    known: dict[int, tuple[Expression, Value]]
    impure: set[str]
    rules: dict[type, Callable[..., list[Statement]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = {If: self.if_, While: self.while_, For: self.for_, Loop: self.loop, Switch: self.switch}

    def is_pure(self, node: Expression | None) -> bool:
        """Whether dropping it changes nothing."""
        return not any(
            isinstance(one, Call) and (one.callee.name in self.impure or meets_others(one.callee.name))
            for one in walk(node)
        )

    # Statements: each becomes some.

    def block(self, block: Block, taken: set[str] | None = None) -> Block:
        """A block; `taken` are the names that its scope has before it begins."""
        return Block(block.position, self.sequence(block.statements, taken or set()))

    def sequence(self, statements: list[Statement], taken: set[str]) -> list[Statement]:
        result: list[Statement] = []
        last: dict[str, int] | None = None
        taken = set(taken)
        for number, statement in enumerate(statements):
            for one in self.statement(statement):
                if isinstance(one, Block) and not isinstance(statement, Block):  # a branch that is always taken
                    last = _last_uses(statements) if last is None else last
                    inner = _declared(one.statements)
                    if not inner & taken and all(last[name] == number for name in inner):
                        result += one.statements
                        taken |= inner
                        continue
                result.append(one)
            taken |= _declared([statement])
            if result and leaves(result[-1], jumps=True):
                break
        return result

    def statement(self, one: Statement) -> list[Statement]:
        match one:
            case Block():
                inner = self.block(one)
                return [inner] if inner.statements else []
            case LocalDeclaration(keyword="const"):
                return [one]
            case LocalDeclaration(value=value) | Return(value=value) if value is not None:
                one.value = self.expression(value)
            case Assign(target=target, value=value):
                one.target = None if target is None else self.expression(target)
                one.value = self.expression(value)
            case CallStatement(call=call):
                call.arguments = [self.expression(argument) for argument in call.arguments]
            case ConstAssert():
                return []
            case If() | While() | For() | Loop() | Switch():
                return self.rules[type(one)](one)
        return [one]

    def if_(self, one: If) -> list[Statement]:
        condition = self.expression(one.condition)
        if isinstance(condition, Literal):
            chosen = one.then if condition.value else one.otherwise
            return [] if chosen is None else self.statement(chosen)
        then = self.block(one.then)
        otherwise = None if one.otherwise is None else self.block(one.otherwise)
        if otherwise is not None and not otherwise.statements:
            otherwise = None
        if not then.statements and otherwise is None and self.is_pure(condition):
            return []
        return [If(one.position, condition, then, otherwise)]

    def while_(self, one: While) -> list[Statement]:
        one.condition, one.body = self.expression(one.condition), self.block(one.body)
        return [] if isinstance(one.condition, Literal) and not one.condition.value else [one]

    def for_(self, one: For) -> list[Statement]:
        if one.initial is not None:
            self.statement(one.initial)
        if one.update is not None:
            self.statement(one.update)
        if one.condition is not None:
            one.condition = self.expression(one.condition)
        one.body = self.block(one.body)
        self.check_exit(one, one.condition, one.body)
        if one.unrolled is None:
            return [one]
        is_unrolled = self.expression(one.unrolled)
        one.unrolled = None
        if not isinstance(is_unrolled, Literal) or not is_unrolled.value:
            return [one]
        from .unroll import iterations  # which few kernels need

        return iterations(one, self.known)

    def loop(self, one: Loop) -> list[Statement]:
        one.body = self.block(one.body)
        if one.continuing is not None:
            one.continuing = self.block(one.continuing)
        if one.break_if is not None:
            one.break_if = self.expression(one.break_if)
        self.check_exit(one, one.break_if, one.body)
        return [one]

    def check_exit(self, one: For | Loop, condition: Expression | None, body: Block) -> None:
        if condition is None and not has_exit(body):
            raise fail(one.position, "with these constants this loop never ends")

    def switch(self, one: Switch) -> list[Statement]:
        one.selector = self.expression(one.selector)
        for case in one.cases:
            case.body = self.block(case.body)
        return [one]

    # Expressions.

    def expression(self, node: Expression) -> Expression:
        """The expression with what is constant in its conditions decided."""
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
    """A literal that keeps its type wherever it is moved to."""
    if isinstance(node, Literal) and not node.suffix and node.type in _SUFFIXES:
        node.suffix = _SUFFIXES[node.type]
    return node


def _declared(statements: list[Statement]) -> set[str]:
    return {one.name for one in statements if isinstance(one, LocalDeclaration)}


def _last_uses(statements: list[Statement]) -> dict[str, int]:
    """For each name, the last statement in which it occurs, in whatever scope."""
    return {
        one.name: number
        for number, statement in enumerate(statements)
        for one in walk(statement)
        if isinstance(one, Name | TypeName | LocalDeclaration)
    }


def _drop_unused(statements: list[Statement], used: set[str], folder: _Folder) -> None:
    """Drop each `let` and `const` that nothing after it names, from the end to the beginning.

    `used` has the names that occur after the statements; theirs are added to it.
    """
    for number in range(len(statements) - 1, -1, -1):
        one = statements[number]
        is_unused = isinstance(one, LocalDeclaration) and one.keyword != "var" and one.name not in used
        if is_unused and isinstance(one, LocalDeclaration) and folder.is_pure(one.value):
            del statements[number]
            continue
        blocks, around, before = _parts(one)
        after = used | _names(around)
        for block in blocks:
            inner = set(after)
            _drop_unused(block.statements, inner, folder)
            used |= inner
        used |= _names(around) | _names(before)


def _parts(one: Statement) -> tuple[list[Block], object, object]:
    """The blocks of a statement, what may run after one of them, and all else."""
    match one:
        case Block():
            return [one], None, None
        case If(then=then, otherwise=otherwise):
            return [then] if otherwise is None else [then, otherwise], None, one.condition
        case For(body=body):
            return [body], [one.condition, one.update], one.initial
        case While(body=body):
            return [body], None, one.condition
        case Switch(cases=cases):
            return [case.body for case in cases], None, [one.selector, [case.selectors for case in cases]]
    return [], None, one  # in a `loop` the continuing block sees what the body declares


def _names(node: object) -> set[str]:
    """Every name in it that may stand for a local."""
    return {one.name for one in walk(node) if isinstance(one, Name | TypeName)}

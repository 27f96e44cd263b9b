"""Statements in C: each gives its lines, not indented."""

from __future__ import annotations

from collections.abc import Callable

from .c_expressions import Expressions, type_of
from .checker import has_continue, leaves
from .syntax import (
    Assign,
    Block,
    Break,
    CallStatement,
    Continue,
    Expression,
    For,
    If,
    Index,
    LocalDeclaration,
    Loop,
    Member,
    Return,
    Statement,
    Switch,
    While,
)
from .typerules import is_abstract
from .types import Scalar

__all__ = ["INDENT", "Statements"]

INDENT = "    "


class Statements:
    """Prints statements of one module."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.names = expressions.names
        self.before: list[str] | None = None
        self.rules: dict[type, Callable[..., list[str]]] = {
            LocalDeclaration: self.simple,
            Assign: self.simple,
            CallStatement: self.simple,
            Block: self.block,
            If: self.choice,
            For: self.for_,
            While: self.while_,
            Loop: self.loop,
            Switch: self.switch,
            Return: self.return_,
            Break: lambda one: ["break;"],
            Continue: lambda one: ["continue;"],
        }

    def sequence(self, statements: list[Statement]) -> list[str]:
        """Statements of the innermost scope, indented."""
        lines: list[str] = []
        before: list[str]
        for one in statements:
            outer, before = self.before, []
            self.before = None if isinstance(one, For | While | Loop) else before
            found = self.rules[type(one)](one)
            self.before = outer
            lines += [f"{INDENT}{line}" for line in (*before, *found)]
        return lines

    def body(self, block: Block) -> list[str]:
        """A block's statements in a scope of their own, indented."""
        self.names.scopes.append({})
        lines = self.sequence(block.statements)
        self.names.scopes.pop()
        return lines

    def braced(self, head: str, block: Block) -> list[str]:
        """A block after its head."""
        lines = self.body(block)
        return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]

    def value(self, node: Expression, *others: Expression) -> str:
        """An expression that is computed by itself, or together with others."""
        self.calls_first(node, *others)
        return self.expressions.text(node)

    def calls_first(self, *nodes: Expression) -> None:
        """Make the calls whose order matters before the statement that is being printed."""
        for call in self.expressions.effects.in_order(list(nodes)):
            if self.before is None or call.type is None:
                raise self.expressions.effects.refusal(call, "something")
            type_, value = self.expressions.types.name(call.type), self.expressions.text(call)
            name = self.names.temporary(call.callee.name)
            self.before.append(f"const {type_} {name} = {value};")
            self.expressions.made[id(call)] = name

    def simple(self, one: Statement) -> list[str]:
        """A statement that may stand in the head of a `for`."""
        head = self.head(one)
        return [f"{head};"] if head else []

    def head(self, one: Statement | None) -> str:
        """Its text without the semicolon; "" where there is nothing to do."""
        match one:
            case LocalDeclaration():
                return self.local(one)
            case Assign(target=None, value=value):
                return f"(void)({self.value(value)})"
            case Assign(target=target, operator=operator, value=value) if target is not None:
                return self.assign(target, operator, value)
            case CallStatement(call=call):
                return self.value(call)
        return ""

    def local(self, one: LocalDeclaration) -> str:
        """``let``, ``var`` and ``const``; a const that is abstract stands in its uses already."""
        if one.type is None or is_abstract(one.type):
            return ""
        type_ = self.expressions.types.name(one.type)
        const = "" if one.keyword == "var" else "const "
        if one.value is not None:
            value = self.value(one.value)
        elif isinstance(one.type, Scalar) or self.expressions.types.is_own(one.type):
            value = self.expressions.zero(one.type, one.position).text
        else:
            value = f"{{{self.expressions.dialect.zero}}}"
        return f"{const}{type_} {self.names.local(one.name)} = {value}"

    def assign(self, target: Expression, operator: str, value: Expression) -> str:
        """``target = value`` and ``target += value``."""
        indices = _indices(target)
        place = self.expressions.text(target)
        if not operator:
            return f"{place} = {self.value(value, *indices)}"
        self.calls_first(target, value)
        short = self.expressions.compound(operator, target, value)
        return short or f"{place} = {self.expressions.binary(operator, target, value, type_of(target))}"

    def block(self, one: Block) -> list[str]:
        """``{ … }``."""
        return ["{", *self.body(one), "}"]

    def choice(self, one: If) -> list[str]:
        """An `if` with a barrier at its end has it behind, where it does no harm: all invocations take it, or none.

        PoCL copies all that follows a barrier that may be left out, for each of them again.
        """
        *others, last = one.then.statements or [one]
        if one.otherwise is not None or not _is_barrier(last):
            return self.if_(one)
        return [*self.if_(If(one.position, one.condition, Block(one.then.position, others), None)), *self.simple(last)]

    def if_(self, one: If) -> list[str]:
        """With the `else if`s behind it."""
        lines = [f"if ({self.value(one.condition)}) {{", *self.body(one.then)]
        otherwise = one.otherwise
        if otherwise is None:
            return [*lines, "}"]
        if len(otherwise.statements) == 1 and isinstance(otherwise.statements[0], If):
            self.before = None  # there is no place before an `else if`
            first, *rest = self.if_(otherwise.statements[0])
            return [*lines, f"}} else {first}", *rest]
        return [*lines, "} else {", *self.body(otherwise), "}"]

    def for_(self, one: For) -> list[str]:
        """A C loop: the scopes are those of WGSL."""
        self.names.scopes.append({})
        initial = self.head(one.initial)
        condition = "" if one.condition is None else f" {self.value(one.condition)}"
        update = self.head(one.update)
        lines = self.braced(f"for ({initial};{condition};{' ' if update else ''}{update})", one.body)
        self.names.scopes.pop()
        return lines

    def while_(self, one: While) -> list[str]:
        """``while condition { … }``."""
        return self.braced(f"while ({self.value(one.condition)})", one.body)

    def loop(self, one: Loop) -> list[str]:
        """The continuing block ends the body; where the body has a `continue`, it begins the next turn instead."""
        if one.continuing is None:
            return self.braced("for (;;)", one.body)
        if has_continue(one.body):
            first = self.names.temporary("is_first")
            after = self.continuing(one, one.continuing)
            guarded = [f"{INDENT}if (!{first}) {{", *(f"{INDENT}{line}" for line in after), f"{INDENT}}}"]
            reset = f"{INDENT}{first} = false;"
            return [f"bool {first} = true;", "for (;;) {", *guarded, reset, *self.body(one.body), "}"]
        self.names.scopes.append({})
        lines = self.sequence(one.body.statements)
        after = self.continuing(one, one.continuing)
        self.names.scopes.pop()
        return ["for (;;) {", *lines, f"{INDENT}{{", *(f"{INDENT}{line}" for line in after), f"{INDENT}}}", "}"]

    def continuing(self, one: Loop, block: Block) -> list[str]:
        """The continuing block and its `break if`, indented."""
        self.names.scopes.append({})
        lines = self.sequence(block.statements)
        if one.break_if is not None:
            lines.append(f"{INDENT}if ({self.value(one.break_if)}) break;")
        self.names.scopes.pop()
        return lines

    def switch(self, one: Switch) -> list[str]:
        """Nothing falls through."""
        lines = [f"switch ({self.value(one.selector)}) {{"]
        for case in one.cases:
            labels = [f"case {self.expressions.text(selector)}:" for selector in case.selectors]
            labels += ["default:"] if case.is_default else []
            body = self.body(case.body)
            if not leaves(case.body, jumps=True):
                body.append(f"{INDENT}break;")
            lines += [f"{INDENT}{line}" for line in (*labels[:-1], f"{labels[-1]} {{", *body, "}")]
        return [*lines, "}"]

    def return_(self, one: Return) -> list[str]:
        """``return value;``."""
        return ["return;" if one.value is None else f"return {self.value(one.value)};"]


def _is_barrier(one: Statement) -> bool:
    return isinstance(one, CallStatement) and one.call.callee.name in ("storageBarrier", "workgroupBarrier")


def _indices(target: Expression) -> list[Expression]:
    """The indices that say where a target lies."""
    found = []
    while isinstance(target, Index | Member):
        if isinstance(target, Index):
            found.append(target.index)
        target = target.base
    return found

"""Prints statements in C, each as a list of lines without indentation."""

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
    """Prints the statements of a module."""

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
            Break: lambda statement: ["break;"],
            Continue: lambda statement: ["continue;"],
        }

    def sequence(self, statements: list[Statement]) -> list[str]:
        """Return statements of the innermost scope, indented."""
        lines: list[str] = []
        before: list[str]
        for statement in statements:
            outer, before = self.before, []
            self.before = None if isinstance(statement, For | While | Loop) else before
            printed = self.rules[type(statement)](statement)
            self.before = outer
            lines += [f"{INDENT}{line}" for line in (*before, *printed)]
        return lines

    def body(self, block: Block) -> list[str]:
        """Return a block's statements in a scope of their own, indented."""
        self.names.scopes.append({})
        lines = self.sequence(block.statements)
        self.names.scopes.pop()
        return lines

    def braced(self, head: str, block: Block) -> list[str]:
        """Return a block in braces after its head."""
        lines = self.body(block)
        return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]

    def value(self, node: Expression, *others: Expression) -> str:
        """Return an expression that is evaluated alone, or together with others."""
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

    def simple(self, statement: Statement) -> list[str]:
        """Return a statement that is also allowed in the head of a `for`."""
        head = self.head(statement)
        return [f"{head};"] if head else []

    def head(self, statement: Statement | None) -> str:
        """Return a simple statement without its semicolon; "" if nothing has to be printed."""
        match statement:
            case LocalDeclaration():
                return self.local(statement)
            case Assign(target=None, value=value):
                return f"(void)({self.value(value)})"
            case Assign(target=target, operator=operator, value=value) if target is not None:
                return self.assign(target, operator, value)
            case CallStatement(call=call):
                return self.value(call)
        return ""

    def local(self, declaration: LocalDeclaration) -> str:
        """Return ``let``, ``var`` or ``const``; "" for an abstract constant, whose value is in its uses."""
        if declaration.type is None or is_abstract(declaration.type):
            return ""
        type_ = self.expressions.types.name(declaration.type)
        const = "" if declaration.keyword == "var" else "const "
        if declaration.value is not None:
            value = self.value(declaration.value)
        elif isinstance(declaration.type, Scalar) or self.expressions.types.is_own(declaration.type):
            value = self.expressions.zero(declaration.type, declaration.position).text
        else:
            value = f"{{{self.expressions.dialect.zero}}}"
        return f"{const}{type_} {self.names.local(declaration.name)} = {value}"

    def assign(self, target: Expression, operator: str, value: Expression) -> str:
        """``target = value`` and ``target += value``."""
        indices = _indices(target)
        target_text = self.expressions.text(target)
        if not operator:
            return f"{target_text} = {self.value(value, *indices)}"
        self.calls_first(target, value)
        short = self.expressions.compound(operator, target, value)
        return short or f"{target_text} = {self.expressions.binary(operator, target, value, type_of(target))}"

    def block(self, statement: Block) -> list[str]:
        """``{ … }``."""
        return ["{", *self.body(statement), "}"]

    def choice(self, statement: If) -> list[str]:
        """Return an `if`; a barrier at its end is moved after it, since all invocations take the branch or none does.

        PoCL duplicates all code after a conditional barrier.
        """
        *body, last = statement.then.statements or [statement]
        if statement.otherwise is not None or not _is_barrier(last):
            return self.if_(statement)
        return [
            *self.if_(If(statement.position, statement.condition, Block(statement.then.position, body), None)),
            *self.simple(last),
        ]

    def if_(self, statement: If) -> list[str]:
        """Return an `if` with its `else if` and `else` branches."""
        lines = [f"if ({self.value(statement.condition)}) {{", *self.body(statement.then)]
        otherwise = statement.otherwise
        if otherwise is None:
            return [*lines, "}"]
        if len(otherwise.statements) == 1 and isinstance(otherwise.statements[0], If):
            self.before = None  # there is no place before an `else if`
            first_line, *other_lines = self.if_(otherwise.statements[0])
            return [*lines, f"}} else {first_line}", *other_lines]
        return [*lines, "} else {", *self.body(otherwise), "}"]

    def for_(self, statement: For) -> list[str]:
        """Return a `for`, whose scopes are the same in C."""
        self.names.scopes.append({})
        initial = self.head(statement.initial)
        condition = "" if statement.condition is None else f" {self.value(statement.condition)}"
        update = self.head(statement.update)
        lines = self.braced(f"for ({initial};{condition};{' ' if update else ''}{update})", statement.body)
        self.names.scopes.pop()
        return lines

    def while_(self, statement: While) -> list[str]:
        """``while condition { … }``."""
        return self.braced(f"while ({self.value(statement.condition)})", statement.body)

    def loop(self, statement: Loop) -> list[str]:
        """Return a loop with the continuing block at the end of its body.

        If the body has a `continue`, the block is printed at its beginning instead and skipped in the first iteration.
        """
        if statement.continuing is None:
            return self.braced("for (;;)", statement.body)
        if has_continue(statement.body):
            is_first = self.names.temporary("is_first")
            after = self.continuing(statement, statement.continuing)
            guarded = [f"{INDENT}if (!{is_first}) {{", *(f"{INDENT}{line}" for line in after), f"{INDENT}}}"]
            reset = f"{INDENT}{is_first} = false;"
            return [f"bool {is_first} = true;", "for (;;) {", *guarded, reset, *self.body(statement.body), "}"]
        self.names.scopes.append({})
        lines = self.sequence(statement.body.statements)
        after = self.continuing(statement, statement.continuing)
        self.names.scopes.pop()
        return ["for (;;) {", *lines, f"{INDENT}{{", *(f"{INDENT}{line}" for line in after), f"{INDENT}}}", "}"]

    def continuing(self, loop: Loop, block: Block) -> list[str]:
        """Return the continuing block and its `break if`, indented."""
        self.names.scopes.append({})
        lines = self.sequence(block.statements)
        if loop.break_if is not None:
            lines.append(f"{INDENT}if ({self.value(loop.break_if)}) break;")
        self.names.scopes.pop()
        return lines

    def switch(self, statement: Switch) -> list[str]:
        """Return a `switch`, in which every case ends in a jump."""
        lines = [f"switch ({self.value(statement.selector)}) {{"]
        for case in statement.cases:
            labels = [f"case {self.expressions.text(selector)}:" for selector in case.selectors]
            labels += ["default:"] if case.is_default else []
            body = self.body(case.body)
            if not leaves(case.body, jumps=True):
                body.append(f"{INDENT}break;")
            lines += [f"{INDENT}{line}" for line in (*labels[:-1], f"{labels[-1]} {{", *body, "}")]
        return [*lines, "}"]

    def return_(self, statement: Return) -> list[str]:
        """``return value;``."""
        return ["return;" if statement.value is None else f"return {self.value(statement.value)};"]


def _is_barrier(statement: Statement) -> bool:
    return isinstance(statement, CallStatement) and statement.call.callee.name in ("storageBarrier", "workgroupBarrier")


def _indices(target: Expression) -> list[Expression]:
    """Return the indices in the target of an assignment, the last first."""
    indices = []
    while isinstance(target, Index | Member):
        if isinstance(target, Index):
            indices.append(target.index)
        target = target.base
    return indices

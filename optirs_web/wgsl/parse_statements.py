"""The second layer of the parser: statements, and declarations in functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as OneOf, cast

from .lexer import Token
from .parse_expressions import ExpressionParser
from .syntax import (
    Assign,
    Block,
    Break,
    Call,
    CallStatement,
    Case,
    ConstAssert,
    Continue,
    Expression,
    For,
    If,
    Literal,
    LocalDeclaration,
    Loop,
    Return,
    Statement,
    Switch,
    While,
)

__all__ = ["StatementParser"]

_ASSIGNMENTS = {
    **{f"{operator}=": operator for operator in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")},
    "=": "",
}


class StatementParser(ExpressionParser):
    """Parses statements. A rule for a keyword takes the keyword's token, which has been read."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.statements: dict[str, Callable[[Token], Statement]] = {
            "{": lambda token: self.block(),
            "if": self.if_,
            "for": self.for_,
            "@": self.unrolled,
            "while": self.while_,
            "loop": self.loop,
            "switch": self.switch,
            "return": self.return_,
            "break": self.break_,
            "continue": self.continue_,
            "const_assert": self.const_assert,
        }

    def block(self) -> Block:
        """``{ statement … }``."""
        if self.token.text == "@":
            raise self.error("blocks take no attributes here; leave it out", self.token)
        token = self.expect("{", "a block begins here")
        return Block(self.at(token), self.statements_until("}", token))

    def statements_until(self, end: str, opening: Token) -> list[Statement]:
        """Parse statements up to and past the closing brace, or up to the word `continuing`."""
        statements: list[Statement] = []
        self.enter(opening)
        while True:
            if self.accept(end):
                break
            if self.token.kind == "end":
                raise self.error("this block is never closed; write }", opening)
            if self.token.text == "continuing":
                break
            if not self.accept(";"):
                statements.append(self.statement())
        self.leave()
        return statements

    def statement(self) -> Statement:
        """Parse any statement."""
        token = self.token
        rule = self.statements.get(token.text)
        if rule is None:
            simple = self.simple_statement()
            self.expect(";", "after the statement")
            return simple
        if token.text != "{":
            self.advance()
        return rule(token)

    def simple_statement(self) -> LocalDeclaration | Assign | CallStatement:
        """Parse a statement that is also allowed in the head of a `for`, without its semicolon."""
        token = self.token
        if token.text in ("let", "var", "const"):
            return self.local_declaration()
        if token.text == "_" and token.kind == "name":
            self.advance()
            self.expect("=", "after _")
            return Assign(self.at(token), None, "", self.expression())
        target = self.unary()
        operator = self.token
        if operator.text in _ASSIGNMENTS:
            self.advance()
            return Assign(self.at(token), target, _ASSIGNMENTS[operator.text], self.expression())
        if operator.text in ("++", "--"):
            self.advance()
            return Assign(self.at(token), target, operator.text[0], Literal(self.at(operator), 1))
        if isinstance(target, Call):
            return CallStatement(self.at(token), target)
        raise self.error(f"expected an assignment or a call, found {self.show(operator)}", operator)

    def local_declaration(self) -> LocalDeclaration:
        """``let name: type = value``, and the same with ``const`` and ``var``; without the semicolon."""
        token = self.advance()
        keyword = cast(OneOf["let", "var", "const"], token.text)
        if self.token.text == "<":
            raise self.error("a variable in a function has no address space; write var name: type", self.token)
        name = self.identifier("the name of a variable")
        type_name = self.type_name() if self.accept(":") else None
        value: Expression | None = None
        if self.accept("="):
            value = self.expression()
        elif keyword != "var":
            raise self.error(f"'{keyword} {name.text}' needs a value", self.token)
        elif type_name is None:
            raise self.error(f"'var {name.text}' needs a type or a value", self.token)
        return LocalDeclaration(self.at(token), keyword, name.text, type_name, value)

    def if_(self, token: Token) -> If:
        """``if condition block [else block | else if …]``."""
        condition = self.expression()
        then = self.block()
        otherwise = None
        if self.accept("else"):
            following = self.token
            if self.accept("if"):
                self.enter(following)
                otherwise = Block(self.at(following), [self.if_(following)])
                self.leave()
            else:
                otherwise = self.block()
        return If(self.at(token), condition, then, otherwise)

    def for_(self, token: Token) -> For:
        """``for (simple; condition; simple) block``."""
        self.expect("(", "after for")
        initial = None if self.token.text == ";" else self.simple_statement()
        self.expect(";", "after the first part of a for")
        condition = None if self.token.text == ";" else self.expression()
        self.expect(";", "after the condition of a for")
        update = None if self.token.text == ")" else self.simple_statement()
        if isinstance(update, LocalDeclaration):
            raise self.error("the last part of a for is an assignment or a call", token)
        self.expect(")", "after the head of a for")
        return For(self.at(token), initial, condition, update, self.block())

    def unrolled(self, token: Token) -> For:
        """``@unroll for (…) block``, or with ``@unroll(condition)``."""
        name = self.advance()
        condition: Expression = Literal(self.at(name), True)
        if self.accept("("):
            condition = self.expression()
            self.expect(")", "after the condition of @unroll")
        loop = self.advance()
        if name.text != "unroll" or loop.text != "for":
            raise self.error("the only attribute of a statement here is @unroll, before a for; leave this out", token)
        statement = self.for_(loop)
        statement.unrolled = condition
        return statement

    def while_(self, token: Token) -> While:
        """``while condition block``."""
        return While(self.at(token), self.expression(), self.block())

    def loop(self, token: Token) -> Loop:
        """``loop { … continuing { … break if condition; } }``."""
        opening = self.expect("{", "after loop")
        body = Block(self.at(opening), self.statements_until("}", opening))
        continuing, break_if = None, None
        if self.token.text == "continuing":
            continuing, break_if = self.continuing()
            self.expect("}", "a continuing block is the last thing in a loop")
        return Loop(self.at(token), body, continuing, break_if)

    def continuing(self) -> tuple[Block, Expression | None]:
        """Parse the continuing block of a loop, and the condition of its ``break if``."""
        self.advance()
        opening = self.expect("{", "after continuing")
        statements: list[Statement] = []
        break_if = None
        self.enter(opening)
        while not self.accept("}"):
            if self.token.kind == "end":
                raise self.error("this block is never closed; write }", opening)
            if self.token.text == "break" and self.following().text == "if":
                self.advance()
                self.advance()
                break_if = self.expression()
                self.expect(";", "after break if")
                self.expect("}", "'break if' is the last thing in a continuing block")
                break
            if not self.accept(";"):
                statements.append(self.statement())
        self.leave()
        return Block(self.at(opening), statements), break_if

    def switch(self, token: Token) -> Switch:
        """``switch selector { case … default … }``."""
        selector = self.expression()
        opening = self.expect("{", "after the selector of a switch")
        self.enter(opening)
        cases: list[Case] = []
        while not self.accept("}"):
            cases.append(self.case())
        self.leave()
        if sum(case.is_default for case in cases) != 1:
            raise self.error("a switch has exactly one default", token)
        return Switch(self.at(token), selector, cases)

    def case(self) -> Case:
        """``case value, default: block`` or ``default: block``."""
        token = self.advance()
        selectors: list[Expression] = []
        is_default = token.text == "default"
        if token.text == "case":
            while self.token.text not in ("{", ":"):
                if self.token.text == "default":
                    if is_default:
                        raise self.error("default is given twice", self.token)
                    is_default = True
                    self.advance()
                else:
                    selectors.append(self.expression())
                if not self.accept(","):
                    break
            if not selectors and not is_default:
                raise self.error("a case needs a value", token)
        elif not is_default:
            raise self.error(f"expected case or default, found {self.show(token)}", token)
        self.accept(":")
        return Case(self.at(token), selectors, is_default, self.block())

    def return_(self, token: Token) -> Return:
        """``return value;``."""
        value = None if self.token.text == ";" else self.expression()
        self.expect(";", "after return")
        return Return(self.at(token), value)

    def break_(self, token: Token) -> Break:
        """``break;``."""
        if self.token.text == "if":
            raise self.error("'break if' must be at the end of a continuing block; write if (...) { break; }", token)
        self.expect(";", "after break")
        return Break(self.at(token))

    def continue_(self, token: Token) -> Continue:
        """``continue;``."""
        self.expect(";", "after continue")
        return Continue(self.at(token))

    def const_assert(self, token: Token) -> ConstAssert:
        """``const_assert condition;``."""
        condition = self.expression()
        self.expect(";", "after const_assert")
        return ConstAssert(self.at(token), condition)

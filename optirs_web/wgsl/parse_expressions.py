"""The first layer of the parser: the token stream, type names and expressions.

Where C would guess the order of two operators, the error says to write parentheses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import TypeVar

from ..errors import ShaderError
from .lexer import Token, tokenize
from .numeric import INTEGER_RANGES, ConstantError, fit
from .precedence import CLASSES, IN_TEMPLATES, OPERANDS, RANKS
from .syntax import (
    Attribute,
    Binary,
    Call,
    Expression,
    Index,
    Literal,
    Member,
    Name,
    Position,
    TypeName,
    Unary,
)
from .templates import find_template_trap
from .types import ABSTRACT_FLOAT, ABSTRACT_INT, F16, F32, I32, U32
from .vocabulary import KEYWORDS, PREDECLARED_TYPES, RESERVED_WORDS, TEMPLATED, refusal

__all__ = ["MAX_NESTING", "ExpressionParser"]

# How deep blocks and expressions may nest together; every later pass may recurse this far.
MAX_NESTING = 80

_T = TypeVar("_T")

_PREFIXES = frozenset("-!~&")
_IN_TEMPLATES = frozenset(operator for operator, class_ in CLASSES.items() if class_ in IN_TEMPLATES)
_SUFFIXES = {"i": I32, "u": U32, "f": F32, "h": F16}


class ExpressionParser:
    """Parses expressions.

    `token` is the next token, `depth` the number of open blocks and parentheses, `height` that of the last tree.
    """

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.tokens = tokenize(text, file)
        trap = find_template_trap(self.tokens)
        if trap is not None:
            raise self.error(
                "WGSL takes this '<' and a later '>' for a template list; put the comparison in (...)", trap
            )
        self.index = 0
        self.token = self.tokens[0]
        self.depth = 0
        self.height = 0

    # The token stream.

    def advance(self) -> Token:
        """Read the next token."""
        token = self.token
        if token.kind != "end":
            self.index += 1
            self.token = self.tokens[self.index]
        return token

    def following(self) -> Token:
        """Return the token after the next."""
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def accept(self, text: str) -> bool:
        """Read the next token if it is this one."""
        if self.token.text != text:
            return False
        self.index += 1  # as `advance`, in the call that a parser makes most
        self.token = self.tokens[self.index]
        return True

    def expect(self, text: str, why: str) -> Token:
        """Read the next token, which must be this one."""
        if self.token.text != text:
            raise self.error(f"expected '{text}' ({why}), found {self.show(self.token)}", self.token)
        return self.advance()

    def close_template(self) -> None:
        """Read one ``>``, also out of ``>>``, ``>=`` and ``>>=``."""
        token = self.token
        if not token.text.startswith(">"):
            raise self.error(f"expected '>' (after the template's arguments), found {self.show(token)}", token)
        if token.text == ">":
            self.advance()
        else:
            self.token = Token(token.kind, token.text[1:], token.line, token.column + 1)
            self.tokens[self.index] = self.token

    def at(self, token: Token) -> Position:
        """Return the position of a token."""
        return Position(self.file, token.line, token.column)

    def show(self, token: Token) -> str:
        """Return a token as it is shown in messages."""
        return token.text if token.kind == "end" else f"'{token.text}'"

    def error(self, message: str, where: Token | Attribute) -> ShaderError:
        """Return the error to raise at a token or attribute."""
        position = where.position if isinstance(where, Attribute) else where
        return ShaderError(message, file=self.file, line=position.line, column=position.column)

    def enter(self, token: Token) -> None:
        """Open a block or parenthesis."""
        self.depth += 1
        self.grow(0, token)

    def leave(self) -> None:
        """Close a block or parenthesis."""
        self.depth -= 1

    def grow(self, height: int, token: Token) -> None:
        """Set the height of the last tree, which is limited."""
        self.height = height
        if self.depth + height > MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} deep; name parts of it with let", token)

    def list_of(self, rule: Callable[[], _T], end: str) -> list[_T]:
        """Parse items between commas, up to and past the closing bracket; the last item may be followed by a comma."""
        items: list[_T] = []
        while not self.accept(end):
            items.append(rule())
            if not self.accept(","):
                self.expect(end, "or a comma")
                break
        return items

    def identifier(self, role: str) -> Token:
        """Parse a name that the module declares: no keyword, no reserved word, no predeclared type."""
        token = self.token
        if token.kind != "name":
            raise self.error(f"expected {role}, found {self.show(token)}", token)
        if token.text in KEYWORDS or token.text in RESERVED_WORDS:
            raise self.error(f"'{token.text}' is a reserved word of WGSL; choose another name", token)
        if token.text in PREDECLARED_TYPES:
            raise self.error(f"'{token.text}' is a type; choose another name", token)
        if token.text == "_" or token.text.startswith("__"):
            raise self.error("names do not begin with two underscores, and _ alone is none; choose another", token)
        return self.advance()

    # Types.

    def type_name(self) -> TypeName:
        """Parse ``name`` or ``name<argument, …>``."""
        token = self.token
        if token.kind != "name" or token.text in KEYWORDS:
            raise self.error(f"expected a type, found {self.show(token)}", token)
        return self.templated(self.advance())

    def templated(self, name: Token) -> TypeName:
        """Parse the template arguments, if any, of a type or callee whose name has been read."""
        why = refusal(name.text)
        if why is not None:
            raise self.error(f"'{name.text}': {why}", name)
        node = TypeName(self.at(name), name.text)
        if self.token.text == "<" and name.text in TEMPLATED:
            self.enter(self.advance())
            for kind in TEMPLATED[name.text]:
                node.arguments.append(self.type_name() if kind == "type" else self.template_expression())
                if not self.accept(",") or self.token.text.startswith(">"):
                    break
            self.close_template()
            self.leave()
        return node

    def template_expression(self) -> Expression:
        """Parse an argument of a template list, where comparisons and shifts need parentheses."""
        return self.operators(_IN_TEMPLATES)

    # Expressions.

    def expression(self) -> Expression:
        """Parse any expression."""
        self.enter(self.token)
        result = self.operators(CLASSES)
        self.leave()
        return result

    def operators(self, known: Container[str]) -> Expression:
        """Parse unary expressions with these binary operators between them.

        An operator is kept on a stack until one of no higher precedence follows, so that no recursion is needed.
        """
        operands = [(self.unary(), "unary", self.height)]
        waiting: list[Token] = []
        while True:
            operator = self.token
            is_operator = operator.kind == "operator" and operator.text in known
            rank = RANKS[CLASSES[operator.text]] if is_operator else 0
            while waiting and RANKS[CLASSES[waiting[-1].text]] >= rank:
                self.reduce(waiting.pop(), operands)
            if not is_operator:
                self.height = operands[0][2]
                return operands[0][0]
            waiting.append(self.advance())
            operands.append((self.unary(), "unary", self.height))

    def reduce(self, operator: Token, operands: list[tuple[Expression, str, int]]) -> None:
        """Replace the last two operands by their combination."""
        (left, left_class, left_height), (right, right_class, right_height) = operands[-2:]
        class_ = CLASSES[operator.text]
        takes_left, takes_right = OPERANDS[class_]
        if left_class not in takes_left:
            raise self.no_order(left, operator, operator.line, operator.column)
        if right_class not in takes_right:
            raise self.no_order(right, operator, right.position.line, right.position.column)
        height = max(left_height, right_height) + 1
        self.grow(height, operator)
        operands[-2:] = [(Binary(self.at(operator), operator.text, left, right), class_, height)]

    def no_order(self, operand: Expression, operator: Token, line: int, column: int) -> ShaderError:
        """Return the error for two adjacent operators of which neither takes precedence in WGSL."""
        inner = operand.operator if isinstance(operand, Binary) else ""
        message = f"WGSL has no order between '{inner}' and '{operator.text}'; write parentheses"
        return ShaderError(message, file=self.file, line=line, column=column)

    def unary(self) -> Expression:
        """Parse ``-x``, ``!x``, ``~x``, ``&x``, or an expression of higher precedence."""
        token = self.token
        if token.text in _PREFIXES and token.kind == "operator":
            self.advance()
            self.enter(token)
            operand = self.unary()
            self.leave()
            self.grow(self.height + 1, token)
            return Unary(self.at(token), token.text, operand)
        if token.text == "*":
            raise self.error("pointers are not in the subset; name the variable itself", token)
        if token.text in ("--", "++"):
            raise self.error(f"'{token.text}' is a statement of its own in WGSL: x{token.text};", token)
        return self.postfix(self.primary())

    def postfix(self, base: Expression) -> Expression:
        """Parse a primary expression and the indices and members after it."""
        while True:
            token = self.token
            if token.text == "[":
                self.advance()
                height = self.height
                index = self.expression()
                self.expect("]", "after an index")
                self.grow(max(height, self.height) + 1, token)
                base = Index(self.at(token), base, index)
            elif token.text == ".":
                self.advance()
                name = self.advance()
                if name.kind != "name":
                    raise self.error(f"expected the name of a member, found {self.show(name)}", name)
                self.grow(self.height + 1, token)
                base = Member(self.at(name), base, name.text)
            else:
                return base

    def primary(self) -> Expression:
        """Parse a literal, a name, a call, or an expression in parentheses."""
        token = self.advance()
        self.height = 0
        if token.kind == "number":
            return self.number(token)
        if token.text == "(":
            inner = self.expression()
            self.expect(")", "after what began with (")
            return inner
        if token.kind != "name":
            raise self.error(f"expected an expression, found {self.show(token)}", token)
        if token.text in ("true", "false"):
            return Literal(self.at(token), token.text == "true")
        if token.text in KEYWORDS:
            raise self.error(f"expected an expression, found the keyword '{token.text}'", token)
        if token.text in RESERVED_WORDS or token.text == "_":
            raise self.error(f"'{token.text}' is a reserved word of WGSL; there is no such name", token)
        if self.token.text == "(" or token.text in TEMPLATED or refusal(token.text) is not None:
            return self.call(token)
        return Name(self.at(token), token.text)

    def call(self, name: Token) -> Call:
        """Parse the arguments of a call whose name has been read."""
        callee = self.templated(name)
        self.expect("(", f"'{name.text}' is a type or function, so arguments follow")
        node = Call(self.at(name), callee, [])
        height = 0
        while not self.accept(")"):
            node.arguments.append(self.expression())
            height = max(height, self.height)
            if not self.accept(","):
                self.expect(")", "or a comma")
                break
        self.grow(height + 1, name)
        return node

    def number(self, token: Token) -> Literal:
        """Parse a literal, whose value is rounded to its type."""
        text = token.text
        is_hexadecimal = text[:2] in ("0x", "0X")
        is_float = any(c in text for c in (".pP" if is_hexadecimal else ".eE"))
        suffix = ""
        if text[-1] in ("iufh" if not is_hexadecimal else "fh" if is_float else "iu"):
            text, suffix = text[:-1], text[-1]
        if is_hexadecimal and is_float and suffix and "p" not in text.lower():
            text, suffix = token.text, ""  # 0x1.5f ends in the digit f
        is_float = is_float or suffix in ("f", "h")
        try:
            value = self.float_value(text, is_hexadecimal) if is_float else self.integer_value(text, is_hexadecimal)
            value = fit(value, _SUFFIXES.get(suffix, ABSTRACT_FLOAT if is_float else ABSTRACT_INT))
        except ConstantError as error:
            raise self.error(str(error), token) from error
        return Literal(self.at(token), value, suffix)

    def float_value(self, text: str, is_hexadecimal: bool) -> float:
        """Return the double nearest to a number, or infinity."""
        try:
            return float.fromhex(text) if is_hexadecimal else float(text)
        except OverflowError:
            return math.inf

    def integer_value(self, text: str, is_hexadecimal: bool) -> int:
        """Return the value of an integer; if it is too long for any type, a value that is too large."""
        if is_hexadecimal:
            return int(text, 16)
        if len(text) > 1 and text[0] == "0":
            raise ConstantError(f"'{text}': integers do not begin with 0")
        return int(text) if len(text) < 40 else INTEGER_RANGES[ABSTRACT_INT][1] + 1

"""Splits WGSL text into tokens, without comments and blanks; a token has its line and column, both from 1."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import ShaderError

__all__ = ["Token", "tokenize"]


class Token(NamedTuple):
    """`kind` is "name", "number", "operator" or "end" (once, last, with the text "end of file")."""

    kind: str
    text: str
    line: int
    column: int


_BREAKS = "\n\v\f\r\x85\u2028\u2029"
_EXPONENT = r"(?:[eE][+-]?\d+)"
_BINARY_EXPONENT = r"(?:[pP][+-]?\d+[fh]?)"
_HEX = r"[\da-fA-F]"
_TOKEN = re.compile(
    rf"""
    (?P<blank>[ \t\u200e\u200f]+)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<comment>//[^{_BREAKS}]*)
  | (?P<nested>/\*)
  | (?P<number>
        0[xX](?:{_HEX}*\.{_HEX}+{_BINARY_EXPONENT}? | {_HEX}+\.{_BINARY_EXPONENT}? | {_HEX}+{_BINARY_EXPONENT}
               | {_HEX}+[iu]?)
      | \d+\.\d*{_EXPONENT}?[fh]? | \.\d+{_EXPONENT}?[fh]? | \d+{_EXPONENT}[fh]? | \d+[iufh]?)
  | (?P<operator><<=|>>=|->|\+\+|--|&&|\|\||::|<<|>>|[-+*/%&|^<>=!]=|[-+*/%&|^~!<>=.,;:()\[\]{{}}@])
  | (?P<newline>\r\n|[{_BREAKS}])
    """,
    re.VERBOSE | re.ASCII,
)
_NESTED = re.compile(rf"/\*|\*/|(?P<newline>\r\n|[{_BREAKS}])")
_WORD = re.compile(r"\w", re.ASCII)


def tokenize(text: str, file: str) -> list[Token]:
    """Return all tokens of a file. Raises ShaderError at the first character that begins no token."""
    tokens: list[Token] = []
    match_token = _TOKEN.match
    position, line, line_start = 0, 1, 0
    while position < len(text):
        match = match_token(text, position)
        if match is None:
            raise ShaderError(
                f"{text[position]!r} begins no WGSL token (names are ASCII letters, digits and underscores here)",
                file=file,
                line=line,
                column=position - line_start + 1,
            )
        kind = match.lastgroup
        end = match.end()
        if kind == "name" or kind == "operator":
            tokens.append(Token(kind, match[0], line, position - line_start + 1))
        elif kind == "number":
            if _WORD.match(text, end):
                raise ShaderError(
                    f"'{match[0]}{text[end]}' is not a number",
                    file=file,
                    line=line,
                    column=position - line_start + 1,
                )
            tokens.append(Token(kind, match[0], line, position - line_start + 1))
        elif kind == "newline":
            line, line_start = line + 1, end
        elif kind == "nested":
            end, line, line_start = _skip_nested(text, position, line, line_start, file)
        position = end
    tokens.append(Token("end", "end of file", line, position - line_start + 1))
    return tokens


def _skip_nested(text: str, start: int, line: int, line_start: int, file: str) -> tuple[int, int, int]:
    """Return the position, line and start of that line after a block comment, which may contain others."""
    first_line, first_column = line, start - line_start + 1
    depth = 0
    for match in _NESTED.finditer(text, start):
        if match["newline"]:
            line, line_start = line + 1, match.end()
        elif match[0] == "/*":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return match.end(), line, line_start
    raise ShaderError("this comment never ends; write */", file=file, line=first_line, column=first_column)

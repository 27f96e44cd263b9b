"""Text to tokens. Comments and blanks are dropped; each token knows its line and column, both from 1."""

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
    """All tokens of a file. Raises ShaderError at the first character that begins none."""
    tokens: list[Token] = []
    match = _TOKEN.match
    position, line, line_start = 0, 1, 0
    while position < len(text):
        found = match(text, position)
        if found is None:
            raise ShaderError(
                f"{text[position]!r} begins no WGSL token (names are ASCII letters, digits and underscores here)",
                file=file,
                line=line,
                column=position - line_start + 1,
            )
        kind = found.lastgroup
        end = found.end()
        if kind == "name" or kind == "operator":
            tokens.append(Token(kind, found[0], line, position - line_start + 1))
        elif kind == "number":
            if _WORD.match(text, end):
                raise ShaderError(
                    f"'{found[0]}{text[end]}' is not a number",
                    file=file,
                    line=line,
                    column=position - line_start + 1,
                )
            tokens.append(Token(kind, found[0], line, position - line_start + 1))
        elif kind == "newline":
            line, line_start = line + 1, end
        elif kind == "nested":
            end, line, line_start = _skip_nested(text, position, line, line_start, file)
        position = end
    tokens.append(Token("end", "end of file", line, position - line_start + 1))
    return tokens


def _skip_nested(text: str, start: int, line: int, line_start: int, file: str) -> tuple[int, int, int]:
    """Past a block comment, which may hold others: the position, line and start of line after it."""
    first_line, first_column = line, start - line_start + 1
    depth = 0
    for found in _NESTED.finditer(text, start):
        if found["newline"]:
            line, line_start = line + 1, found.end()
        elif found[0] == "/*":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return found.end(), line, line_start
    raise ShaderError("this comment never ends; write */", file=file, line=first_line, column=first_column)

"""Template discovery of WGSL (specification, section 3.9), to refuse text that other tools would parse differently.

The parser of this package expects ``<...>`` after known names only. WGSL decides from the tokens alone, so that
``f(a < b, c > (d))`` calls ``f`` with one argument, the template ``a<b, c>(d)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from .lexer import Token
from .vocabulary import TEMPLATED, refusal

__all__ = ["find_template_trap"]

_OPENING = frozenset("([")
_CLOSING = frozenset(")]")
_ENDING = frozenset((";", "{", ":", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="))
_RELEVANT = _OPENING | _CLOSING | _ENDING | {"<", ">", ">>", ">=", ">>=", "&&", "||"}


def find_template_trap(tokens: Sequence[Token]) -> Token | None:
    """Return the first ``<`` that begins a template list in WGSL but not in this subset; None if there is none."""
    pending: list[tuple[Token, Token, int]] = []  # the name, its `<`, how many brackets are open
    depth = 0
    before = tokens[0]
    for token in tokens:
        text = token.text
        if text in _RELEVANT:
            if text == "<":
                if before.kind == "name":
                    pending.append((before, token, depth))
            elif text in _OPENING:
                depth += 1
            elif text in _ENDING:
                pending, depth = [], 0
            elif text[0] == ">":
                for _ in range(text.count(">")):
                    if pending and pending[-1][2] == depth:
                        name, opening, _ = pending.pop()
                        if name.text not in TEMPLATED and name.text != "var" and refusal(name.text) is None:
                            return opening
            else:
                while pending and pending[-1][2] >= depth:
                    pending.pop()
                if text in _CLOSING:
                    depth = max(0, depth - 1)
        before = token
    return None

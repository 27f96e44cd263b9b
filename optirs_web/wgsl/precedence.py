"""The order of WGSL's binary operators: one table for the parser and the printer.

WGSL's grammar is stricter than C's: operands of ``&``, ``|``, ``^``, ``<<`` and ``>>`` are unary expressions, ``&&``
and ``||`` do not mix, comparisons do not chain.
"""

from __future__ import annotations

__all__ = ["CLASSES", "IN_TEMPLATES", "OPERANDS", "RANKS", "UNARY"]

# The class of each operator; other expressions, and those in parentheses, are of the class "unary".
CLASSES: dict[str, str] = {
    **dict.fromkeys("*/%", "product"),
    **dict.fromkeys("+-", "sum"),
    **dict.fromkeys(("<<", ">>"), "shift"),
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">="), "relation"),
    **{operator: operator for operator in ("&&", "||", "&", "|", "^")},
}

# Precedence of the classes; it does not imply that operators of two classes may be adjacent.
RANKS: dict[str, int] = {"product": 5, "sum": 4, "shift": 3, "relation": 2, **dict.fromkeys(("&&", "||", *"&|^"), 1)}

UNARY = frozenset(("unary",))
_UP_TO_SHIFT = frozenset(("unary", "product", "sum", "shift"))
_UP_TO_RELATION = _UP_TO_SHIFT | {"relation"}

# The classes that an operator of each class takes without parentheses on its left and on its right.
OPERANDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "product": (UNARY | {"product"}, UNARY),
    "sum": (UNARY | {"product", "sum"}, UNARY | {"product"}),
    "shift": (UNARY, UNARY),
    "relation": (_UP_TO_SHIFT, _UP_TO_SHIFT),
    "&&": (_UP_TO_RELATION | {"&&"}, _UP_TO_RELATION),
    "||": (_UP_TO_RELATION | {"||"}, _UP_TO_RELATION),
    **{operator: (UNARY | {operator}, UNARY) for operator in "&|^"},
}

# In a template list `<` and `>` would end it.
IN_TEMPLATES = UNARY | {"product", "sum"}

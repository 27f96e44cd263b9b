"""Unrolls loops: writes out the iterations of ``@unroll for``, with the loop's variable replaced by a number.

Arrays that are indexed only by such numbers are compiled to registers. Not every driver unrolls the loops of a shader,
and one that does not puts the array in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .constants import Value
from .numeric import ConstantError, binary
from .scopes import fail
from .syntax import (
    Assign,
    Binary,
    Break,
    Continue,
    Expression,
    For,
    Literal,
    LocalDeclaration,
    Name,
    Statement,
)
from .tree import clone, walk
from .types import I32, U32

__all__ = ["iterations"]

_MOST = 64
_SUFFIXES = {I32: "i", U32: "u"}


def iterations(loop: For, known: Mapping[int, tuple[Expression, Value]]) -> list[Statement]:
    """Return the body once for each value of the variable, as blocks if it has declarations.

    Args:
        loop: ``for (var i = FIRST; i < END; i += STEP)``, or with ``i++``, between constants.
        known: const-expressions and their values by the `id` of the nodes.

    Raises:
        ShaderError: the loop has another form, leaves or continues an iteration, or has more than 64 iterations.
    """
    name, values, type_ = _values(loop, known)
    for node in walk(loop.body):
        if isinstance(node, Break | Continue):
            raise fail(node.position, "a loop with @unroll has no break and no continue")
        if (isinstance(node, LocalDeclaration) and node.name == name) or (
            isinstance(node, Assign) and isinstance(node.target, Name) and node.target.name == name
        ):
            raise fail(node.position, f"'{name}' is the variable of a loop with @unroll, which sets it alone")
    _rewritten(loop.body, partial(_constant, known))
    result: list[Statement] = []
    for value in values:
        copy = _rewritten(
            clone(loop.body), partial(_with_number, name, Literal(loop.position, value, _SUFFIXES[type_], type_))
        )
        declares = any(isinstance(statement, LocalDeclaration) for statement in copy.statements)
        result += [copy] if declares else copy.statements
    return result


def _values(loop: For, known: Mapping[int, tuple[Expression, Value]]) -> tuple[str, range, Any]:
    """Return the loop's variable, its values and their type."""
    match loop:
        case For(
            initial=LocalDeclaration(name=name, value=start),
            condition=Binary(operator="<", left=Name(name=compared), right=end),
            update=Assign(target=Name(name=changed), operator="+", value=step),
        ) if name == compared == changed:
            bounds: list[Any] = [_value(bound, known) for bound in (start, end, step)]
            if None not in bounds and bounds[2] > 0:
                values = range(*bounds)
                if len(values) > _MOST:
                    raise fail(loop.position, f"@unroll writes out {_MOST} iterations at most, not {len(values)}")
                assert start is not None
                return name, values, start.type
    raise fail(loop.position, "@unroll is for loops (var i = FIRST; i < END; i += STEP) between constants")


def _value(node: Expression | None, known: Mapping[int, tuple[Expression, Value]]) -> Value | None:
    """Return the value of an expression; None if it is not constant."""
    if isinstance(node, Literal):
        return node.value
    return known[id(node)][1] if id(node) in known else None


def _rewritten(node: Any, rule: Callable[[Any], Expression | None]) -> Any:
    """Return a node with every node in it, and then itself, replaced by the result of `rule`, unless that is None."""
    if isinstance(node, list):
        return [_rewritten(item, rule) for item in node]
    if not hasattr(node, "position"):
        return node
    for field in type(node).__slots__:
        if field not in ("position", "name", "type"):
            setattr(node, field, _rewritten(getattr(node, field), rule))
    return rule(node) or node


def _constant(known: Mapping[int, tuple[Expression, Value]], node: Any) -> Expression | None:
    """Return a literal for a constant integer; None for any other node."""
    if id(node) not in known or node.type not in _SUFFIXES:
        return None
    value: Any = known[id(node)][1]
    return Literal(node.position, value, _SUFFIXES[node.type], node.type)


def _with_number(name: str, number: Literal, node: Any) -> Expression | None:
    """Return the number for the variable of that name, a literal for an operation on two integers, otherwise None."""
    if isinstance(node, Name) and node.name == name:
        return clone(number)
    if not (isinstance(node, Binary) and node.type in _SUFFIXES):
        return None
    left, right = node.left, node.right
    if not (isinstance(left, Literal) and isinstance(right, Literal)):
        return None
    try:
        value = binary(node.operator, node.type, left.value, right.value)
    except ConstantError as error:
        raise fail(node.position, str(error)) from error
    return Literal(node.position, value, _SUFFIXES[node.type], node.type)

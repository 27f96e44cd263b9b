"""Walking and copying syntax trees, whatever their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from . import syntax
from .syntax import Position

__all__ = ["clone", "walk"]

_T = TypeVar("_T")

_NODES: dict[type, tuple[str, ...]] = {
    node: tuple(field.name for field in fields(node))
    for node in (getattr(syntax, name) for name in syntax.__all__)
    if isinstance(node, type) and node is not Position and hasattr(node, "__dataclass_fields__")
}


def clone(node: _T) -> _T:
    """A copy of a node that shares nothing but positions and types."""
    copy = object.__new__(type(node))
    for name in _NODES[type(node)]:
        value = getattr(node, name)
        if type(value) is list:
            value = [clone(item) if type(item) in _NODES else item for item in value]
        elif type(value) in _NODES:
            value = clone(value)
        setattr(copy, name, value)
    return copy


def walk(node: object) -> Iterator[Any]:
    """Every node of a tree in the order of the source, the root first."""
    work: list[object] = [node]
    while work:
        one = work.pop()
        if isinstance(one, list):
            work.extend(reversed(one))
            continue
        names = _NODES.get(type(one))
        if names is not None:
            yield one
            work.extend(getattr(one, name) for name in reversed(names))

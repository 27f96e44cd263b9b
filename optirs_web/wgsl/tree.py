"""Traverses and copies syntax trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from . import syntax
from .syntax import Position
from .types import Struct

__all__ = ["clone", "walk"]

_T = TypeVar("_T")

_NODES: dict[type, tuple[str, ...]] = {
    node: tuple(field.name for field in fields(node))
    for node in vars(syntax).values()
    if isinstance(node, type) and node not in (Position, Struct) and hasattr(node, "__dataclass_fields__")
}

_CHILDREN = {
    node: tuple(name for name in reversed(names) if name not in ("position", "name", "type"))
    for node, names in _NODES.items()
}
"""Fields that may contain nodes, the last first."""


def clone(node: _T) -> _T:
    """Return a copy of a node that shares only positions and types with it."""
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
    """Yield every node of a tree in the order of the source, the root first."""
    work: list[Any] = [[node]]
    while work:
        current = work.pop()
        if type(current) is list:
            work.extend(item for item in reversed(current) if type(item) is list or type(item) in _NODES)
            continue
        yield current
        for name in _CHILDREN[type(current)]:
            value = getattr(current, name)
            if type(value) is list or type(value) in _NODES:
                work.append(value)

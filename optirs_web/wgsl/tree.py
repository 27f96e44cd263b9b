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
    """A copy that shares nothing but positions and types."""
    names = _NODES.get(type(node))
    if names is not None:
        return type(node)(*[clone(getattr(node, name)) for name in names])
    if isinstance(node, list):
        return [clone(item) for item in node]  # type: ignore[return-value]
    return node


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

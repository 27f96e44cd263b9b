"""A mapping from objects, by identity, that does not keep them alive."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ref

__all__ = ["ByIdentity"]

_Value = TypeVar("_Value")


class ByIdentity(Generic[_Value]):
    """Values by object, without keeping the objects alive.

    As `weakref.WeakKeyDictionary`, which would compare tensors with ``==``, and so element by element.
    """

    def __init__(self) -> None:
        """Make an empty mapping."""
        self._values: dict[int, tuple[ref[Any], _Value]] = {}

    def get(self, key: object) -> _Value | None:
        """Return the value of an object, or None."""
        entry = self._values.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def set(self, key: object, value: _Value) -> None:
        """Set the value of an object, until the object is collected."""
        number, values = id(key), self._values
        values[number] = ref(key, lambda _: values.pop(number, None)), value

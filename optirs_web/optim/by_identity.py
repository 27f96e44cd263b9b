"""What is known of objects, as long as they live."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ref

__all__ = ["ByIdentity"]

_Value = TypeVar("_Value")


class ByIdentity(Generic[_Value]):
    """Values of objects that it does not keep alive.

    As `weakref.WeakKeyDictionary`, which would compare tensors with ``==``, and so element by element.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._values: dict[int, tuple[ref[Any], _Value]] = {}

    def get(self, key: object) -> _Value | None:
        """The value of an object, or None."""
        found = self._values.get(id(key))
        return found[1] if found is not None and found[0]() is key else None

    def set(self, key: object, value: _Value) -> None:
        """Keep a value until the object goes."""
        number, values = id(key), self._values
        values[number] = ref(key, lambda _: values.pop(number, None)), value

"""Handles of memory of a GPU, of the device itself or borrowed from another library."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ...errors import OptirsError
from ..c_device import Launch
from .graphs import Graph

__all__ = ["Memory"]


class Memory:
    """A handle: where it begins, None once it was freed; and the launches and recordings that name it."""

    __slots__ = ("__weakref__", "address", "graphs", "launches", "lent", "owner")

    def __init__(self, address: int, owner: Callable[[], None] | None = None) -> None:
        """Hold an address in the device's own memory, or in another library's, whose `owner` is called at the end."""
        self.address: int | None = address
        self.owner = owner
        self.lent = 0  # how often to other libraries
        self.launches: weakref.WeakSet[Launch] = weakref.WeakSet()
        self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()

    def release(self) -> None:
        """Return memory of another library by a call of `owner`, at most once; do nothing for the device's own."""
        owner, self.owner = self.owner, None
        if owner is not None:
            owner()

    def at(self, offset: int) -> int:
        """The address of a byte. A kernel or a copy that names memory which was freed would lose the device."""
        if self.address is None:
            raise OptirsError("freed memory is used")
        return self.address + offset

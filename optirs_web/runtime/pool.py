"""A pool of device memory: freed buffers wait in size classes for the next allocation of that class."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

__all__ = ["Pool", "size_class"]

_SMALLEST = 256
_CLASSES_PER_DOUBLING = 4


def size_class(nbytes: int) -> int:
    """The bytes that an allocation of `nbytes` really takes: four classes per doubling, so at most 25% is lost.

    >>> size_class(1), size_class(1000), size_class(1025), size_class(1280)
    (256, 1024, 1280, 1280)
    """
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = max(_SMALLEST, 1 << ((nbytes - 1).bit_length() - 1)) // _CLASSES_PER_DOUBLING
    return -(-nbytes // step) * step


class Pool:
    """Free handles by size class. It holds memory but does not allocate or free it."""

    def __init__(self) -> None:
        """Start empty."""
        self._free: defaultdict[int, list[Any]] = defaultdict(list)
        self.nbytes = 0

    def take(self, nbytes: int) -> Any | None:
        """A free handle of exactly that class, the last one put in, or None."""
        handles = self._free.get(nbytes)
        if not handles:
            return None
        self.nbytes -= nbytes
        return handles.pop()

    def put(self, handle: Any, nbytes: int) -> None:
        """Keep a handle for reuse."""
        self._free[nbytes].append(handle)
        self.nbytes += nbytes

    def sizes(self) -> dict[int, int]:
        """How many free handles there are of each size in bytes, the smallest first."""
        return {nbytes: len(handles) for nbytes, handles in sorted(self._free.items()) if handles}

    def drain(self) -> list[tuple[Any, int]]:
        """Empty the pool; the caller frees what it gets."""
        everything = [(handle, nbytes) for nbytes, handles in self._free.items() for handle in handles]
        self._free.clear()
        self.nbytes = 0
        return everything

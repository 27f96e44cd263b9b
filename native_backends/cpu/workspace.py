"""Memory for the blocks of products, of a device on the processor."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Workspace"]


class Workspace:
    """Memory for blocks of products, which share it since they run one after the other."""

    def __init__(self) -> None:
        """Begin without memory."""
        self._parts: dict[str, np.ndarray[Any, Any]] = {}

    def part(self, name: str, count: int) -> np.ndarray[Any, Any]:
        """Return `count` float32 elements; parts of other names are other memory."""
        kept = self._parts.get(name)
        if kept is None or kept.size < count:
            kept = self._parts[name] = np.empty(1 << (count - 1).bit_length(), np.float32)
        return kept[:count]

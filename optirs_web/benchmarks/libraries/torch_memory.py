"""`Live`: measures the peak of torch's memory on any device from the storages that its operations return."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Live"]


class Live(TorchDispatchMode):
    """Counts each storage that an operation returns, until it is freed.

    Attributes:
        peak: the most bytes that were live at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._live = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known[key] = storage.nbytes()
        self._live += storage.nbytes()
        self.peak = max(self.peak, self._live)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._live -= self._known.pop(key, 0)

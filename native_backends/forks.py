"""Drivers whose threads do not live on in a forked process: calls into them would wait for ever."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from ..runtime.backend import AdapterInfo

__all__ = ["Forks"]


class _Opened(Protocol):
    info: AdapterInfo

    def lose(self, why: str) -> None: ...


class Forks:
    """The open devices of one library. In a child process they are lost, and no other is opened.

    Attributes:
        reason: why none is opened; "" where one can be.
    """

    def __init__(self, library: str) -> None:
        """Be told of forks from now on, where the platform has them."""
        self.reason = ""
        self._library = library
        self._is_used = False
        self._opened: weakref.WeakSet[_Opened] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def use(self) -> None:
        """The library has started its threads, with or without an open device: no child process opens one."""
        self._is_used = True

    def add(self, backend: _Opened) -> None:
        """A device that was opened."""
        self._opened.add(backend)

    def _after_fork(self) -> None:
        if self._opened or self._is_used:
            self.reason = f"{self._library} was in use when this process was forked; start it with 'spawn'"
        for backend in self._opened:
            backend.lose(f"device '{backend.info.name}' does not survive a fork; start processes with 'spawn'")

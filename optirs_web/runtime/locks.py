"""Locks that are free in a forked child process."""

from __future__ import annotations

import os
import threading

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock of a module, taken by `with`.

    The thread that holds it when a process is forked does not exist in the child, so the child gets a new lock.
    """

    def __init__(self) -> None:
        """Renew the lock in forked children, where the platform forks. The registration is for the process's life."""
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

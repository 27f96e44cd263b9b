"""Locks that a forked child process finds free."""

from __future__ import annotations

import os
import threading

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A reentrant lock of a module, taken by `with`.

    Who holds it when a process is forked may be a thread that the child does not have, so the child gets a new one.
    """

    def __init__(self) -> None:
        """Be told of forks from now on, where the platform has them; it is told as long as the process lives."""
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

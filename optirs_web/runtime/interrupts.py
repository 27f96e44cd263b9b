"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import importlib
import signal
import threading
from typing import Any

__all__ = ["Uninterrupted"]

# The module in C. What `signal` wraps around it makes enums of numbers, which takes as long as a small step.
_in_c: Any = importlib.import_module("_signal")
_SIGINT = int(signal.SIGINT)


class Uninterrupted:
    """A block at whose end an interrupt (SIGINT) takes effect that came within. Python gives it to the main thread."""

    __slots__ = ("_handler", "_kept")

    def __enter__(self) -> None:
        self._kept: list[tuple[Any, ...]] = []
        is_main = threading.get_ident() == threading.main_thread().ident
        self._handler = _in_c.getsignal(_SIGINT) if is_main else None
        if callable(self._handler):
            _in_c.signal(_SIGINT, self._keep)

    def _keep(self, *signal_and_frame: Any) -> None:
        self._kept.append(signal_and_frame)

    def __exit__(self, *error: object) -> None:
        if callable(self._handler):
            _in_c.signal(_SIGINT, self._handler)
            if self._kept:
                self._handler(*self._kept[-1])

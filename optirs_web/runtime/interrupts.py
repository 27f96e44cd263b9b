"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Uninterrupted"]


class Uninterrupted:
    """A block at whose end an interrupt (SIGINT) takes effect that came within. Python gives it to the main thread."""

    __slots__ = ("_handler", "_kept")

    def __enter__(self) -> None:
        self._kept: list[tuple[int, FrameType | None]] = []
        is_told = threading.current_thread() is threading.main_thread()
        self._handler = signal.getsignal(signal.SIGINT) if is_told else None
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._keep)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._kept.append((number, frame))

    def __exit__(self, *error: object) -> None:
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._kept:
                self._handler(*self._kept[-1])

"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep a SIGINT for the end of the block. Python gives it to the main thread, and a browser has none."""
    if sys.platform == "emscripten" or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # nobody is told of it, or not in Python
        yield
        return
    kept: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: kept.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if kept:
            handler(*kept[-1])

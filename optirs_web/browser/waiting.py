"""Waiting for a promise of the browser, where that is possible."""

from __future__ import annotations

from typing import Any

from pyodide.ffi import can_run_sync, run_sync

from ..errors import UnsupportedError

__all__ = ["can_wait", "need_waiting", "wait"]


def can_wait() -> bool:
    """Whether Python can be suspended here: the browser has JSPI, and JavaScript came in by an awaited call."""
    return bool(can_run_sync())


def need_waiting(what: str, twin: str) -> None:
    """Refuse to continue where Python cannot be suspended.

    Args:
        what: who would wait.
        twin: what to await instead.

    Raises:
        UnsupportedError: the message has both.
    """
    if not can_wait():
        raise UnsupportedError(
            f"{what} waits for the browser, which needs JavaScript Promise Integration (Chrome and Edge 137, "
            f"Firefox 153) and Python started by runPythonAsync. Here use: await {twin}"
        )


def wait(promise: Any) -> Any:
    """The value of a promise, where `can_wait`."""
    return run_sync(promise)

"""Wait for a promise of the browser, where Python can be suspended."""

from __future__ import annotations

from typing import Any

from pyodide.ffi import can_run_sync, run_sync

from ..errors import UnsupportedError

__all__ = ["can_wait", "need_waiting", "wait"]


def can_wait() -> bool:
    """Return True if Python can be suspended here: the browser has JSPI, and JavaScript awaits the call of Python."""
    return bool(can_run_sync())


def need_waiting(operation: str, twin: str) -> None:
    """Check that Python can be suspended.

    Args:
        operation: the operation that would wait, for the message.
        twin: the call to await instead.

    Raises:
        UnsupportedError: Python cannot be suspended; the message names `twin`.
    """
    if not can_wait():
        raise UnsupportedError(
            f"{operation} waits for the browser, which needs JavaScript Promise Integration (Chrome and Edge 137, "
            f"Firefox 153) and Python started by runPythonAsync. Here use: await {twin}"
        )


def wait(promise: Any) -> Any:
    """Return the value of a promise; `can_wait` must be true."""
    return run_sync(promise)

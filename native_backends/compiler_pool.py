"""Threads that compile the kernels of a recorded step, while Python prints the source of the next."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel

__all__ = ["CompilerPool"]

_Compiled = TypeVar("_Compiled")

_MOST_THREADS = 8


class CompilerPool(Generic[_Compiled]):
    """Compilations of kernels that will be asked for."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._coming: dict[Kernel, Future[_Compiled]] = {}

    def __contains__(self, kernel: object) -> bool:
        """Return whether the kernel is being compiled, or was and is not taken yet."""
        return kernel in self._coming

    def start(self, kernel: Kernel, compiled: Callable[[], _Compiled]) -> None:
        """Call `compiled` in a thread."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS))
        self._coming[kernel] = self._threads.submit(compiled)

    def take(self, kernel: Kernel) -> _Compiled | None:
        """Return the result that was started for a kernel, after a wait, and forget it; None if nothing was started."""
        coming = self._coming.pop(kernel, None)
        return None if coming is None else coming.result()

    def close(self) -> None:
        """Wait for the threads; what they have not begun is dropped."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._coming.clear()

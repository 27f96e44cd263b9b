"""The context of a GPU, which all libraries of the process share: made current for calls, and released at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import driver

__all__ = ["Context"]


class Context:
    """The primary context of one GPU, retained until `release`.

    Attributes:
        ordinal: CUDA's number of the GPU.
    """

    def __init__(self, ordinal: int) -> None:
        """Retain the context of the GPU with this number."""
        self.ordinal = ordinal
        self._handle = driver.retain_context(ordinal)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current for this thread; afterwards the previous one is again, as other libraries expect."""
        driver.push_context(self._handle)
        try:
            yield
        finally:
            with suppress(driver.CudaError):  # an error of the calls in between is raised anyway
                driver.pop_context()

    def release(self) -> None:
        """Release the context, once the device is closed and no other library uses its memory."""
        with suppress(driver.CudaError):
            driver.release_context(self.ordinal)

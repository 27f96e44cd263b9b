"""The commands of a device of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...runtime.backend import BoundBuffer
from .memory import Memory

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["Copied", "Run", "Upload"]


class Run(NamedTuple):
    """A kernel with its buffers bound, and the precision of its products: what was set when it was bound."""

    kernel: Kernel
    buffers: tuple[BoundBuffer, ...]
    parameters: bytes
    grid: tuple[int, int, int]
    precision: str


class Copied(NamedTuple):
    """A copy between buffers: a command without a kernel."""

    source: BoundBuffer
    target: BoundBuffer
    kernel: None = None
    parameters: bytes = b""
    precision: str = "highest"

    @property
    def buffers(self) -> tuple[BoundBuffer, ...]:
        """Both of them."""
        return self.source, self.target


class Upload(NamedTuple):
    """Bytes to be written to a buffer."""

    target: Memory
    offset: int
    data: bytes

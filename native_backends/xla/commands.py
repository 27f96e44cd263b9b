"""Handles of memory on a device of JAX, and the commands over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...runtime.backend import BoundBuffer

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["Constant", "Copied", "Memory", "Run", "Upload"]


class Constant:
    """Words that are known when a function is traced. Two with the same words are equal."""

    def __init__(self, words: np.ndarray[Any, Any]) -> None:
        self.words = words
        self._bytes = words.tobytes()  # which keep their hash

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._bytes == other._bytes


class Memory:
    """A handle: an array of words, which each command that writes it replaces by a new one."""

    __slots__ = ("_constants", "content", "count", "words")

    def __init__(self, count: int) -> None:
        """`count` words, all of them zero."""
        self.count = count
        self.words: Any = None  # None stands for zeros
        self.content: np.ndarray[Any, Any] | None = None  # of one that is not written any more
        self._constants: dict[tuple[int, int], Constant] = {}

    def constant(self, offset: int, size: int) -> Constant:
        """Return a range of bytes of memory that has a content."""
        if (offset, size) not in self._constants:
            assert self.content is not None
            self._constants[offset, size] = Constant(self.content[offset // 4 : (offset + size) // 4])
        return self._constants[offset, size]


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

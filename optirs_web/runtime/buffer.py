"""Buffers and views: who owns memory on a device, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Buffer", "View"]


class Buffer:
    """Memory on one device, held by its Python object.

    It goes back where it came from at `release()`, or when the last reference to it goes. Work that
    was enqueued before may still use it: the device runs commands in order, so the next owner's
    commands come later. Python may drop references at any moment, in the middle of a submit or on
    another thread; so a buffer only leaves word, and the device takes it back at its next safe point.

    Attributes:
        device: where it lies.
        handle: the backend's name for it.
        nbytes: usable size in bytes.
        retired: its content has moved elsewhere; programs that bound it must be recorded again.
        first_kernel: the name of the first kernel that was given it, "" until then.
    """

    __slots__ = ("__weakref__", "_give_back", "device", "first_kernel", "handle", "nbytes", "retired")

    def __init__(self, device: Device, handle: Any, nbytes: int, give_back: Callable[[Any, int], None]) -> None:
        """Take over `handle`; the device calls `give_back(handle, nbytes)` exactly once."""
        self.device = device
        self.handle = handle
        self.nbytes = nbytes
        self.retired = False
        self.first_kernel = ""
        self._give_back: Callable[[Any, int], None] | None = give_back

    def release(self) -> None:
        """Give the memory back now. Safe to call twice; the buffer must not be used afterwards."""
        give_back, self._give_back = getattr(self, "_give_back", None), None  # an interrupt may have left it unmade
        if give_back is not None:
            self.device.returned.append((give_back, self.handle, self.nbytes))

    __del__ = release

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UnsupportedError(
            "memory of a device cannot be copied or pickled by itself: copy the tensor that is in it"
        )


class View(NamedTuple):
    """Part of a buffer: `nbytes` bytes from `offset`. Keeps the buffer alive.

    `kind` is "" for words, or says what the halves of words are: "float16" or "bfloat16".
    """

    buffer: Buffer
    offset: int
    nbytes: int
    kind: str = ""

    @classmethod
    def whole(cls, buffer: Buffer) -> View:
        """All of a buffer."""
        return cls(buffer, 0, buffer.nbytes)

    def part(self, offset: int, nbytes: int) -> View:
        """Bytes `offset` to `offset + nbytes` of this view."""
        return View(self.buffer, self.offset + offset, nbytes, self.kind)

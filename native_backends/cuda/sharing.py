"""Memory of a GPU that other libraries are shown, and theirs that this one uses, in the order of both their streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from . import driver
from .context import Context
from .memory import Memory

__all__ = ["Sharing"]

_LEGACY, _PER_THREAD = 1, 2  # DLPack's numbers of the streams that are not made by anybody
_NO_STREAM = -1  # the other library sees to the order by itself


class Sharing:
    """The interface of a CUDA device for `optirs_web.dlpack`: memory shared with other libraries without a copy.

    Attributes:
        number: DLPack's number of the device among those of its kind.
        stream: the address of the device's stream, for other libraries.
        kept: of a device that was closed: memory that others still see, with its address. It needs the context.
    """

    def __init__(
        self,
        context: Context,
        stream: driver.Handle,
        errors: Callable[[], AbstractContextManager[None]],
        hold: Callable[[int, Callable[[], None]], Memory],
    ) -> None:
        """Share nothing yet.

        Args:
            context: that of the device.
            stream: in which the device enqueues its work.
            errors: makes the context current and turns the driver's errors into the device's.
            hold: returns the device's handle of memory at an address, whose owner is called once it was freed.
        """
        self.number = context.ordinal
        self.stream = int(stream)
        self._context = context
        self._stream = stream
        self._errors = errors
        self._hold = hold
        self.kept: dict[Memory, int] = {}
        self._returned: deque[tuple[Memory, int]] = deque()
        self._leaving: deque[tuple[driver.Handle, Callable[[], None]]] = deque()

    def lend(self, handle: Memory, stream: int | None) -> int:
        """The address of memory. What the other library enqueues in its stream from now on comes after all work so far.

        Args:
            handle: the memory. Somebody has to keep it until `give_back`.
            stream: theirs, by the array API standard: None or 1 for the legacy default stream, 2 for that of each
                thread, -1 for none, else its address.
        """
        with self._errors():
            address = handle.at(0)
            if stream != _NO_STREAM:
                _make_wait(driver.stream_of(_LEGACY if stream is None else stream), self._stream)
        handle.lent += 1
        return address

    def go_before(self, stream: int) -> None:
        """Make work that another library enqueues in `stream` from now on wait for all work so far."""
        with self._errors():
            _make_wait(driver.stream_of(stream), self._stream)

    def come_after(self, stream: int) -> None:
        """All work from now on comes after what another library has enqueued in its stream so far."""
        with self._errors():
            _make_wait(self._stream, driver.stream_of(stream))

    def give_back(self, handle: Memory, stream: int | None) -> None:
        """The other library is done with it, but for what it has enqueued. Can be called at any moment."""
        if handle in self.kept:
            self._take_back(handle)
        else:
            self._returned.append((handle, _LEGACY if stream is None else stream))

    def _take_back(self, handle: Memory) -> None:
        """After the device was closed, by its last user, whose work may still run."""
        handle.lent -= 1
        if handle.lent:
            return
        address = self.kept.pop(handle)
        with suppress(driver.CudaError), self._context.current():
            driver.synchronize_context()  # memory of a pool would be freed without waiting
            driver.free_now(address)
        if not self.kept:
            self._context.release()

    def borrow(self, address: int, owner: Callable[[], None]) -> Memory:
        """A handle of memory of another library, at a multiple of `offset_alignment`.

        Args:
            address: on this device. The library was given `stream`, in which it can be used now.
            owner: called when it was freed, and all work that uses it has run.
        """
        return self._hold(address, owner)

    def leave(self, owner: Callable[[], None]) -> None:
        """Call the owner of what was borrowed when all work so far has run."""
        event = driver.create_event()
        driver.record_event(event, self._stream)
        self._leaving.append((event, owner))

    def catch_up(self) -> None:
        """Make new work wait for those that gave memory back, and call waiting owners whose events have happened."""
        while self._returned:
            handle, stream = self._returned.popleft()
            handle.lent -= 1
            if stream in (_LEGACY, _PER_THREAD):
                _make_wait(self._stream, driver.stream_of(stream))
            else:  # it may be gone, and CUDA does not say what an event in it would do
                driver.synchronize_context()
        while self._leaving and driver.has_happened(self._leaving[0][0]):
            event, owner = self._leaving.popleft()
            driver.destroy_event(event)
            owner()


def _make_wait(stream: driver.Handle, other: driver.Handle) -> None:
    """Make work that is enqueued in a stream from now on wait for all that was enqueued in another."""
    event = driver.create_event()
    try:
        driver.record_event(event, other)
        driver.make_wait(stream, event)
    finally:
        driver.destroy_event(event)

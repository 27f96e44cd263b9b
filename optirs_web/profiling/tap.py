"""`Tap`: stands between a device and its backend while a profile runs, and records the time of each call."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..runtime.backend import Backend, BoundBuffer, Command, Handle, Ticket
from ..runtime.timing import Timed
from .records import HostSpan

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel

__all__ = ["Submit", "Tap"]

_UNREAD = 256
"""Submits whose times are left on the device at most, where they can be waited for."""


class Submit:
    """One submit.

    Attributes:
        start: when the host began it, in seconds of the host's clock.
        sent: when the device had it.
        done: when the host knew that the device had done it; infinite until then.
        ticket: the backend's ticket for the times.
        times: the times, once they are read.
    """

    __slots__ = ("done", "sent", "start", "ticket", "times")

    def __init__(self, start: float, sent: float, ticket: Ticket) -> None:
        """Not done, and not read."""
        self.start = start
        self.sent = sent
        self.done = float("inf")
        self.ticket = ticket
        self.times: list[Timed] | None = None


class Tap:
    """A wrapper of a backend that records its calls; other attributes are the backend's own.

    Attributes:
        backend: the wrapped backend.
        spans: the work of the host, in the order of time.
        awaited: the spans in which tasks waited for the device, perhaps several at once.
        submits: all submits, in the order of time.
    """

    def __init__(self, backend: Backend) -> None:
        """Wrap a backend; `Device.exchange_backend` installs the tap."""
        self.backend = backend
        self.spans: list[HostSpan] = []
        self.awaited: list[HostSpan] = []
        self.submits: list[Submit] = []
        self._unread: list[Submit] = []
        self._running: list[Submit] = []
        self._replays = backend.stats.replays
        self._name = backend.info.label

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    @contextmanager
    def _span(self, kind: str, **details: Any) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.spans.append(HostSpan(kind, start, perf_counter(), self._name, details))

    def _all_done(self, submits: Sequence[Submit], end: float) -> None:
        for submitted in submits:
            submitted.done = min(submitted.done, end)
        self._running = [submitted for submitted in self._running if submitted.done == float("inf")]

    # The backend's methods.

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        """Bind, and record the span if the kernel had to be compiled."""
        before = self.backend.stats.pipelines
        start = perf_counter()
        command = self.backend.bind(kernel, buffers, parameters, grid)
        if self.backend.stats.pipelines != before:
            self.spans.append(HostSpan("compile", start, perf_counter(), self._name, {"kernel": kernel.name}))
        return command

    def submit(self, commands: Sequence[Command]) -> None:
        """Submit so that kernels are timed."""
        replays = self.backend.stats.replays - self._replays
        self._replays += replays
        start = perf_counter()
        ticket = self.backend.submit_timed(commands)
        submit = Submit(start, perf_counter(), ticket)
        kind = "replay" if replays else "submit"
        self.spans.append(HostSpan(kind, start, submit.sent, self._name, {"submit": len(self.submits)}))
        for submits in (self.submits, self._unread, self._running):
            submits.append(submit)
        if len(self._unread) >= _UNREAD and self.backend.can_wait:
            self.read_times()

    def write(self, handle: Handle, offset: int, data: memoryview) -> None:
        """Write, and record the span."""
        with self._span("write", bytes=data.nbytes):
            self.backend.write(handle, offset, data)

    def read(self, handle: Handle, offset: int, nbytes: int) -> memoryview:
        """Read, and record the span."""
        running = self._running
        with self._span("read", bytes=nbytes):
            data = self.backend.read(handle, offset, nbytes)
        self._all_done(running, self.spans[-1].end)
        return data

    def read_async(self, handle: Handle, offset: int, nbytes: int) -> Awaitable[memoryview]:
        """Read, and record the spans of the call and of the wait."""
        with self._span("read", bytes=nbytes):
            data = self.backend.read_async(handle, offset, nbytes)
        return self._awaited("read", data, {"bytes": nbytes})

    def synchronize(self) -> None:
        """Wait, and record the span."""
        running = self._running
        with self._span("wait"):
            self.backend.synchronize()
        self._all_done(running, self.spans[-1].end)

    async def synchronize_async(self) -> None:
        """Wait, and record the span."""
        await self._awaited("wait", self.backend.synchronize_async(), {})

    async def _awaited(self, kind: str, pending: Awaitable[Any], details: dict[str, Any]) -> Any:
        running = list(self._running)
        start = perf_counter()
        try:
            return await pending
        finally:
            self.awaited.append(HostSpan(kind, start, perf_counter(), self._name, details))
            self._all_done(running, self.awaited[-1].end)

    # The measured times.

    def read_times(self) -> None:
        """Wait for the times of all submits and store them."""
        unread, self._unread = self._unread, []
        running = self._running
        with self._span("profiler"):
            for submit in unread:
                submit.times, submit.ticket = self.backend.times(submit.ticket), None
        self._all_done(running, self.spans[-1].end)

    async def read_times_async(self) -> None:
        """The awaitable twin of `read_times`."""
        unread, self._unread = self._unread, []
        for submit in unread:
            submit.times, submit.ticket = await self.backend.times_async(submit.ticket), None
        self._all_done(unread, perf_counter())

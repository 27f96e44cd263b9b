"""The memory of a device: a pool, a limit, what is held, what owners have left, and what to do when there is none."""

from __future__ import annotations

import gc
import operator
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from ..errors import DeviceLostError, OutOfDeviceMemoryError
from .backend import AllocationFailed, Backend, Capabilities, Command
from .buffer import Buffer
from .pool import Pool, size_class
from .program import Program, recorded_here
from .stats import MemoryStats

__all__ = ["DeviceMemory"]


def _limit_from_environment() -> int | None:
    text = os.environ.get("OPTIRS_MEMORY_LIMIT", "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"OPTIRS_MEMORY_LIMIT must be a number of bytes, not '{text}'")
    return int(text) if text else None


class RecordedStep(Protocol):
    """A compiled step."""

    def forget(self, device: Any) -> None:
        """Drop the recordings on a device, which frees their memory unless they run now."""


class DeviceMemory(ABC):
    """The half of `Device` that holds memory. The other half, `Device` itself, does the work and says when it is sent.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        capabilities: its limits and features.
        lock: held while work is enqueued and while memory changes hands, so that threads take turns. Who holds it
            waits for no other lock, and calls no code of users.
        returned: memory whose owners have gone, as (who takes it back, handle, bytes). Appending is all that is safe
            there.
        memory_observers: called with what happened, the handle (None where it is about no single one) and the bytes,
            after the counts have changed. What can happen is listed at `optirs_web.memory.timeline.MemoryEvent`; and
            "record": what was taken is kept by a compiled step. They may not allocate.
        last_resorts: called with the bytes that are wanted when there is no room though the pool has been given back,
            before that is an error; also while a program is recorded. They let go of what can be done without or
            computed again. Recordings of compiled steps that do not run now are let go before.
    """

    def __init__(self, backend: Backend) -> None:
        """Take over an opened backend."""
        self._backend = backend
        self.capabilities: Capabilities = backend.capabilities
        self.name = backend.info.label
        self.lock = threading.RLock()
        self.returned: deque[tuple[Callable[[Any, int], None], Any, int]] = deque()
        self.memory_observers: list[Callable[[str, Any, int], None]] = []
        self.last_resorts: list[Callable[[int], None]] = []
        self._recorded_steps: WeakSet[RecordedStep] = WeakSet()
        self._held: list[Command] | None = None  # what `all_or_nothing` has enqueued so far
        self._closed = False
        self._pool = Pool()
        self._limit = _limit_from_environment()
        self._requested: dict[Any, int] = {}  # of each handle in use, the bytes that its owner asked for
        self._live_bytes = 0
        self._peak_bytes = 0
        self._reused = 0
        self._allocated = 0
        self._trims = 0
        self._recovered = 0

    @abstractmethod
    def flush(self) -> None:
        """Submit what was enqueued: afterwards nothing that is still to be sent names memory that is free."""

    @property
    def lost(self) -> bool:
        """The device has gone or was closed; `optirs_web.device` opens a new one."""
        return self._closed or self._backend.lost

    @property
    def closed(self) -> bool:
        """It was closed on purpose."""
        return self._closed

    @property
    def is_holding(self) -> bool:
        """Commands of `all_or_nothing` are not on their way yet."""
        return self._held is not None

    @property
    def recording(self) -> Program | None:
        """The program that this thread or task records on the device now, if it does."""
        program = recorded_here()
        return program if program is not None and program.device is self else None

    @property
    def live_bytes(self) -> int:
        """Bytes in use."""
        return self._live_bytes

    @property
    def pooled_bytes(self) -> int:
        """Bytes kept for reuse."""
        return self._pool.nbytes

    def allocate(self, nbytes: int) -> Buffer:
        """At least `nbytes` of memory with any content, from the pool if it has some.

        Raises:
            OutOfDeviceMemoryError: neither the pool nor the device has it, or the limit forbids it.
        """
        with self.lock:
            if self._closed:
                self._check_open()
            self._take_back()
            program = recorded_here()
            if program is not None and program.device is self:
                return program.allocate(nbytes)
            handle, rounded = self._take(nbytes)
        return self._buffer(handle, nbytes, lambda handle, _: self.reclaim(handle, rounded))

    def _take(self, nbytes: int) -> tuple[Any, int]:
        """Memory, from the pool if it has some, and how many bytes it is.

        These are the size class; or, where the device or its limit has no room for that, the size itself.
        """
        rounded = size_class(nbytes)
        room = self.capabilities.max_buffer_bytes
        if self._limit is not None:
            room = min(room, self._limit - self._live_bytes)
        if rounded > room:
            rounded = -(-nbytes // 4) * 4
        handle = self._pool.take(rounded)
        if handle is None:
            handle = self._new_handle(rounded, nbytes)
            self._hold(handle, rounded, nbytes, "allocate")
        else:
            self._reused += 1
            self._hold(handle, rounded, nbytes, "reuse")
        return handle, rounded

    def _take_for_program(self, nbytes: int) -> tuple[Any, int]:
        """Return memory as `_take` does, with the size in bytes, for a compiled step that keeps it."""
        with self.lock:
            handle, rounded = self._take(nbytes)
            self._tell("record", handle, rounded)
            return handle, rounded

    def _buffer(self, handle: Any, nbytes: int, give_back: Callable[[Any, int], None]) -> Buffer:
        device: Any = self  # the other half
        return Buffer(device, handle, nbytes, give_back)

    def allocate_zeroed(self, nbytes: int) -> Buffer:
        """Exactly `nbytes` of zeroed memory of its own, outside the pool and outside any recording.

        For what lives as long as a model: arenas, optimizer state, constants of a program.
        """
        with self.lock:
            self._check_open()
            self._take_back()
            handle = self._new_handle(nbytes, nbytes)
            self._hold(handle, nbytes, nbytes, "allocate")
        return self._buffer(handle, nbytes, self._free)

    def trim(self) -> None:
        """Give all pooled memory back to the device."""
        with self.lock:
            if self._held is not None:  # commands that are not on their way yet name it
                return
            self._take_back()
            self.flush()
            nbytes = self._pool.nbytes
            for handle, _ in self._pool.drain():
                self._backend.free(handle)
            if nbytes:
                self._trims += 1
                self._tell("trim", None, nbytes)

    def set_memory_limit(self, nbytes: int | None) -> None:
        """Allow at most `nbytes` in all, live and pooled; None lifts the limit.

        Raises:
            ValueError: the limit is negative.
        """
        if nbytes is not None and operator.index(nbytes) < 0:
            raise ValueError(f"a memory limit must be a number of bytes, not {nbytes}")
        with self.lock:
            self._limit = nbytes
            if nbytes is not None and self._live_bytes + self._pool.nbytes > nbytes:
                self.trim()

    def memory_stats(self) -> MemoryStats:
        """Return the buffers and bytes that are held now, and how many requests the pool and the device have served."""
        with self.lock:
            self._take_back()
            return MemoryStats(
                live_buffers=len(self._requested),
                live_bytes=self._live_bytes,
                asked_bytes=sum(self._requested.values()),
                pooled_bytes=self._pool.nbytes,
                pool=self._pool.sizes(),
                peak_bytes=self._peak_bytes,
                limit=self._limit,
                reused=self._reused,
                allocated=self._allocated,
                trims=self._trims,
                recovered=self._recovered,
            )

    def _new_handle(self, nbytes: int, requested: int) -> Any:
        if nbytes > self.capabilities.max_buffer_bytes:
            raise self._no_memory(requested, self.capabilities.max_buffer_bytes)
        handle = self._with_room(requested, lambda: self._allocate_within_limit(nbytes))
        self._allocated += 1
        return handle

    def _allocate_within_limit(self, nbytes: int) -> Any:
        if self._limit is not None and self._live_bytes + self._pool.nbytes + nbytes > self._limit:
            raise AllocationFailed
        return self._backend.allocate(nbytes)

    def _with_room(self, requested: int, call: Callable[[], Any]) -> Any:
        """Call what needs memory. Where there is none, give the pool back and call again; then try the last resorts."""
        try:
            return call()
        except AllocationFailed:
            self._tell("exhausted", None, requested)
        for make_room in (lambda _: self.trim(), self._try_last_resorts):
            make_room(requested)
            try:
                result = call()
            except AllocationFailed:
                continue
            self._recovered += 1
            return result
        raise self._no_memory(requested, self._limit)

    def note_recording(self, step: RecordedStep) -> None:
        """Have a step forget its recordings here when the device is out of memory; it is recorded again if called."""
        with self.lock:
            self._recorded_steps.add(step)

    def _try_last_resorts(self, requested: int) -> None:
        if self._held is not None:  # `all_or_nothing` tries them when it has dropped what it enqueued
            return
        with self.lock:
            steps = list(self._recorded_steps)
        for step in steps:
            step.forget(self)
        gc.collect()  # memory may be held by garbage in cycles
        for let_go in self.last_resorts:
            let_go(requested)
        self.trim()

    def _no_memory(self, requested: int, limit: int | None, note: str = "") -> OutOfDeviceMemoryError:
        with suppress(MemoryError):  # there may be too little even for this
            from .exhaustion import largest_holders  # needed for this error alone

            note += largest_holders(self)
        return OutOfDeviceMemoryError(
            requested, self._live_bytes, limit, self.name, pooled=self._pool.nbytes, note=note
        )

    def _hold(self, handle: Any, nbytes: int, requested: int, event: str) -> None:
        self._requested[handle] = requested
        self._live_bytes += nbytes
        held = self._live_bytes + self._pool.nbytes
        if held > self._peak_bytes:
            self._peak_bytes = held
        if self.memory_observers:
            self._tell(event, handle, nbytes)

    def _drop(self, handle: Any, nbytes: int) -> None:
        del self._requested[handle]
        self._live_bytes -= nbytes

    def _tell(self, event: str, handle: Any, nbytes: int) -> None:
        for observe in self.memory_observers:
            observe(event, handle, nbytes)

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceLostError(f"device '{self.name}' was closed with everything on it")

    def _take_back(self) -> None:
        """Take back what was returned. Called where no command is half-way to the device."""
        while self.returned:
            give_back, handle, nbytes = self.returned.popleft()
            give_back(handle, nbytes)
            del give_back  # may be the last to hold a program, which then returns its memory here too

    def reclaim(self, handle: Any, nbytes: int) -> None:
        """Return memory that nobody holds to the pool."""
        self._drop(handle, nbytes)
        if not self._closed:
            self._pool.put(handle, nbytes)
        if self.memory_observers:
            self._tell("release", handle, nbytes)

    def _free(self, handle: Any, nbytes: int) -> None:
        if self._held is not None:
            self.reclaim(handle, nbytes)
            return
        self._drop(handle, nbytes)
        if not self.lost:
            self.flush()
            self._backend.free(handle)
        self._tell("free", handle, nbytes)

"""A device as the library sees it: memory with a pool and a limit, work in order, recording, counts."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import DeviceLostError, OutOfDeviceMemoryError, ShapeError, UnsupportedError
from .backend import AdapterInfo, AllocationFailed, Backend, Capabilities, Command
from .buffer import Buffer, View
from .interrupts import Uninterrupted
from .pool import Pool, size_class
from .program import Program
from .stats import MemoryStats, Stats

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["Device", "gathered"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def _limit_from_environment() -> int | None:
    text = os.environ.get("OPTIRS_MEMORY_LIMIT", "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"OPTIRS_MEMORY_LIMIT is a number of bytes, not '{text}'")
    return int(text) if text else None


_PENDING_LIMIT = 128
"""Commands gathered before they are submitted. Reading and waiting submit what is there."""

_SMALL_UPLOAD = 1 << 16
"""Bytes that are cheaper to copy, and to send along with the next commands, than to send by themselves."""


async def gathered(started: Mapping[_Key, Awaitable[_Value]]) -> dict[_Key, _Value]:
    """What all of these give, by key."""
    import asyncio  # which takes longer than all that a first tensor needs

    return dict(zip(started, await asyncio.gather(*started.values()), strict=True))


async def _no_bytes() -> memoryview:
    return memoryview(bytearray())


class Device:
    """One opened device. Make it with `optirs_web.device(name)`; use it from one thread.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        info: what the driver says of it.
        capabilities: its limits and features.
        why: why it was chosen, in one sentence.
        stats: counts since it was opened.
        observers: called with the kernel and the views of each dispatch, while it is enqueued or recorded.
    """

    _recorder: ClassVar[Device | None] = None
    """The device that records, if one does."""

    def __init__(self, backend: Backend, why: str = "asked for by name") -> None:
        """Take over an opened backend."""
        self._backend = backend
        self.info: AdapterInfo = backend.info
        self.capabilities: Capabilities = backend.capabilities
        self.name = backend.info.label
        self.why = why
        self.stats: Stats = backend.stats
        self.observers: list[Callable[[Kernel, Sequence[View]], None]] = []
        self._pool = Pool()
        self._uploads: list[Command] = []  # sent before what is pending
        self._pending: list[Command] = []
        self._held: list[Command] | None = None  # what `all_or_nothing` has enqueued so far
        self._closed = False
        self.returned: deque[tuple[Callable[[Any, int], None], Any, int]] = deque()
        """Memory whose owners have gone, as (who takes it back, handle, bytes). Appending is all that is safe there."""
        self._recording: Program | None = None
        self._limit = _limit_from_environment()
        self._live_buffers = 0
        self._live_bytes = 0
        self._peak_bytes = 0
        self._reused = 0
        self._allocated = 0

    @property
    def lost(self) -> bool:
        """The device has gone or was closed; `optirs_web.device` opens a new one."""
        return self._closed or self._backend.lost

    @property
    def can_wait(self) -> bool:
        """Calls that wait can do so here and now. A browser without JSPI cannot: there they are awaited."""
        return self._backend.can_wait

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.info.description}>"

    # Memory.

    def allocate(self, nbytes: int) -> Buffer:
        """At least `nbytes` of memory with any content, from the pool if it has some.

        Raises:
            OutOfDeviceMemoryError: neither the pool nor the device has it, or the limit forbids it.
        """
        self._check_open()
        self._take_back()
        rounded = self._rounded(nbytes)
        recording = self._recording
        handle = recording.pool.take(rounded) if recording is not None else None
        if handle is None:
            handle = self._pool.take(rounded)
            if handle is None:
                handle = self._new_handle(rounded, nbytes)
            else:
                self._reused += 1
            self._hold(rounded)
            if recording is not None:
                recording.own(handle, rounded)
        if recording is not None:
            return Buffer(self, handle, nbytes, recording.give_back(rounded))
        return Buffer(self, handle, nbytes, lambda handle, _: self.reclaim(handle, rounded))

    def _rounded(self, nbytes: int) -> int:
        """The size class; or, where the device or its limit has no room for that, the size itself."""
        rounded = size_class(nbytes)
        room = self.capabilities.max_buffer_bytes
        if self._limit is not None:
            room = min(room, self._limit - self._live_bytes)
        return rounded if rounded <= room else -(-nbytes // 4) * 4

    def allocate_zeroed(self, nbytes: int) -> Buffer:
        """Exactly `nbytes` of zeroed memory of its own, outside the pool and outside any recording.

        For what lives as long as a model: arenas, optimizer state, constants of a program.
        """
        self._take_back()
        handle = self._new_handle(nbytes, nbytes)
        self._hold(nbytes)
        return Buffer(self, handle, nbytes, self._free)

    def trim(self) -> None:
        """Give all pooled memory back to the device."""
        if self._held is not None:  # commands that are not on their way yet name it
            return
        self._take_back()
        self.flush()
        for handle, _ in self._pool.drain():
            self._backend.free(handle)

    def set_memory_limit(self, nbytes: int | None) -> None:
        """Allow at most `nbytes` in all, live and pooled; None lifts the limit.

        Raises:
            ValueError: the limit is negative.
        """
        if nbytes is not None and operator.index(nbytes) < 0:
            raise ValueError(f"a memory limit is a number of bytes, not {nbytes}")
        self._limit = nbytes
        if nbytes is not None and self._live_bytes + self._pool.nbytes > nbytes:
            self.trim()

    def memory_stats(self) -> MemoryStats:
        """What is held now, and how it was served."""
        self._take_back()
        return MemoryStats(
            live_buffers=self._live_buffers,
            live_bytes=self._live_bytes,
            pooled_bytes=self._pool.nbytes,
            peak_bytes=self._peak_bytes,
            limit=self._limit,
            reused=self._reused,
            allocated=self._allocated,
        )

    def _new_handle(self, nbytes: int, asked: int) -> Any:
        if nbytes > self.capabilities.max_buffer_bytes:
            raise OutOfDeviceMemoryError(asked, self._live_bytes, self.capabilities.max_buffer_bytes, self.name)
        if not self._is_within_limit(nbytes):
            self.trim()
            if not self._is_within_limit(nbytes):
                raise OutOfDeviceMemoryError(asked, self._live_bytes, self._limit, self.name)
        handle = self._with_room(asked, lambda: self._backend.allocate(nbytes))
        self._allocated += 1
        return handle

    def _is_within_limit(self, nbytes: int) -> bool:
        return self._limit is None or self._live_bytes + self._pool.nbytes + nbytes <= self._limit

    def _with_room(self, asked: int, call: Callable[[], Any]) -> Any:
        """Call the backend; when it has no memory, give it the pool's and call again."""
        try:
            return call()
        except AllocationFailed:
            self.trim()
        try:
            return call()
        except AllocationFailed:
            raise OutOfDeviceMemoryError(asked, self._live_bytes, self._limit, self.name) from None

    def _hold(self, nbytes: int) -> None:
        self._live_buffers += 1
        self._live_bytes += nbytes
        self._peak_bytes = max(self._peak_bytes, self._live_bytes + self._pool.nbytes)

    def _drop(self, nbytes: int) -> None:
        self._live_buffers -= 1
        self._live_bytes -= nbytes

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceLostError(f"device '{self.name}' was closed")

    def _take_back(self) -> None:
        """Take back what was returned. Called where no command is half-way to the device."""
        while self.returned:
            give_back, handle, nbytes = self.returned.popleft()
            give_back(handle, nbytes)
            del give_back  # may be the last to hold a program, which then returns its memory here too

    def reclaim(self, handle: Any, nbytes: int) -> None:
        """Put memory that nobody holds any more into the pool."""
        self._drop(nbytes)
        if not self._closed:
            self._pool.put(handle, nbytes)

    def _free(self, handle: Any, nbytes: int) -> None:
        if self._held is not None:
            self.reclaim(handle, nbytes)
            return
        self._drop(nbytes)
        if not self.lost:
            self.flush()
            self._backend.free(handle)

    # Bytes in and out.

    def write(self, view: View, data: memoryview) -> None:
        """Copy bytes from the host, in order with the work enqueued so far. Happens at once, even while recording.

        Within `all_or_nothing` it comes before the work of that.
        """
        if data.nbytes != view.nbytes:
            raise ShapeError(f"{data.nbytes} bytes do not fit a view of {view.nbytes}")
        if data.nbytes == 0:
            return
        handle, offset = view.buffer.handle, view.offset
        self.stats.bytes_up += data.nbytes
        if data.nbytes > _SMALL_UPLOAD:
            self.flush()
            self._with_room(data.nbytes, lambda: self._backend.write(handle, offset, data))
            return
        self._check_open()
        if self._pending:
            self.flush()
        self._uploads.append(self._backend.upload(handle, offset, bytes(data)))
        if len(self._uploads) >= _PENDING_LIMIT:
            self.flush()

    def read(self, view: View) -> memoryview:
        """Wait for the work enqueued so far and copy bytes to the host.

        Raises:
            UnsupportedError: a program is being recorded, so there is no value yet.
        """
        self._refuse_while_recording()
        self.flush()
        self.stats.bytes_down += view.nbytes
        if view.nbytes == 0:
            return memoryview(bytearray())
        handle = view.buffer.handle
        data: memoryview = self._with_room(view.nbytes, lambda: self._backend.read(handle, view.offset, view.nbytes))
        return data

    async def read_async(self, view: View) -> memoryview:
        """The awaitable twin of `read`."""
        return await self.start_read(view)

    def start_read(self, view: View) -> Awaitable[memoryview]:
        """What to await for the bytes as they are now, whatever is enqueued afterwards."""
        self._refuse_while_recording()
        self.flush()
        self.stats.bytes_down += view.nbytes
        if view.nbytes == 0:
            return _no_bytes()
        return self._backend.read_async(view.buffer.handle, view.offset, view.nbytes)

    def read_all(self, views: Mapping[_Key, View]) -> dict[_Key, memoryview]:
        """The bytes of several views."""
        return {key: self.read(view) for key, view in views.items()}

    def read_all_async(self, views: Mapping[_Key, View]) -> Awaitable[dict[_Key, memoryview]]:
        """The awaitable twin of `read_all`: the bytes as they are at the call."""
        return gathered({key: self.start_read(view) for key, view in views.items()})

    def _refuse_while_recording(self) -> None:
        if self._held is not None:
            raise UnsupportedError("an optimizer's step is enqueued as a whole; nothing is read in the middle of it")
        if self._recording is not None:
            raise UnsupportedError(
                "a tensor cannot be read inside a compiled step: its value exists only when the step is "
                "replayed. Return the tensor from the step and read it outside"
            )

    # Work.

    def dispatch(
        self,
        kernel: Kernel,
        views: Sequence[View],
        workgroups: int | tuple[int, int],
        parameters: Sequence[int | float] = (),
    ) -> None:
        """Enqueue a kernel over these views, or record it.

        Args:
            kernel: what to run.
            views: one for each of the kernel's bindings, in order.
            workgroups: how many; a plain number may exceed what one dimension of a grid holds, the
                kernel then finds its place by `workgroup_id.x + workgroup_id.y * num_workgroups.x`.
            parameters: the kernel's parameters, in order.
        """
        limit = self.capabilities.max_workgroups
        if isinstance(workgroups, int):
            rows = max(1, -(-workgroups // limit))
            grid = (-(-workgroups // rows), rows, 1)
        else:
            grid = (*workgroups, 1)
        if min(grid) == 0:
            return
        if max(grid) > limit:
            raise UnsupportedError(
                f"kernel '{kernel.name}' needs a grid of {grid} workgroups; '{self.name}' allows {limit}"
            )
        if len(views) > self.capabilities.max_storage_buffers:
            raise UnsupportedError(
                f"kernel '{kernel.name}' needs {len(views)} buffers; '{self.name}' binds at most "
                f"{self.capabilities.max_storage_buffers}"
            )
        for view in views:
            if view.nbytes > self.capabilities.max_binding_bytes:
                raise UnsupportedError(
                    f"kernel '{kernel.name}' needs {view.nbytes:,} bytes of one buffer at once; '{self.name}' shows a "
                    f"kernel at most {self.capabilities.max_binding_bytes:,}. Split the tensor"
                )
        for observe in self.observers:
            observe(kernel, views)
        bound = [(view.buffer.handle, view.offset, view.nbytes) for view in views]
        block = kernel.pack(parameters)
        command = self._with_room(len(block), lambda: self._backend.bind(kernel, bound, block, grid))
        self._enqueue(command, views, is_dispatch=True)

    def copy(self, source: View, target: View) -> None:
        """Enqueue a copy between two views of equal size, or record it."""
        if source.nbytes != target.nbytes:
            raise ShapeError(f"{source.nbytes} bytes do not fit a view of {target.nbytes}")
        if source.nbytes == 0 or source == target:
            return
        if source.buffer is target.buffer:  # WebGPU does not copy within a buffer
            between = View.whole(self.allocate(source.nbytes))
            self.copy(source, between)
            source = between
        command = self._backend.copy(
            (source.buffer.handle, source.offset, source.nbytes),
            (target.buffer.handle, target.offset, target.nbytes),
        )
        self._enqueue(command, (source, target), is_dispatch=False)

    def _enqueue(self, command: Command, views: Sequence[View], *, is_dispatch: bool) -> None:
        recorder = Device._recorder
        if recorder is not None and recorder is not self:
            raise UnsupportedError(
                f"a step compiled for '{recorder.name}' does work on '{self.name}', which a replay would leave out; "
                f"put everything on one device, and name it: compile(step, device='{self.name}')"
            )
        if self._recording is not None:
            self._recording.add(command, views, is_dispatch=is_dispatch)
            return
        self.stats.dispatches += is_dispatch
        self.stats.copies += not is_dispatch
        if self._held is not None:
            self._held.append(command)
            return
        self._pending.append(command)
        self._flush_if_many()

    def _flush_if_many(self) -> None:
        if len(self._pending) >= _PENDING_LIMIT:
            self.flush()

    def all_or_nothing(self, enqueue: Callable[[], None]) -> None:
        """Call what enqueues work; if it raises, nothing of that work is done. It may be called a second time.

        Nothing is read in it, and what it writes is there before all of its work.

        Raises:
            OutOfDeviceMemoryError: there is none, though all that was in the pool has been given back.
        """
        if self._recording is not None or self._held is not None:
            enqueue()
            return
        before = self.stats.dispatches, self.stats.copies
        with Uninterrupted():
            for is_last in (False, True):
                held = self._held = []
                try:
                    enqueue()
                    break
                except BaseException as error:
                    self.stats.dispatches, self.stats.copies = before
                    if is_last or not isinstance(error, OutOfDeviceMemoryError):
                        raise
                finally:
                    self._held = None
                self.trim()
            self._pending += held
            self._flush_if_many()

    def flush(self) -> None:
        """Submit what was enqueued; does not wait for it."""
        self._check_open()
        uploads, pending = self._uploads, self._pending
        if not uploads and not pending:
            return
        with Uninterrupted():
            self._uploads, self._pending = [], []
            try:
                self._backend.submit(uploads + pending)
            except AllocationFailed:
                # The pool cannot be given back here: the commands name its buffers. They stay, to be tried again.
                self._uploads, self._pending = uploads + self._uploads, pending + self._pending
                raise OutOfDeviceMemoryError(0, self._live_bytes, self._limit, self.name) from None
        self.stats.submits += bool(pending)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far has run."""
        self.flush()
        self._backend.synchronize()

    async def synchronize_async(self) -> None:
        """The awaitable twin of `synchronize`."""
        self.flush()
        await self._backend.synchronize_async()

    # Programs.

    @classmethod
    def recorder(cls) -> Device | None:
        """The device that records a program now, if one does."""
        return cls._recorder

    @property
    def recording(self) -> Program | None:
        """The program being recorded, if any."""
        return self._recording

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Record the work enqueued in the block into a program instead of running it.

        Raises:
            UnsupportedError: a program is being recorded already.
        """
        if Device._recorder is not None:
            raise UnsupportedError("a compiled step cannot be recorded inside another one")
        program = Program(self)
        self._recording = program
        Device._recorder = self
        try:
            yield program
        finally:
            self._take_back()  # memory of the program that is free now is free for its own commands only
            self._recording = Device._recorder = None
        if program.commands:
            program.recorded = self._backend.record(program.commands)

    def replay(self, program: Program) -> None:
        """Enqueue a recorded program. What is enqueued next, until the next `flush`, shares its submit.

        Raises:
            StaleProgramError: a buffer that it bound has moved.
        """
        program.prepare()
        if program.recorded is not None:
            self._pending.append(program.recorded)
        self.stats.dispatches += program.dispatches
        self.stats.copies += program.copies
        self.stats.replays += 1

    def close(self) -> None:
        """Release the device; nothing on it can be used afterwards."""
        self._closed = True
        self._uploads.clear()
        self._pending.clear()
        self._pool.drain()
        self._backend.close()

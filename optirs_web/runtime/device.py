"""A device as the library sees it: memory with a pool and a limit, work in order, recording, counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import OutOfDeviceMemoryError, ShapeError, UnsupportedError
from .backend import AdapterInfo, AllocationFailed, Backend, Capabilities, Command
from .buffer import Buffer, View
from .pool import Pool, size_class
from .program import Program
from .stats import MemoryStats, Stats

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["Device"]

_PENDING_LIMIT = 128
"""Commands gathered before they are submitted. Reading, writing and waiting submit what is there."""


class Device:
    """One opened device. Make it with `optirs_web.device(name)`; use it from one thread.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        info: what the driver says of it.
        capabilities: its limits and features.
        why: why it was chosen, in one sentence.
        stats: counts since it was opened.
    """

    def __init__(self, backend: Backend, why: str = "asked for by name") -> None:
        """Take over an opened backend."""
        self._backend = backend
        self.info: AdapterInfo = backend.info
        self.capabilities: Capabilities = backend.capabilities
        self.name = backend.info.label
        self.why = why
        self.stats: Stats = backend.stats
        self._pool = Pool()
        self._pending: list[Command] = []
        self._pending_limit: float = _PENDING_LIMIT
        self._closed = False
        self._recording: Program | None = None
        limit = os.environ.get("OPTIRS_MEMORY_LIMIT")
        self._limit = int(limit) if limit else None
        self._live_buffers = 0
        self._live_bytes = 0
        self._peak_bytes = 0
        self._reused = 0
        self._allocated = 0

    @property
    def lost(self) -> bool:
        """The device has gone or was closed; `optirs_web.device` opens a new one."""
        return self._closed or self._backend.lost

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.info.description}>"

    # Memory.

    def allocate(self, nbytes: int) -> Buffer:
        """At least `nbytes` of memory with any content, from the pool if it has some.

        Raises:
            OutOfDeviceMemoryError: neither the pool nor the device has it, or the limit forbids it.
        """
        rounded = size_class(nbytes)
        if self._recording is not None:
            handle = self._recording.pool.take(rounded)
            if handle is None:
                handle = self._new_handle(rounded, nbytes)
                self._recording.own(handle, rounded)
            return Buffer(self, handle, nbytes, self._recording.give_back(rounded))
        handle = self._pool.take(rounded)
        if handle is None:
            handle = self._new_handle(rounded, nbytes)
        else:
            self._reused += 1
        self._hold(rounded)
        return Buffer(self, handle, nbytes, lambda handle, _: self._reclaim(handle, rounded))

    def allocate_zeroed(self, nbytes: int) -> Buffer:
        """Exactly `nbytes` of zeroed memory of its own, outside the pool and outside any recording.

        For what lives as long as a model: arenas, optimizer state, constants of a program.
        """
        handle = self._new_handle(nbytes, nbytes)
        self._hold(nbytes)
        return Buffer(self, handle, nbytes, self._free)

    def trim(self) -> None:
        """Give all pooled memory back to the device."""
        self.flush()
        for handle, _ in self._pool.drain():
            self._backend.free(handle)

    def set_memory_limit(self, nbytes: int | None) -> None:
        """Allow at most `nbytes` in all, live and pooled; None lifts the limit.

        Raises:
            ValueError: the limit is negative.
        """
        if nbytes is not None and nbytes < 0:
            raise ValueError(f"a memory limit is a number of bytes, not {nbytes}")
        self._limit = nbytes
        if nbytes is not None and self._live_bytes + self._pool.nbytes > nbytes:
            self.trim()

    def memory_stats(self) -> MemoryStats:
        """What is held now, and how it was served."""
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
        if self._limit is not None and self._live_bytes + self._pool.nbytes + nbytes > self._limit:
            self.trim()
            if self._live_bytes + nbytes > self._limit:
                raise OutOfDeviceMemoryError(asked, self._live_bytes, self._limit, self.name)
        try:
            handle = self._backend.allocate(nbytes)
        except AllocationFailed:
            self.trim()
            try:
                handle = self._backend.allocate(nbytes)
            except AllocationFailed:
                raise OutOfDeviceMemoryError(asked, self._live_bytes, self._limit, self.name) from None
        self._allocated += 1
        return handle

    def _hold(self, nbytes: int) -> None:
        self._live_buffers += 1
        self._live_bytes += nbytes
        self._peak_bytes = max(self._peak_bytes, self._live_bytes + self._pool.nbytes)

    def _drop(self, nbytes: int) -> None:
        self._live_buffers -= 1
        self._live_bytes -= nbytes

    def _reclaim(self, handle: Any, nbytes: int) -> None:
        self._drop(nbytes)
        if not self._closed:
            self._pool.put(handle, nbytes)

    def _free(self, handle: Any, nbytes: int) -> None:
        self._drop(nbytes)
        if not self._closed:
            self.flush()
            self._backend.free(handle)

    # Bytes in and out.

    def write(self, view: View, data: memoryview) -> None:
        """Copy bytes from the host, in order with the work enqueued so far. Happens at once, even while recording."""
        if data.nbytes != view.nbytes:
            raise ShapeError(f"{data.nbytes} bytes do not fit a view of {view.nbytes}")
        if data.nbytes == 0:
            return
        self.flush()
        self._backend.write(view.buffer.handle, view.offset, data)
        self.stats.bytes_up += data.nbytes

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
        return self._backend.read(view.buffer.handle, view.offset, view.nbytes)

    async def read_async(self, view: View) -> memoryview:
        """The awaitable twin of `read`."""
        self._refuse_while_recording()
        self.flush()
        self.stats.bytes_down += view.nbytes
        if view.nbytes == 0:
            return memoryview(bytearray())
        return await self._backend.read_async(view.buffer.handle, view.offset, view.nbytes)

    def _refuse_while_recording(self) -> None:
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
        for view in views:
            if view.nbytes > self.capabilities.max_binding_bytes:
                raise UnsupportedError(
                    f"kernel '{kernel.name}' needs {view.nbytes:,} bytes of one buffer at once; '{self.name}' shows a "
                    f"kernel at most {self.capabilities.max_binding_bytes:,}. Split the tensor"
                )
        bound = [(view.buffer.handle, view.offset, view.nbytes) for view in views]
        command = self._backend.bind(kernel, bound, kernel.pack(parameters), grid)
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
        if self._recording is not None:
            self._recording.add(command, views, is_dispatch=is_dispatch)
            return
        self.stats.dispatches += is_dispatch
        self.stats.copies += not is_dispatch
        self._pending.append(command)
        if len(self._pending) >= self._pending_limit:
            self.flush()

    def flush(self) -> None:
        """Submit what was enqueued; does not wait for it."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._submit(pending)

    def _submit(self, commands: Sequence[Command]) -> None:
        self._backend.submit(commands)
        self.stats.submits += 1

    def synchronize(self) -> None:
        """Wait until everything enqueued so far has run."""
        self.flush()
        self._backend.synchronize()

    # Programs.

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
        if self._recording is not None:
            raise UnsupportedError("a compiled step cannot be recorded inside another one")
        program = Program(self)
        self._recording = program
        try:
            yield program
        finally:
            self._recording = None
        if program.commands:
            program.recorded = self._backend.record(program.commands)

    def replay(self, program: Program, then: Callable[[], None] | None = None) -> None:
        """Run a recorded program: one submit, together with the copies that `then` enqueues.

        Raises:
            StaleProgramError: a buffer that it bound has moved.
        """
        program.prepare()
        if program.recorded is not None:
            self._pending.append(program.recorded)
        self.stats.dispatches += program.dispatches
        self.stats.copies += program.copies
        self.stats.replays += 1
        self._pending_limit = float("inf")
        try:
            if then is not None:
                then()
        finally:
            self._pending_limit = _PENDING_LIMIT
        self.flush()

    def close(self) -> None:
        """Release the device; nothing on it can be used afterwards."""
        self._closed = True
        self._pending.clear()
        self._pool.drain()
        self._backend.close()

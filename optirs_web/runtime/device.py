"""A device as the library sees it: bytes in and out, work in order, recording, counts. Its memory is `DeviceMemory`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeVar
from weakref import WeakSet

from ..errors import OutOfDeviceMemoryError, ShapeError, UnsupportedError
from ..parts import imported
from .backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Command
from .buffer import View
from .device_memory import DeviceMemory
from .interrupts import Uninterrupted
from .launches import Copy, Launch, Recorded
from .program import Program
from .stats import Stats

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["Device", "gathered"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


_PENDING_LIMIT = 128
"""Commands gathered before they are submitted. Reading and waiting submit what is there."""

_SMALL_UPLOAD = 1 << 16
"""Bytes that are cheaper to copy, and to send along with the next commands, than to send by themselves."""


async def gathered(started: Mapping[_Key, Awaitable[_Value]]) -> dict[_Key, _Value]:
    """What all of these give, by key."""
    import asyncio  # which takes longer than all that a first tensor needs

    return dict(zip(started, await asyncio.gather(*started.values()), strict=True))


def _as_bound(view: View) -> BoundBuffer:
    return view.buffer.handle, view.offset, view.nbytes


async def _no_bytes() -> memoryview:
    return memoryview(bytearray())


class Device(DeviceMemory):
    """One opened device. Make it with `optirs_web.device(name)`; use it from one thread.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        info: what the driver says of it.
        capabilities: its limits and features.
        why: why it was chosen, in one sentence.
        stats: counts since it was opened.
        observers: called with the kernel and the views of each dispatch, while it is enqueued or recorded.
        meanwhile: called, once, by the next call that waits, when the device has its work and before the wait.
        programs: those that were recorded, as long as anybody holds them.
        on_change: called with a view, a launch, a copy or a program that writes memory now.
        on_wait: called when a call has waited.
    """

    _recorder: ClassVar[Device | None] = None
    """The device that records, if one does."""

    on_change: Callable[[View | Recorded | Program], None] | None = None
    on_wait: Callable[[], None] | None = None

    def __init__(self, backend: Backend, why: str = "asked for by name") -> None:
        """Take over an opened backend."""
        super().__init__(backend)
        self.info: AdapterInfo = backend.info
        self.why = why
        self.stats: Stats = backend.stats
        self.observers: list[Callable[[Kernel, Sequence[View]], None]] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.programs: WeakSet[Program] = WeakSet()
        self._uploads: list[Command] = []  # sent before what is pending
        self._pending: list[Command] = []

    @property
    def can_wait(self) -> bool:
        """Calls that wait can do so here and now. A browser without JSPI cannot: there they are awaited."""
        return self._backend.can_wait

    @property
    def backend(self) -> Backend:
        """The connector to the hardware."""
        return self._backend

    def exchange_backend(self, other: Backend) -> None:
        """Go on through another connector to the same hardware, as a profiler does that listens in between."""
        self._backend = other

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.info.description}>"

    # Bytes in and out.

    def write(self, view: View, data: memoryview) -> None:
        """Copy bytes from the host, in order with the work enqueued so far. Happens at once, even while recording.

        Within `all_or_nothing` it comes before the work of that.
        """
        if data.nbytes != view.nbytes:
            raise ShapeError(f"{data.nbytes} bytes do not fit a view of {view.nbytes}")
        if data.nbytes == 0:
            return
        if self.on_change is not None:
            self.on_change(view)
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
        self._use_the_time()
        handle = view.buffer.handle
        data: memoryview = self._with_room(view.nbytes, lambda: self._backend.read(handle, view.offset, view.nbytes))
        if self.on_wait is not None:
            self.on_wait()
        return data

    def read_async(self, view: View) -> Awaitable[memoryview]:
        """The awaitable twin of `read`: the bytes as they are at the call, whatever is enqueued afterwards."""
        self._refuse_while_recording()
        self.flush()
        self.stats.bytes_down += view.nbytes
        if view.nbytes == 0:
            return _no_bytes()
        reading = self._backend.read_async(view.buffer.handle, view.offset, view.nbytes)
        self._use_the_time()
        return reading

    def _use_the_time(self) -> None:
        while self.meanwhile:
            self.meanwhile.pop()()

    def read_all(self, views: Mapping[_Key, View]) -> dict[_Key, memoryview]:
        """The bytes of several views."""
        return {key: self.read(view) for key, view in views.items()}

    def read_all_async(self, views: Mapping[_Key, View]) -> Awaitable[dict[_Key, memoryview]]:
        """The awaitable twin of `read_all`: the bytes as they are at the call."""
        return gathered({key: self.read_async(view) for key, view in views.items()})

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
        if any(view.kind for view in views):
            kernel = imported("runtime.packed_kernels").packed_on(self, kernel, views)
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
            view.buffer.first_kernel = view.buffer.first_kernel or kernel.name
        for observe in self.observers:
            observe(kernel, views)
        self._enqueue(Launch(kernel, tuple(views), grid, tuple(parameters)))

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
        self._enqueue(Copy(source, target))

    def _enqueue(self, one: Recorded) -> None:
        recorder = Device._recorder
        if recorder is not None and recorder is not self:
            raise UnsupportedError(
                f"a step compiled for '{recorder.name}' does work on '{self.name}', which a replay would leave out; "
                f"put everything on one device, and name it: compile(step, device='{self.name}')"
            )
        if self._recording is not None:
            self._recording.add(one)
            return
        if self.on_change is not None:
            self.on_change(one)
        command = self._bound(one)
        is_dispatch = isinstance(one, Launch)
        self.stats.dispatches += is_dispatch
        self.stats.copies += not is_dispatch
        if self._held is not None:
            self._held.append(command)
            return
        self._pending.append(command)
        self._flush_if_many()

    def _bound(self, one: Recorded) -> Command:
        """The backend's command for it."""
        if isinstance(one, Copy):
            return self._backend.copy(_as_bound(one.source), _as_bound(one.target))
        if self._backend.tuned is not None:
            one = self._backend.tuned(one)
        kernel, grid = one.kernel, one.grid
        views = [_as_bound(view) for view in one.views]
        block = kernel.pack(one.parameters)
        return self._with_room(len(block), lambda: self._backend.bind(kernel, views, block, grid))

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
                    asked = error.asked
                finally:
                    self._held = None
                self._try_last_resorts(asked)
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
            except AllocationFailed as error:
                if error.operation is None:
                    # The pool cannot be given back here: the commands name its buffers. They stay, to be tried again.
                    self._uploads, self._pending = uploads + self._uploads, pending + self._pending
                raise self._no_memory(0, self._limit, str(error)) from None
        self.stats.submits += bool(pending)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far has run."""
        self.flush()
        self._use_the_time()
        self._backend.synchronize()
        if self.on_wait is not None:
            self.on_wait()

    async def synchronize_async(self) -> None:
        """The awaitable twin of `synchronize`."""
        self.flush()
        self._use_the_time()
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
    def record(self, *, fuses: bool = True) -> Iterator[Program]:
        """Record the work enqueued in the block into a program instead of running it.

        Args:
            fuses: launches are fused where that computes the same with less.

        Raises:
            UnsupportedError: a program is being recorded already.
        """
        if Device._recorder is not None:
            raise UnsupportedError("a compiled step cannot be recorded inside another one")
        program = Program(self, fuses=fuses)
        self._recording = program
        Device._recorder = self
        try:
            yield program
        finally:
            self._recording = Device._recorder = None
        if program.as_recorded:
            program.finish(self._take_for_program)
            self.bind(program)
            self.programs.add(program)

    def bind(self, program: Program) -> None:
        """Bind the launches of a program, perhaps anew: to the kernels that are tuned by now."""
        if self._backend.tuned is None:
            for one in program.launches:
                if isinstance(one, Launch):
                    self._backend.expect(one.kernel)
        program.recorded = self._backend.record([self._bound(one) for one in program.launches])

    def replay(self, program: Program) -> None:
        """Enqueue a recorded program. What is enqueued next, until the next `flush`, shares its submit.

        Raises:
            StaleProgramError: a buffer that it bound has moved.
        """
        program.prepare()
        if self.on_change is not None:
            self.on_change(program)
        if self.memory_observers:
            self._tell("replay", None, program.nbytes)
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

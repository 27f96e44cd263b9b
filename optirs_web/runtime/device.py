"""A device as the library sees it: bytes in and out, work in order, recording, counts. Its memory is `DeviceMemory`."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar
from weakref import WeakSet

from ..errors import DeviceLimitError, OutOfDeviceMemoryError, ShapeError, UnsupportedError
from .backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Command
from .buffer import View
from .device_memory import DeviceMemory
from .interrupts import Uninterrupted
from .launches import Copy, Launch, Recorded
from .program import Program, recorded_here
from .stats import Stats

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["Device", "gathered"]

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


_SMALL_UPLOAD = 1 << 16
"""Bytes that are cheaper to copy, and to send along with the next commands, than to send by themselves."""


async def gathered(started: Mapping[_Key, Awaitable[_Value]]) -> dict[_Key, _Value]:
    """Await all of these at the same time, and return the results by key."""
    import asyncio  # which takes longer than all that a first tensor needs

    return dict(zip(started, await asyncio.gather(*started.values()), strict=True))


async def _no_bytes() -> memoryview:
    return memoryview(bytearray())


class Device(DeviceMemory):
    """One opened device. Make it with `optirs_web.device(name)`.

    Threads may share it, and take turns: an operation, a step of an optimizer and a call of a compiled step happen as
    a whole. What each thread enqueues runs in its order. Threads with a device each do not wait for one another.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        info: what the driver says of it.
        capabilities: its limits and features.
        why: why it was chosen, in one sentence.
        stats: counts since it was opened.
        observers: called with the kernel and the views of each dispatch, while it is enqueued or recorded.
        meanwhile: called, once, by the next call that waits, when the device has its work and before the wait; with the
            ident of the thread whose call that is, or None for any.
        programs: those that were recorded, as long as anybody holds them.
        on_change: called with a view, a launch, a copy or a program that writes memory now.
    """

    on_change: Callable[[View | Recorded | Program], None] | None = None

    def __init__(self, backend: Backend, why: str = "asked for by name") -> None:
        """Take over an opened backend."""
        super().__init__(backend)
        self.info: AdapterInfo = backend.info
        self.why = why
        self.stats: Stats = backend.stats
        self.observers: list[Callable[[Kernel, Sequence[View]], None]] = []
        self.meanwhile: dict[Callable[[], None], int | None] = {}
        self.programs: WeakSet[Program] = WeakSet()
        self._uploads: list[Command] = []  # sent before what is pending
        self._pending: list[Command] = []
        self._turn = threading.RLock()
        self._is_recorded = False

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
        with self.lock:
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
        with self.lock:
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
            if len(self._uploads) >= self._backend.pending_limit:
                self.flush()

    def read(self, view: View) -> memoryview:
        """Wait for the work enqueued so far and copy bytes to the host.

        Raises:
            UnsupportedError: a program is being recorded, so there is no value yet.
        """
        with self.lock:
            self._refuse_while_recording()
            self.flush()
            self.stats.bytes_down += view.nbytes
        if view.nbytes == 0:
            return memoryview(bytearray())
        self._use_the_time()
        handle = view.buffer.handle
        with self.lock:
            data: memoryview = self._with_room(
                view.nbytes, lambda: self._backend.read(handle, view.offset, view.nbytes)
            )
        return data

    def read_async(self, view: View) -> Awaitable[memoryview]:
        """The awaitable twin of `read`: the bytes as they are at the call, whatever is enqueued afterwards."""
        with self.lock:
            self._refuse_while_recording()
            self.flush()
            self.stats.bytes_down += view.nbytes
            if view.nbytes == 0:
                return _no_bytes()
            reading = self._backend.read_async(view.buffer.handle, view.offset, view.nbytes)
        self._use_the_time()
        return reading

    def _use_the_time(self) -> None:
        for call, thread in list(self.meanwhile.items()):
            if thread in (None, threading.get_ident()) and self.meanwhile.pop(call, None) is not None:
                call()

    def read_all(self, views: Mapping[_Key, View]) -> dict[_Key, memoryview]:
        """The bytes of several views."""
        return {key: self.read(view) for key, view in views.items()}

    def read_all_async(self, views: Mapping[_Key, View]) -> Awaitable[dict[_Key, memoryview]]:
        """The awaitable twin of `read_all`: the bytes as they are at the call."""
        return gathered({key: self.read_async(view) for key, view in views.items()})

    def _refuse_while_recording(self) -> None:
        if self._held is not None:
            raise UnsupportedError("an optimizer's step is enqueued as a whole; nothing can be read within it")
        if self.recording is not None:
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
            from .packed_kernels import packed_on  # which only 16-bit elements need

            kernel = packed_on(self, kernel, views)
        limit = self.capabilities.max_workgroups
        if not isinstance(workgroups, int):
            grid = (*workgroups, 1)
        else:
            grid = (workgroups, 1, 1) if workgroups <= limit else self.capabilities.grid(workgroups)
        if min(grid) == 0:
            return
        if max(grid) > limit:
            self._refuse(kernel, max(grid), limit, "workgroups along one axis")
        most = self.capabilities.max_storage_buffers
        if len(views) > most:
            self._refuse(kernel, len(views), most, "buffers")
        most = self.capabilities.max_binding_bytes
        for view in views:
            if view.nbytes > most:
                self._refuse(kernel, view.nbytes, most, "bytes of one buffer")
            view.buffer.first_kernel = view.buffer.first_kernel or kernel.name
        for observe in self.observers:
            observe(kernel, views)
        self._enqueue(Launch(kernel, tuple(views), grid, tuple(parameters)))

    def _refuse(self, kernel: Kernel, needed: int, limit: int, unit: str) -> None:
        """Raise the error of a limit, unless what is recorded will not run."""
        recording = self.recording
        if recording is None or recording.runs:
            raise DeviceLimitError(kernel.name, needed, limit, self.name, unit)

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

    def _enqueue(self, launch: Recorded) -> None:
        program = recorded_here()
        if program is not None:
            if program.device is not self:
                raise self._not_recorded(program)
            program.add(launch)
            return
        with self.lock:
            if self._closed:
                self._check_open()
            if self.on_change is not None:
                self.on_change(launch)
            command = self._bound(launch)
            is_dispatch = isinstance(launch, Launch)
            self.stats.dispatches += is_dispatch
            self.stats.copies += not is_dispatch
            if self._held is not None:
                self._held.append(command)
                return
            self._pending.append(command)
            if len(self._pending) >= self._backend.pending_limit:
                self.flush()

    def _not_recorded(self, program: Program) -> UnsupportedError:
        program.elsewhere = self
        return UnsupportedError(
            f"a step compiled for '{program.device.name}' does work on '{self.name}', which a replay would leave out; "
            f"put everything on one device and name it: compile(step, device='{self.name}')"
        )

    def turn(self) -> threading.RLock:
        """A lock for what happens as a whole between threads, as a call of a compiled step or a step of an optimizer.

        It is taken before `lock`, and by a thread on one device at a time.

        Raises:
            UnsupportedError: a program is being recorded on another device.
        """
        program = recorded_here()
        if program is not None and program.device is not self:
            raise self._not_recorded(program)
        return self._turn

    def renew_locks(self) -> None:
        """In a child process, where the threads that held them are not."""
        self.lock, self._turn = threading.RLock(), threading.RLock()
        self._held = None
        self._is_recorded = self.recording is not None

    def _bound(self, launch: Recorded) -> Command:
        """Return the backend's command for a launch or a copy."""
        if isinstance(launch, Copy):
            source, target = launch.source, launch.target
            from_ = source.buffer.handle, source.offset, source.nbytes
            return self._backend.copy(from_, (target.buffer.handle, target.offset, target.nbytes))
        if self._backend.tuned is not None:
            launch = self._backend.tuned(launch)
        kernel, grid = launch.kernel, launch.grid
        views: list[BoundBuffer] = [(view.buffer.handle, view.offset, view.nbytes) for view in launch.views]
        block = kernel.pack(launch.parameters)
        return self._with_room(len(block), lambda: self._backend.bind(kernel, views, block, grid))

    def all_or_nothing(self, enqueue: Callable[[], None]) -> None:
        """Call what enqueues work; if it raises, nothing of that work is done. It may be called a second time.

        Nothing is read in it, and what it writes is there before all of its work.

        Raises:
            OutOfDeviceMemoryError: there is none, though all that was in the pool has been given back.
        """
        if self.recording is not None:
            enqueue()
            return
        with self.lock:
            self._all_or_nothing(enqueue)

    def _all_or_nothing(self, enqueue: Callable[[], None]) -> None:
        if self._held is not None:
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
                    requested = error.asked
                finally:
                    self._held = None
                self._try_last_resorts(requested)
            self._pending += held
            if len(self._pending) >= self._backend.pending_limit:
                self.flush()

    def flush(self) -> None:
        """Submit what was enqueued; does not wait for it."""
        with self.lock:
            if self._closed:
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
                        # The pool cannot be given back here: the commands name its buffers, and are tried again.
                        self._uploads, self._pending = uploads + self._uploads, pending + self._pending
                    raise self._no_memory(0, self._limit, str(error)) from None
            self.stats.submits += bool(pending)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far has run."""
        self.flush()
        self._use_the_time()
        with self.lock:
            self._backend.synchronize()

    async def synchronize_async(self) -> None:
        """The awaitable twin of `synchronize`."""
        self.flush()
        self._use_the_time()
        with self.lock:
            waiting = self._backend.synchronize_async()
        await waiting

    # Programs.

    @staticmethod
    def recorder() -> Device | None:
        """The device that this thread or task records a program on, if it does."""
        program = recorded_here()
        return program.device if program is not None else None

    @contextmanager
    def record(self, *, fuses: bool = True, runs: bool = True) -> Iterator[Program]:
        """Record the work that this thread or task enqueues in the block into a program instead of running it.

        Other threads may use the device meanwhile, but for what takes a `turn`.

        Args:
            fuses: launches are fused where that computes the same with less.
            runs: the program is to be replayed. Otherwise limits of kernels are not checked, and nothing is bound.

        Raises:
            UnsupportedError: a program is being recorded already.
        """
        if recorded_here() is not None:
            raise UnsupportedError("a compiled step cannot be recorded inside another one")
        with self._turn:
            if self._is_recorded:  # by a task of this thread that waits in the middle of its step
                raise UnsupportedError(f"another task is recording a compiled step on '{self.name}'")
            program = Program(self, fuses=fuses, runs=runs)
            self._is_recorded = True
            try:
                with program.recording():
                    yield program
            finally:
                self._is_recorded = False
            if program.as_recorded and runs:
                program.finish(self._take_for_program)
                self.bind(program)
                self.programs.add(program)

    def bind(self, program: Program) -> None:
        """Bind the launches of a program, perhaps again: to the kernels that have been tuned since."""
        with self.lock:
            if self._backend.tuned is None:
                for launch in program.launches:
                    if isinstance(launch, Launch):
                        self._backend.expect(launch.kernel)
            program.recorded = self._backend.record([self._bound(launch) for launch in program.launches])

    def replay(self, program: Program) -> None:
        """Enqueue a recorded program. What is enqueued next, until the next `flush`, shares its submit.

        Raises:
            StaleProgramError: a buffer that it bound has moved.
        """
        with self.lock:
            if self._closed:
                self._check_open()
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
        with self.lock:
            self._closed = True
            self._uploads.clear()
            self._pending.clear()
            self._pool.drain()
            self._backend.close()

    def __copy__(self) -> Device:
        """Itself: there is one of each."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Device:
        """Itself."""
        return self

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            f"the device '{self.name}' cannot be pickled: pickle its name, and open it where that is loaded"
        )

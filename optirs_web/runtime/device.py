"""A device as the library sees it: bytes in and out, its memory, work in order, recording, counts."""

from __future__ import annotations

import gc
import operator
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from ..errors import DeviceLimitError, DeviceLostError, OutOfDeviceMemoryError, ShapeError, UnsupportedError
from .backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Capabilities, Command, Stack
from .buffer import Buffer, View
from .interrupts import Uninterrupted
from .launches import Copy, Launch, Recorded
from .pool import Pool, size_class
from .program import Program, recorded_here
from .stats import MemoryStats, Stats

if TYPE_CHECKING:
    from array import array

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


def _limit_from_environment() -> int | None:
    text = os.environ.get("OPTIRS_MEMORY_LIMIT", "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"OPTIRS_MEMORY_LIMIT must be a number of bytes, not '{text}'")
    return int(text) if text else None


class RecordedStep(Protocol):
    """A compiled step."""

    def forget(self, device: Any) -> None:
        """Drop the recordings on a device, which frees their memory unless they run now."""


class Device:
    """One opened device. Make it with `optirs_web.device(name)`.

    Threads may share it, and take turns: an operation, a step of an optimizer and a call of a compiled step happen as
    a whole. What each thread enqueues runs in its order. Threads with a device each do not wait for one another.

    Attributes:
        name: "cpu", "vulkan", or "vulkan:1" for the second of a kind.
        info: what the driver says of it.
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
        self._backend = backend
        self.capabilities: Capabilities = backend.capabilities
        self.info: AdapterInfo = backend.info
        self.name = backend.info.label
        self.lock = threading.RLock()
        self.returned: deque[tuple[Callable[[Any, int], None], Any, int]] = deque()
        self._kept: list[tuple[Callable[[Any, int], None], Any, int]] = []  # returned while commands were held
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

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceLostError(f"device '{self.name}' was closed with everything on it")

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

    # Memory.

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
        return Buffer(self, handle, nbytes, lambda handle, _: self.reclaim(handle, rounded))

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

    def allocate_zeroed(self, nbytes: int, stacks: Sequence[Stack] = ()) -> Buffer:
        """Exactly `nbytes` of zeroed memory of its own, outside the pool and outside any recording.

        For what lives as long as a model: arenas, optimizer state, constants of a program.

        Args:
            nbytes: its size.
            stacks: the tensors of float32 that it is for: what lies between and after them is not written.
        """
        with self.lock:
            self._check_open()
            self._take_back()
            handle = self._new_handle(nbytes, nbytes, stacks)
            self._hold(handle, nbytes, nbytes, "allocate")
        return Buffer(self, handle, nbytes, self._free)

    def constant(self, content: array[Any]) -> Buffer:
        """Memory of its own with this content, which is never written again."""
        content_bytes = memoryview(content).cast("B")
        buffer = self.allocate_zeroed(content_bytes.nbytes)
        self.write(View(buffer, 0, content_bytes.nbytes), content_bytes)
        self._backend.freeze(buffer.handle, content_bytes.tobytes())
        return buffer

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

    def _new_handle(self, nbytes: int, requested: int, stacks: Sequence[Stack] = ()) -> Any:
        if nbytes > self.capabilities.max_buffer_bytes:
            raise self._no_memory(requested, self.capabilities.max_buffer_bytes)
        handle = self._with_room(requested, lambda: self._allocate_within_limit(nbytes, stacks))
        self._allocated += 1
        return handle

    def _allocate_within_limit(self, nbytes: int, stacks: Sequence[Stack]) -> Any:
        if self._limit is not None and self._live_bytes + self._pool.nbytes + nbytes > self._limit:
            raise AllocationFailed
        return self._backend.allocate_stacks(nbytes, stacks) if stacks else self._backend.allocate(nbytes)

    def _with_room(self, requested: int, call: Callable[[], Any]) -> Any:
        """Call what needs memory; where there is none, make room and call again."""
        try:
            return call()
        except AllocationFailed:
            pass
        return self._after_making_room(requested, call)

    def _after_making_room(self, requested: int, call: Callable[[], Any]) -> Any:
        """Give the pool back and call what found no memory; then try the last resorts and call again."""
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
        if self._held is not None:  # commands that are not on their way yet may name it
            self._kept.append((self._free, handle, nbytes))
            return
        self._drop(handle, nbytes)
        if not self.lost:
            self.flush()
            self._backend.free(handle)
        self._tell("free", handle, nbytes)

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
        try:
            return self._backend.bind(kernel, views, block, grid)
        except AllocationFailed:
            pass
        return self._after_making_room(len(block), lambda: self._backend.bind(kernel, views, block, grid))

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
                    self.returned += self._kept
                    self._kept.clear()
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

    def replay(self, program: Program, before: Sequence[Copy] = (), after: Sequence[Copy] = ()) -> None:
        """Enqueue a recorded program. What is enqueued next, until the next `flush`, shares its submit.

        Args:
            program: what is replayed.
            before: copies between buffers that are enqueued before it.
            after: those that are enqueued after it.

        Raises:
            StaleProgramError: a buffer that it bound has moved; nothing was enqueued.
        """
        with self.lock:
            if self._closed:
                self._check_open()
            program.prepare()
            bound = [[self._bound(copy) for copy in copies if copy.source.nbytes] for copies in (before, after)]
            if self.on_change is not None:
                changes: list[Recorded | Program] = [*before, program, *after]
                for change in changes:
                    self.on_change(change)
            self._pending += bound[0]
            if self.memory_observers:
                self._tell("replay", None, program.nbytes)
            if program.recorded is not None:
                self._pending.append(program.recorded)
            self._pending += bound[1]
            self.stats.dispatches += program.dispatches
            self.stats.copies += program.copies + len(bound[0]) + len(bound[1])
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

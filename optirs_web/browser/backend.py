"""A backend over ``navigator.gpu``: a command is a tuple of numbers for `transport.js`; one call submits many."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyodide.ffi import create_once_callable

from ..errors import DeviceLostError, OptirsError, OutOfDeviceMemoryError, ShaderError
from ..runtime.backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Capabilities, Command
from ..runtime.device import Device
from ..runtime.stats import Stats
from ..runtime.timing import GPU_TIMESTAMPS, WALL_TIME, Timed, Work
from .waiting import can_wait, need_waiting, wait

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel

__all__ = ["BrowserBackend"]

_WRITE, _COPY, _RUN, _REPLAY = range(4)  # as in transport.js

_BIND_GROUPS_KEPT = 4096
_UNIFORMS_KEPT = 4096
_RECENT = 32
"""Submits that are kept until the next wait for the device, to find the operation that failed."""
_CHECKED_ALLOCATION = 1 << 24
"""Bytes from which an allocation waits until the browser confirms it, where it can wait."""
_FIRST_BATCH, _LARGEST_BATCH = 8, 128
"""Commands between two waits. Two such batches are queued at most, so that a program that is stopped stops soon."""
_SHORT_WAIT, _LONG_WAIT = 0.02, 0.1
"""Seconds of a wait after which batches become larger, and smaller."""


class _Made:
    """An object of JavaScript, known by its number, which exists as long as this one."""

    __slots__ = ("_dropped", "number")

    def __init__(self, number: int, dropped: deque[int]) -> None:
        self.number = number
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped.append(self.number)  # JavaScript frees it with the next submit


class _Command(tuple[Any, ...]):
    """The numbers of a command. `holds` keeps its objects alive; `key` is a kernel's bind group, for a profiler."""

    holds: Any
    key: Any = None


def _command(words: tuple[Any, ...], holds: Any = None) -> _Command:
    command = _Command(words)
    command.holds = holds
    return command


def _work_of(command: _Command) -> Work | None:
    if command.key is not None:
        kernel, *buffers, parameters = command.key
        return Work(kernel, tuple(size for _, _, size in buffers), parameters, command[3:])
    return Work(None, command[5:]) if command[0] == _COPY else None


class BrowserBackend(Backend):
    """One GPUDevice. Bind groups, pipelines and parameter blocks are made once and cached."""

    def __init__(self, info: AdapterInfo, capabilities: Capabilities, transport: Any) -> None:
        """Own an opened device."""
        self.info = info
        self.capabilities = capabilities
        self.stats = Stats()
        self._transport = transport
        self._submit = transport.submit
        self._loss = ""
        transport.lost(create_once_callable(self._note_loss))
        self._recent: deque[Sequence[Command]] = deque(maxlen=_RECENT)
        self.pending_limit, self._in_batch = _FIRST_BATCH, 0
        self._dropped: deque[int] = deque()
        self._sizes: dict[int, int] = {}
        self._pipelines: dict[Kernel, int] = {}
        self._groups: OrderedDict[Any, _Made] = OrderedDict()
        self._keys_of: defaultdict[int, set[Any]] = defaultdict(set)
        self._uniforms: OrderedDict[bytes, _Made] = OrderedDict()
        self.clock = GPU_TIMESTAMPS if "timestamp-query" in capabilities.features else WALL_TIME

    @property
    def can_wait(self) -> bool:  # type: ignore[override]
        return can_wait()

    # Errors.

    def _note_loss(self, why: str) -> None:
        """Record that the device was lost; the browser calls this."""
        if not self.lost:
            self.lost = True
            self._loss = why

    def _check(self, status: int) -> None:
        """Raise the first error that the browser has reported since the last call, if any."""
        if status == 0:
            return
        if self.lost:
            raise DeviceLostError(
                f"device '{self.info.name}' was lost with everything on it ({self._loss}). "
                "optirs_web.recover() reopens it and continues from the last snapshot"
            )
        failures = json.loads(self._transport.failures())
        if not failures:
            return
        recent = list(self._recent)
        self._recent.clear()
        failure = failures[0]
        message = failure["message"]
        if len(failures) > 1:
            message += f" (and {len(failures) - 1} failures after it)"
        if failure["kind"] == "memory":  # of an allocation that was not waited for: its buffer is of no use
            requested, in_use = int(failure["name"] or 0), sum(self._sizes.values())
            raise OutOfDeviceMemoryError(requested, in_use, self.capabilities.max_buffer_bytes, self.info.name)
        if failure["kind"] == "shader":
            raise ShaderError(f"refused by the browser's compiler: {message}", file=failure["name"], line=1, column=1)
        raise self._blame(recent, message)

    def _blame(self, recent: list[Sequence[Command]], message: str) -> OptirsError:
        """Return the error that names the operation that failed."""
        from ..runtime.failures import blame  # which few pages need

        return blame(
            self,
            recent,
            message,
            lambda command: command.key and (command.key[0], command.key[1:-1]),
            self._sizes.__contains__,
        )

    # Memory.

    def allocate(self, nbytes: int) -> int:
        self._check(self._transport.status())
        handle: int = self._transport.allocate(nbytes)
        self._sizes[handle] = nbytes
        # While Python waits, other tasks run: their commands must not get into a recording.
        if nbytes >= _CHECKED_ALLOCATION and can_wait() and Device.recorder() is None:
            why = wait(self._transport.refused(handle))
            if why:
                self.free(handle)
                raise AllocationFailed(why)
        return handle

    def free(self, handle: int) -> None:
        for key in self._keys_of.pop(handle, ()):
            self._groups.pop(key, None)
            for other, _, _ in key[1:-1]:
                if other in self._keys_of:
                    self._keys_of[other].discard(key)
        del self._sizes[handle]
        self._transport.destroy(handle)

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self._check(self._transport.write(handle, offset, data))

    def upload(self, handle: int, offset: int, data: bytes) -> Command:
        return _command((_WRITE, handle, offset, data))

    def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        self._check(self._transport.status())
        operation, twin = (
            "reading a value",
            "its awaitable twin: numpy_async, tolist_async, item_async, read_async, ...",
        )
        need_waiting(operation, twin)
        return self._take(wait(self._transport.read(handle, offset, nbytes)), nbytes)

    def read_async(self, handle: int, offset: int, nbytes: int) -> Awaitable[memoryview]:
        self._check(self._transport.status())
        return self._copied(self._transport.read(handle, offset, nbytes), nbytes)

    async def _copied(self, staging: Any, nbytes: int) -> memoryview:
        return self._take(await staging, nbytes)

    def _take(self, staging: int, nbytes: int) -> memoryview:
        if not staging:
            self._check(1)
            raise OptirsError(f"device '{self.info.name}' did not return {nbytes:,} bytes")
        content = bytearray(nbytes)
        self._check(self._transport.take(staging, content))
        self._recent.clear()
        self._in_batch = 0
        return memoryview(content)

    # Commands.

    def expect(self, kernel: Kernel) -> None:
        if kernel not in self._pipelines:
            self._compile(kernel)

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        pipeline = self._pipelines.get(kernel) or self._compile(kernel)
        key = (kernel, *buffers, parameters)
        group = self._groups.get(key)
        if group is None:
            group = self._make_group(key, pipeline, buffers, parameters)
        else:
            self._groups.move_to_end(key)
        command = _command((_RUN, pipeline, group.number, *grid), group)
        command.key = key
        return command

    def _compile(self, kernel: Kernel) -> int:
        types = ["storage" if binding.writes else "read-only-storage" for binding in kernel.bindings]
        if kernel.parameters:
            types.append("uniform")
        code = kernel.wgsl_for("tint", self.info.software)
        pipeline: int = self._transport.compile(kernel.name, code, *types)
        self.stats.pipelines += 1
        self._pipelines[kernel] = pipeline
        return pipeline

    def _make_group(self, key: Any, pipeline: int, buffers: Sequence[BoundBuffer], parameters: bytes) -> _Made:
        words = list(chain.from_iterable(buffers))
        if parameters:
            words += (self._uniform(parameters), 0, len(parameters))
        group = _Made(self._transport.group(pipeline, *words), self._dropped)
        self.stats.bind_groups += 1
        self._groups[key] = group
        for handle, _, _ in buffers:
            self._keys_of[handle].add(key)
        if len(self._groups) > _BIND_GROUPS_KEPT:
            oldest, _ = self._groups.popitem(last=False)
            for handle, _, _ in oldest[1:-1]:
                self._keys_of[handle].discard(oldest)
        return group

    def _uniform(self, parameters: bytes) -> int:
        """Return the number of a buffer of these parameters; equal ones are shared. Bind groups keep it alive."""
        block = self._uniforms.get(parameters)
        if block is None:
            block = self._uniforms[parameters] = _Made(self._transport.uniform(parameters), self._dropped)
            self.stats.bytes_up += len(parameters)
            if len(self._uniforms) > _UNIFORMS_KEPT:
                self._uniforms.popitem(last=False)
        return block.number

    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        return _command((_COPY, source[0], source[1], target[0], target[1], source[2]))

    def record(self, commands: Sequence[Command]) -> Command:
        program = _Made(self._transport.record(*chain.from_iterable(commands)), self._dropped)
        return _command((_REPLAY, program.number), (program, tuple(commands)))

    def submit(self, commands: Sequence[Command]) -> None:
        self._check(self._submit(*chain.from_iterable(commands)))
        self._recent.append(commands)
        self._forget_dropped()
        self._in_batch += len(commands)
        # While Python waits, other tasks run: their commands must not get into a recording.
        if self._in_batch >= self.pending_limit and can_wait() and Device.recorder() is None:
            self._keep_pace()

    def _keep_pace(self) -> None:
        """Wait until all but the last batch of commands is done, and size the next one by how long that took.

        Otherwise a loop that only submits queues minutes of work ahead of a GPU that is slower than Python.
        """
        start = perf_counter()
        wait(self._transport.pace())
        waited = perf_counter() - start
        self._in_batch = 0
        if waited > _LONG_WAIT:
            self.pending_limit = max(1, self.pending_limit // 2)
        elif waited < _SHORT_WAIT:
            self.pending_limit = min(2 * self.pending_limit, _LARGEST_BATCH)

    def _forget_dropped(self) -> None:
        if self._dropped:
            dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
            self._transport.forget(*dropped)

    def synchronize(self) -> None:
        need_waiting("synchronize()", "device.synchronize_async()")
        wait(self._transport.done())
        self._check(self._transport.status())

    async def synchronize_async(self) -> None:
        await self._transport.done()
        self._check(self._transport.status())

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        commands = command.holds[1] if command[0] == _REPLAY else (command,)
        return [(command, _work_of(command)) for command in commands]

    def submit_timed(self, commands: Sequence[Command]) -> Any:
        if self.clock == WALL_TIME and can_wait():
            return super().submit_timed(commands)
        parts = chain.from_iterable(map(self.parts, commands))
        works = tuple(work for _, work in parts if work is not None)
        start = perf_counter()
        if self.clock == WALL_TIME:
            self.submit(commands)
            return works, start, self._transport.elapsed()
        self._check(self._transport.status())
        arriving = self._transport.submitTimed(*chain.from_iterable(commands))
        self._forget_dropped()
        return works, start, arriving

    def times(self, ticket: Any) -> list[Timed]:
        if isinstance(ticket, list):
            return super().times(ticket)
        need_waiting("asking when kernels ran", "backend.times_async(ticket)")
        works, start, arriving = ticket
        return self._times(works, start, wait(arriving))

    async def times_async(self, ticket: Any) -> list[Timed]:
        if isinstance(ticket, list):
            return super().times(ticket)
        works, start, arriving = ticket
        return self._times(works, start, await arriving)

    def _times(self, works: tuple[Work, ...], start: float, measured: Any) -> list[Timed]:
        if self.clock == WALL_TIME:
            return [Timed(works, start, start + measured / 1000)]
        if not measured:
            self._check(1)
            raise OptirsError(f"device '{self.info.name}' did not return the times of kernels")
        seconds = [nanoseconds * 1e-9 for nanoseconds in json.loads(measured)]
        return [Timed((work,), *pair) for work, *pair in zip(works, seconds[::2], seconds[1::2], strict=True)]

    def close(self) -> None:
        self._groups.clear()
        self._keys_of.clear()
        self._uniforms.clear()
        self._pipelines.clear()
        if not self.lost:
            self._note_loss("it was closed")
            self._transport.close()

"""The processor as a device: memory is NumPy arrays, and a command is a call with its arrays bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...runtime.backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Capabilities, Command
from ...runtime.stats import Stats
from ...runtime.timing import HOST_CLOCK, Timed, Work
from ..steps import Recorded, Step, flattened, work_of
from .workspace import Workspace

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["CpuBackend", "Memory"]

_UNLIMITED = 1 << 46
_Bind = Callable[[Any, Sequence[np.ndarray[Any, Any]], bytes], Callable[[], None]]
"""Returns the call of a kernel over bytes with these parameters."""

_LINE = 64  # bytes of a line of the processor's cache, at which arrays begin


class Memory:
    """A handle: an array that can be dropped while commands that no longer run still name it."""

    __slots__ = ("bytes",)

    def __init__(self, content: np.ndarray[Any, Any]) -> None:
        """Hold the bytes."""
        self.bytes = content


class CpuBackend(Backend):
    """Memory is NumPy arrays; a command is a call with its arrays bound."""

    clock = HOST_CLOCK

    def __init__(self, info: AdapterInfo) -> None:
        """Prepare a device over the host's memory."""
        self.info = info
        self.stats = Stats()
        self.capabilities = Capabilities(
            max_buffer_bytes=_UNLIMITED,
            max_binding_bytes=_UNLIMITED,
            max_storage_buffers=_UNLIMITED,
            offset_alignment=4,
            max_workgroups=_UNLIMITED,
            features=frozenset(),
            parts="free",
            blocked_products=True,
        )
        self._workspace = Workspace()
        self._bindings: dict[Kernel, _Bind] = {}
        # OpenBLAS ends the process where it finds no memory for its buffer, which it takes at the first such product.
        np.ones((8, 1024), np.float32) @ np.ones(1024, np.float32)

    def allocate(self, nbytes: int) -> Memory:
        try:
            whole = np.zeros(nbytes + _LINE, np.uint8)
        except MemoryError as error:
            raise AllocationFailed(str(error)) from error
        start = -whole.ctypes.data % _LINE
        return Memory(whole[start : start + nbytes])

    def free(self, handle: Memory) -> None:
        handle.bytes = np.zeros(0, np.uint8)

    def write(self, handle: Memory, offset: int, data: memoryview) -> None:
        handle.bytes[offset : offset + data.nbytes] = np.frombuffer(data.cast("B"), np.uint8)

    def read(self, handle: Memory, offset: int, nbytes: int) -> memoryview:
        return handle.bytes[offset : offset + nbytes].copy().data

    def read_async(self, handle: Memory, offset: int, nbytes: int) -> Awaitable[memoryview]:
        content = self.read(handle, offset, nbytes)

        async def done() -> memoryview:
            return content

        return done()

    def host_bytes(self, handle: Memory) -> np.ndarray[Any, Any]:
        return handle.bytes

    def upload(self, handle: Memory, offset: int, data: bytes) -> Command:
        return Step(lambda: self.write(handle, offset, memoryview(data)), target=handle)

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        arrays = [handle.bytes[offset : offset + size] for handle, offset, size in buffers]
        bind = self._bindings.get(kernel)
        if bind is None:
            bind = self._bindings[kernel] = self._binding_of(kernel)
            self.stats.pipelines += 1
        self.stats.bind_groups += 1
        return Step(bind(kernel, arrays, parameters), kernel, buffers, parameters, grid)

    def _binding_of(self, kernel: Kernel) -> _Bind:
        from .products import BlockedProductKernel, bind_product  # see `call_of`

        if isinstance(kernel, BlockedProductKernel):
            return partial(bind_product, bind=self.call_of, workspace=self._workspace)
        return self.call_of

    def call_of(self, kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]], parameters: bytes) -> Callable[[], None]:
        """Return a call that runs the kernel over these bytes."""
        from .numpy.kernels import bind_kernel  # the printer and parser of WGSL: 50 ms that opening a device saves

        return bind_kernel(kernel, arrays, parameters)

    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        read = source[0].bytes[source[1] : source[1] + source[2]]
        write = target[0].bytes[target[1] : target[1] + target[2]]
        return Step(partial(np.copyto, write, read), buffers=(source,), target=target[0])

    def record(self, commands: Sequence[Command]) -> Command:
        return Recorded(tuple(commands))

    def submit(self, commands: Sequence[Command]) -> None:
        with np.errstate(all="ignore"):
            try:
                for step in flattened(commands):
                    step.run()
            except Exception as error:
                self._continue_after(commands, step, error)

    def _continue_after(self, commands: Sequence[Command], failed: Step, error: Exception) -> NoReturn:
        """After a step of the commands has failed: run the steps that do not need it, and raise the error."""
        from ..failed_steps import continue_after  # a page loads it when a step fails, which delays no start

        continue_after(self, commands, list(flattened(commands)), failed, error)

    def synchronize(self) -> None:
        """Return at once: `submit` has run all commands to their end."""

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        return [(step, work_of(step)) for step in flattened((command,))]

    def submit_timed(self, commands: Sequence[Command]) -> list[Timed]:
        timed = []
        with np.errstate(all="ignore"):
            try:
                for step in flattened(commands):
                    work = work_of(step)
                    start = perf_counter()
                    step.run()
                    end = perf_counter()
                    if work is not None:
                        timed.append(Timed((work,), start, end))
            except Exception as error:
                self._continue_after(commands, step, error)
        return timed

    def close(self) -> None:
        self._bindings.clear()

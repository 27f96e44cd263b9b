"""One GPU of NVIDIA: memory, kernels and recordings over a stream of its own. `cuda` says which there are.

Replays are CUDA graphs. Work that fails while it runs makes CUDA give up the device for the whole process, and tells of
it in some later call; with CUDA_LAUNCH_BLOCKING=1 in the environment the driver waits for each kernel, and nothing is
replayed as a graph, so that the error names the operation.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import DeviceNotAvailableError, OptirsError
from ...runtime.backend import AdapterInfo, BoundBuffer, Capabilities, Command
from ...runtime.matmul_precision import float32_matmul_precision
from ...runtime.products import tile_class
from ...runtime.subgroups import reduces_by_subgroups
from ...runtime.timing import Timed
from ..c_device import CBackend
from ..steps import Step, flattened, work_of
from . import driver
from .clock import Clock
from .context import Context
from .driver import CudaError
from .graphs import Graph, Replayed
from .memory import Memory
from .products import REPLACED, Products, library, replaces
from .programs import Arguments, Program, Programs
from .sharing import Sharing
from .transfers import Later, Transfers

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["CudaBackend"]

# A kernel finds its elements by numbers of 32 bits, and a word may hold two of them.
_MOST_BOUND = 1 << 32
# Along the first axis a grid has more, but not along the second.
_MOST_WORKGROUPS = 65535
# Of the 4 KiB that a kernel's arguments take at most, the bytes for its uniform block, and for each buffer.
_ARGUMENT_BYTES = 4096
_PARAMETER_BYTES = 512
_BUFFER_BYTES = 16

# After these every call of the process on the device fails, for CUDA's `CUresult` says of each: "the process must be
# terminated and relaunched"; or the device has gone.
_LOST = frozenset(
    (4, 46, 201, 214, 220, 226, 400, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 809, 810, 911, 912, 999)
)

_SUBMITS = 256  # the latest submits, whose operations a message names
_NAMES = 8  # of operations, in a message


class CudaBackend(CBackend):
    """One GPU with a stream of its own in the context that all libraries of the process share."""

    failure = CudaError
    no_memory = frozenset((driver.OUT_OF_MEMORY,))
    fatal = _LOST

    def __init__(self, device: driver.Device, info: AdapterInfo) -> None:
        """Open the device."""
        super().__init__(info)
        self.capabilities = Capabilities(
            max_buffer_bytes=device.memory,
            max_binding_bytes=min(device.memory, _MOST_BOUND),
            max_storage_buffers=(_ARGUMENT_BYTES - _PARAMETER_BYTES) // _BUFFER_BYTES,
            offset_alignment=16,
            max_workgroups=_MOST_WORKGROUPS,
            features=info.features,
            max_invocations=device.most_threads,
            max_workgroup_bytes=device.shared_bytes,
            replaced=frozenset() if library() is None else REPLACED,
            tiles=tile_class(info),
            subgroups=reduces_by_subgroups(info),
        )
        self.device = device
        self._memory: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
        self._submitted: deque[Sequence[Command]] = deque(maxlen=_SUBMITS)  # since it was last waited for
        self._graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self._retired: list[driver.Handle] = []  # those of graphs that nobody replays any more
        try:
            self._context = Context(device.ordinal)
            try:
                with self._context.current():
                    self._start_up()
            except (CudaError, OptirsError):
                self._context.release()
                raise
        except (CudaError, OptirsError) as error:
            is_lost = isinstance(error, CudaError) and error.code in _LOST
            again = "; after a failed kernel CUDA is unusable in this process: restart it" if is_lost else ""
            raise DeviceNotAvailableError(f"{info} refused to open: {error}{again}") from error
        self._timer = Clock(self.stream)
        self._transfers = Transfers(self.stream)
        self._programs = Programs(device.capability, self.stats)
        self.sharing = Sharing(self._context, self.stream, self.errors, self._hold)

    def _start_up(self) -> None:
        """Make a stream, and what makes products in its order."""
        self.stream = driver.create_stream()
        try:
            self._products = Products.open(self.device.capability, self.stream)
        except (CudaError, OptirsError):
            driver.destroy_stream(self.stream)
            raise

    def loss_by(self, error: CudaError, step: Step | None) -> str:
        return (
            f"device '{self.info.label}' was lost with everything on it: {self.info.description}. CUDA says: "
            f"{error}{self._suspects(step)}. This process can no longer use the device: restart it and load a "
            "checkpoint, or continue on another device from the last snapshot, as with optirs_web.recover('cpu')"
        )

    def _suspects(self, step: Step | None) -> str:
        """Return the names of the operations one of which has failed, as the end of a sentence."""
        failed = [step] if self._blocking and step is not None else []
        works = map(work_of, failed or (step for commands in self._submitted for step in flattened(commands)))
        names = list(dict.fromkeys("copy" if work.kernel is None else work.kernel.name for work in works if work))
        if len(names) < 2:
            return f", in the operation '{names[0]}'" if names else ""
        shown = ", ".join(f"'{name}'" for name in names[:_NAMES]) + (", ..." if len(names) > _NAMES else "")
        return f", in one of the operations {shown} (CUDA_LAUNCH_BLOCKING=1 in the environment tells which)"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Make the device current, and turn the driver's errors into ours."""
        with super().errors(), self._context.current():
            self.sharing.catch_up()
            yield

    def allocate(self, nbytes: int) -> Memory:
        with self.errors():
            if self.device.has_pools:
                address = driver.allocate(nbytes, self.stream)
            else:
                address = driver.allocate_now(nbytes)
            driver.clear(address, nbytes, self.stream)
        return self._hold(address)

    def _hold(self, address: int, owner: Callable[[], None] | None = None) -> Memory:
        """Return a handle of memory; `owner`, of borrowed memory, is called once it was freed and no work uses it."""
        memory = Memory(address, owner)
        self._memory.add(memory)
        return memory

    def free(self, handle: Memory) -> None:
        self.unbind(handle)
        for graph in list(handle.graphs):
            graph.break_up()
        address, handle.address = handle.address, None
        self._memory.discard(handle)
        if address is None:
            return
        if self.lost:
            handle.release()
            return
        with self.errors():
            if handle.owner is None:
                self._give_back(address)
            else:
                self.sharing.leave(handle.release)

    def _give_back(self, address: int) -> None:
        if self.device.has_pools:
            driver.free(address, self.stream)
        else:
            driver.free_now(address)

    def write(self, handle: Memory, offset: int, data: memoryview) -> None:
        with self.errors():
            self._transfers.send(handle.at(offset), data.cast("B"))

    def read(self, handle: Memory, offset: int, nbytes: int) -> memoryview:
        with self.errors():
            content = self._transfers.receive(handle.at(offset), nbytes)
            self._waited()
        return memoryview(content)

    def read_async(self, handle: Memory, offset: int, nbytes: int) -> Awaitable[memoryview]:
        with self.errors():
            return self._arrived(self._transfers.receive_later(handle.at(offset), nbytes))

    async def _arrived(self, later: Later) -> memoryview:
        with self.errors():
            return memoryview(later.content())

    def send(self, handle: Memory, offset: int, data: bytes) -> None:
        self._transfers.send(handle.at(offset), memoryview(data))

    def expect(self, kernel: Kernel) -> None:
        self.check()
        if not self._is_product(kernel):
            self._programs.expect(kernel)

    def _is_product(self, kernel: Kernel) -> bool:
        return self._products is not None and replaces(kernel)

    def choice(self, kernel: Kernel) -> str | None:
        return float32_matmul_precision() if self._is_product(kernel) else None

    def call_of(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Callable[[], None]:
        bound = [(handle.at(offset), size) for handle, offset, size in buffers]
        if self._products is not None and replaces(kernel):
            product = self._products.call(kernel, tuple(address for address, _ in bound), parameters, grid)
            if product is not None:
                return product
        with self.errors():
            program = self._programs.of(kernel)
        return partial(self._start, program, program.arguments(bound, parameters), grid)

    def _start(self, program: Program, arguments: Arguments, grid: tuple[int, int, int]) -> None:
        driver.launch(program.function, grid, program.interface.workgroup_size, arguments.address, self.stream)

    def transfer(self, source: BoundBuffer, target: BoundBuffer) -> None:
        (read, read_at, nbytes), (write, write_at, _) = source, target
        driver.copy(write.at(write_at), read.at(read_at), nbytes, self.stream)

    def record(self, commands: Sequence[Command]) -> Command:
        graph = Graph(self.stream, self._retired.append)
        self._graphs.add(graph)
        return Replayed.of(list(flattened(commands)), graph)

    def submit(self, commands: Sequence[Command]) -> None:
        self._submitted.append(commands)
        with self.errors():
            for command in commands:
                if self._blocking or not (isinstance(command, Replayed) and command.graph.launched(command.steps)):
                    self._run(commands, flattened((command,)))

    def _run(self, commands: Sequence[Command], steps: Iterator[Step]) -> None:
        """Enqueue steps, some of the commands, one by one."""
        for step in steps:
            try:
                step.run()
                if self._blocking:
                    driver.synchronize(self.stream)
            except (CudaError, OptirsError) as error:
                self._continue_after(commands, step, error)

    def synchronize(self) -> None:
        with self.errors():
            driver.synchronize(self.stream)
            self._waited()

    def _waited(self) -> None:
        """All that was submitted has run."""
        self._submitted.clear()
        self._transfers.waited()
        self.sharing.catch_up()
        while self._retired:
            driver.destroy_executable(self._retired.pop())

    def submit_timed(self, commands: Sequence[Command]) -> Any:
        self._submitted.append(commands)
        with self.errors():
            return self._timer.measured(
                (work_of(step), partial(self._run, commands, iter((step,)))) for step in flattened(commands)
            )

    def times(self, ticket: Any) -> list[Timed]:
        self.synchronize()
        with self.errors():
            return self._timer.times(ticket)

    def close(self) -> None:
        if not self.lost:
            with suppress(CudaError), self._context.current():
                driver.synchronize(self.stream)
                self._waited()
                self._close()
            self.lose(f"device '{self.info.name}' was closed")
            if not self.sharing.kept:
                self._context.release()
        self._bound.clear()
        self._submitted.clear()

    def _close(self) -> None:
        """Give back what others who share the context would otherwise lack."""
        for memory in list(self._memory):
            address, memory.address = memory.address, None
            if memory.owner is not None:
                memory.release()
            elif address is not None and memory.lent:
                self.sharing.kept[memory] = address
            elif address is not None:
                self._give_back(address)
        for graph in list(self._graphs):
            graph.close()
        self._timer.close()
        self._transfers.close()
        self._programs.close()
        if self._products is not None:
            self._products.close()
        driver.destroy_stream(self.stream)

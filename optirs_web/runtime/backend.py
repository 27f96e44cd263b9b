"""The contract between the runtime and one kind of device: all that a new backend writes.

A backend is a connector to hardware. It allocates memory, moves bytes, compiles kernels and runs
lists of commands in order. It knows nothing of tensors, gradients or optimizers, and keeps no pool:
`Device` does that, once, for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import OptirsError
from .stats import Stats
from .timing import WALL_TIME, Timed, Work

if TYPE_CHECKING:
    from .kernels import Kernel
    from .launches import Launch

__all__ = [
    "ANY_ITERATIONS",
    "AdapterInfo",
    "AllocationFailed",
    "Backend",
    "BoundBuffer",
    "Capabilities",
    "Command",
    "MatrixShape",
    "Stack",
    "Ticket",
]

Handle = Any
"""A backend's own name for memory. Hashable, compared by identity."""

Command = Any
"""Dispatches, copies or uploads with their buffers bound, ready to be submitted."""

BoundBuffer = tuple[Handle, int, int]
"""Memory as a kernel sees it: handle, offset in bytes, size in bytes."""

Ticket = Any
"""What `submit_timed` gives for `times`, once, to ask for what it measured."""

ANY_ITERATIONS = 2**32 - 1
"""`Capabilities.max_iterations` of a device whose loops have no bound."""


class AllocationFailed(Exception):
    """The device refused memory. Not shown to users: `Device` trims its pool, retries, then says why.

    Attributes:
        operation: what it was for, where that was submitted and is not to be submitted again.
    """

    def __init__(self, message: str = "", operation: str | None = None) -> None:
        """With the device's words."""
        self.operation = operation
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """One device that could be opened, or the reason why none can.

    A backend fills in what its driver tells; `optirs_web.devices` completes it natively.

    Attributes:
        name: "cpu", "cuda", "vulkan", "metal", "dx12", "gl", "opencl", "xla" or "webgpu".
        index: which one of that name, from 0.
        description: what the driver calls it.
        software: it computes on the processor, pretending to be a GPU.
        available: it can be opened.
        reason: if not available, what was looked for and what to install; if "auto" avoids it, why.
        kind: "discrete", "integrated", "virtual", "software" or "cpu"; "" where the driver does not tell.
        memory: bytes that it has, which an integrated GPU shares with the processor; None where that is not known.
        features: names of optional features, in WebGPU's words.
        adapter: the same for all names of one piece of hardware; "" where that is not known. From a backend the
            vendor's and the device's PCI numbers, as "10de:2330".
        bus: PCI addresses from the root to the device, "pci0000:00/0000:00:01.0/0000:01:00.0": what begins alike
            shares that part of the way. "" where it is not known. From a backend the last address alone.
        host: the machine; "" where it is not known.
    """

    name: str
    index: int
    description: str
    software: bool = False
    available: bool = True
    reason: str = ""
    kind: str = ""
    memory: int | None = None
    features: frozenset[str] = frozenset()
    adapter: str = ""
    bus: str = ""
    host: str = ""

    @property
    def label(self) -> str:
        """The string that `optirs_web.device` takes for it: the name, with ``:index`` where it is not the first."""
        return self.name if self.index == 0 else f"{self.name}:{self.index}"

    def __str__(self) -> str:
        return f"{self.label}: {self.description or self.reason}"


class Stack(NamedTuple):
    """Tensors of one shape that follow one another in memory; or blocks, of tensors of any shapes.

    Attributes:
        first: the number of the first one's first word.
        tensors: how many.
        step: words from the beginning of one to that of the next.
        shape: of each, in words.
    """

    first: int
    tensors: int
    step: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Words of each tensor."""
        return math.prod(self.shape)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of all of them as one array."""
        return (self.tensors, *self.shape)

    @property
    def words(self) -> range:
        """The numbers of their words, and of those that follow each."""
        return range(self.first, self.first + self.tensors * self.step)

    def part(self, begin: int, end: int) -> Stack:
        """Return those from one number to another one."""
        return self._replace(first=self.first + begin * self.step, tensors=end - begin)

    def numbers(self, begin: int, end: int) -> range:
        """Return the numbers of the tensors that, with what follows them, share words with a part of the memory."""
        first = max(0, (begin - self.first) // self.step)
        return range(first, max(first, min(self.tensors, -((self.first - end) // self.step))))


class MatrixShape(NamedTuple):
    """A size of subgroup matrices: products of (rows, inner) and (inner, columns), with sums of f32.

    Attributes:
        element: of the factors, "f32" or "f16".
    """

    element: str
    rows: int
    columns: int
    inner: int


@dataclass(frozen=True, slots=True, eq=False)
class Capabilities:
    """The limits of a device, in bytes and counts, and the optional features that it has. Compared by identity.

    Attributes:
        max_buffer_bytes: the largest single allocation.
        max_binding_bytes: the most of a buffer that a kernel can see at once.
        max_storage_buffers: how many buffers a kernel can bind.
        offset_alignment: a view that a kernel is given begins at a multiple of this many bytes.
        max_workgroups: workgroups along one dimension of a dispatch.
        features: names of optional features, in WebGPU's words.
        max_invocations: of a workgroup; 0 where library calls take the place of kernels.
        max_workgroup_bytes: memory that the invocations of a workgroup share.
        replaced: cooperative kernels whose place a library's calls take: nothing is fused with them.
        quads: it computes on the processor, and invocations of a workgroup are numbered in their quads as
            `shaders/lib/quads.wgsl` needs it; see `products`.
        max_iterations: of all loops of an invocation together, after which the driver leaves a loop without an error.
        tiles: the class of adapters that the tiles of products are chosen by, a key of `products.TILE_CLASSES`.
        subgroups: long rows are reduced by subgroups; see the module `subgroups`.
        matrices: the subgroup matrices that products use; none unless the user asks for them, see `subgroup_matrices`.
        largest_subgroup: invocations of the largest subgroups; 0 if `matrices` is empty.
        parts: how compiled steps use parts of a buffer: "free"; "apart" where no command may read one part and write
            another, as in WebGPU; "none" where what writes a part replaces the buffer, as in XLA.
        stacks: tensors of one shape that follow one another are an array, see `Backend.allocate_stacks`.
        blocked_products: map functions compute an operand of a product block by block; see the module of that name.
    """

    max_buffer_bytes: int
    max_binding_bytes: int
    max_storage_buffers: int
    offset_alignment: int
    max_workgroups: int
    features: frozenset[str]
    max_invocations: int = 0
    max_workgroup_bytes: int = 0
    replaced: frozenset[str] = frozenset()
    quads: bool = False
    max_iterations: int = ANY_ITERATIONS
    tiles: str = "software"
    subgroups: bool = False
    matrices: tuple[MatrixShape, ...] = ()
    largest_subgroup: int = 0
    parts: Literal["free", "apart", "none"] = "apart"
    stacks: bool = False
    blocked_products: bool = False

    def grid(self, workgroups: int) -> tuple[int, int, int]:
        """Return a grid of at least so many workgroups, in as few rows as one dimension allows."""
        rows = max(1, -(-workgroups // self.max_workgroups))
        return -(-workgroups // rows), rows, 1


class Backend(ABC):
    """One opened device. Methods are called by one thread at a time, in program order.

    Every method may raise `DeviceLostError`.
    """

    info: AdapterInfo
    capabilities: Capabilities
    lost: bool = False
    """The device has gone. True before a method raises DeviceLostError for the first time."""
    can_wait: bool = True
    """Calls that wait can do so here and now."""
    stats: Stats
    """The backend counts pipelines, bind groups and what it uploads by itself; `Device` counts the rest."""
    clock: str = WALL_TIME
    """What `submit_timed` measures by: one of the names in `timing`."""
    sharing: Any = None
    """How other libraries use its memory as it lies, and it theirs; see `native_backends/cuda/sharing.py`."""
    pending_limit: int = 128
    """Commands that a device collects before it submits them. Reading and waiting submit what is there."""
    tuned: Callable[[Launch], Launch] | None = None
    """Gives a launch the kernel and the grid that a search found best; see `tuner`."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Handle:
        """New memory, zeroed, of a multiple of 4 bytes. Raises AllocationFailed."""

    def allocate_stacks(self, nbytes: int, stacks: Sequence[Stack]) -> Handle:
        """As `allocate`, for tensors of float32: what is written between and after them is zero when a command ends.

        Called where `Capabilities.stacks` is set.
        """
        raise NotImplementedError

    @abstractmethod
    def free(self, handle: Handle) -> None:
        """Give memory back. No submitted command uses it, and none will."""

    @abstractmethod
    def write(self, handle: Handle, offset: int, data: memoryview) -> None:
        """Copy bytes to the device, after everything submitted so far. `data` is free on return."""

    def freeze(self, handle: Handle, content: bytes) -> None:  # noqa: B027
        """Note that memory holds these bytes as long as it lives: a backend may read them when it compiles."""

    @abstractmethod
    def read(self, handle: Handle, offset: int, nbytes: int) -> memoryview:
        """Wait for everything submitted so far, then copy bytes out. The caller owns the result."""

    @abstractmethod
    def read_async(self, handle: Handle, offset: int, nbytes: int) -> Awaitable[memoryview]:
        """The awaitable twin of `read`. The copy is enqueued at the call: later commands do not change it."""

    def host_bytes(self, handle: Handle) -> Any:
        """The memory itself as an array of bytes, where the host can address it; otherwise None."""
        return None

    @abstractmethod
    def upload(self, handle: Handle, offset: int, data: bytes) -> Command:
        """A command that writes a few bytes. Submitted once, before any command that runs or copies."""

    def expect(self, kernel: Kernel) -> None:  # noqa: B027
        """The kernel will be bound soon: a device whose compiler works beside Python can begin."""

    @abstractmethod
    def bind(
        self,
        kernel: Kernel,
        buffers: Sequence[BoundBuffer],
        parameters: bytes,
        grid: tuple[int, int, int],
    ) -> Command:
        """A command that runs the kernel (compiled at first use) over these buffers.

        `parameters` are the kernel's uniform block, laid out as `kernel.parameters` says.
        Raises ShaderError if the device's own compiler refuses the kernel.
        """

    @abstractmethod
    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        """A command that copies between two buffers of this device; sizes are equal."""

    @abstractmethod
    def record(self, commands: Sequence[Command]) -> Command:
        """One command that stands for all of these: what a backend can prepare once, each replay is spared."""

    @abstractmethod
    def submit(self, commands: Sequence[Command]) -> None:
        """Run the commands in order; each sees what those before it wrote. Need not wait."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything submitted has run."""

    async def synchronize_async(self) -> None:
        """The awaitable twin of `synchronize`."""
        self.synchronize()

    # For a profiler.

    @abstractmethod
    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        """Return the commands that a command consists of, in order, each with the work it does; None for an upload."""

    def submit_timed(self, commands: Sequence[Command]) -> Ticket:
        """As `submit`, and measure when each kernel and each copy runs."""
        timed: list[Timed] = []
        for command in commands:
            for part, work in self.parts(command):
                start = perf_counter()
                try:
                    self.submit((part,))
                    if work is not None:
                        self.synchronize()
                        timed.append(Timed((work,), start, perf_counter()))
                except AllocationFailed as error:
                    if not timed:
                        raise  # nothing was done, so the same commands may be submitted again
                    raise OptirsError(f"out of memory in a profiled submit: {error}") from error
        return timed

    def times(self, ticket: Ticket) -> list[Timed]:
        """Return the times in seconds that `submit_timed` measured, in order. Waits for them."""
        timed: list[Timed] = ticket
        return timed

    async def times_async(self, ticket: Ticket) -> list[Timed]:
        """The awaitable twin of `times`."""
        return self.times(ticket)

    @abstractmethod
    def close(self) -> None:
        """Release the device. Called once; nothing is called after it."""

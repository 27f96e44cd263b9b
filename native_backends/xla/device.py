"""XLA through JAX: its CPU, GPU or TPU, whichever JAX was installed for. Kernels are functions of arrays (`kernels`).

A handle holds an array of words, or one for each stack of an arena, which is replaced by each command that writes it:
the old one is donated, so that XLA writes in place. A recorded program is one function from the arrays of all its
handles to those that it writes; what is submitted without having been recorded is a function for each command.
Functions are compiled once for each kernel, the sizes of its buffers and those of its parameters that decide shapes;
offsets and other parameters are arguments. A rule's kernels are compiled for the content of their tables that are
never written, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...errors import DeviceLostError, LaunchError
from ...runtime.backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Capabilities, Command, Stack
from ...runtime.failures import consequence, launch_error
from ...runtime.matmul_precision import float32_matmul_precision
from ...runtime.stats import Stats
from ...runtime.timing import Work
from .ahead import CompiledStep, compile_step, stablehlo
from .commands import Copied, Run, Upload
from .export import Exported, export
from .memory import Memory, Piece, StackMemory
from .programs import Compiled, compile_program, compile_single, read_part, write_part

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["XlaBackend"]

_UNLIMITED = (1 << 31) - (1 << 16)
"""Bytes of a buffer: they are counted by i32. A multiple of what arenas are divided by, so that one is bound whole."""

_LEAST, _ROUNDED = 1 << 10, 1 << 16
"""Words of the smallest array; and up to how many an array has a power of two, so that few sizes are compiled for."""

_REWRITTEN = 1 << 20
"""Bytes of a buffer on the processor that is rather replaced than written in part, which would be compiled."""


class _Recorded:
    """A program, compiled when it is submitted first."""

    def __init__(self, commands: tuple[Run | Copied, ...]) -> None:
        self.commands = commands
        self.compiled: Compiled | None = None


class XlaBackend(Backend):
    """Memory is arrays of words; a command is a call of a compiled function."""

    def __init__(self, info: AdapterInfo, device: Any) -> None:
        """Take a device of JAX's."""
        self.info = info
        self.stats = Stats()
        self.device = device
        self.capabilities = Capabilities(
            max_buffer_bytes=_UNLIMITED,
            max_binding_bytes=_UNLIMITED,
            max_storage_buffers=_UNLIMITED,
            offset_alignment=4,
            max_workgroups=_UNLIMITED,
            features=frozenset(),
            parts="none",
            stacks=True,
        )
        self._single: dict[Any, Compiled] = {}
        self._written: dict[int, Memory | StackMemory] = {}  # since the last wait
        self._loss = ""

    def lose(self, why: str) -> None:
        """Every call from now on raises DeviceLostError with this message."""
        self.lost = True
        self._loss = why

    def _check(self) -> None:
        if self.lost:
            raise DeviceLostError(self._loss)

    def allocate(self, nbytes: int) -> Memory:
        self._check_size(nbytes)
        return Memory(_rounded(nbytes // 4))

    def allocate_stacks(self, nbytes: int, stacks: Sequence[Stack]) -> Memory:
        self._check_size(nbytes)
        return Memory(nbytes // 4, stacks)

    def _check_size(self, nbytes: int) -> None:
        self._check()
        if nbytes > _UNLIMITED:
            raise AllocationFailed(f"a buffer of {nbytes:,} bytes")

    def free(self, handle: Memory) -> None:
        for memory in (handle, *handle.leaves):
            self._written.pop(id(memory), None)
        handle.arrays = None

    def arrays_of(self, memory: Memory | StackMemory) -> Any:
        """The arrays of memory; zeros are made when they are needed."""
        whole = memory.whole
        if whole.arrays is None:
            whole.arrays = self._put(whole.zeros())
        return memory.arrays

    def _put(self, arrays: Any) -> Any:
        try:
            return jax.device_put(arrays, self.device)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            raise _failed(error) from error

    def write(self, handle: Memory, offset: int, data: memoryview) -> None:
        self._check()
        words = np.frombuffer(data.cast("B"), np.uint32).copy()
        for memory, pieces in _by_memory(handle.pieces(offset // 4, words.size)):
            is_whole = sum(piece.size for piece in pieces) == memory.count
            if is_whole or (self.device.platform == "cpu" and memory.count <= _REWRITTEN // 4):
                content = np.empty(memory.count, np.uint32) if is_whole else self._host_words(memory).copy()
                for piece in pieces:
                    content[piece.first :][: piece.size] = words[piece.position :][: piece.size]
                if handle.arrays is None and handle.stacks:
                    self.arrays_of(handle)  # of which one is replaced
                memory.arrays = self._put(content.view(memory.dtype).reshape(memory.shape))
                continue
            for piece in pieces:
                part = words[piece.position :][: piece.size]
                memory.arrays = write_part(self.arrays_of(memory), part, np.int32(piece.first))
            self._written[id(memory)] = memory

    def freeze(self, handle: Memory, content: bytes) -> None:
        handle.content = np.frombuffer(content, np.uint32)

    def read(self, handle: Memory, offset: int, nbytes: int) -> memoryview:
        self._check()
        content = np.zeros(nbytes // 4, np.uint32)
        for memory, pieces in _by_memory(handle.pieces(offset // 4, nbytes // 4)):
            is_read = self.device.platform == "cpu" or sum(piece.size for piece in pieces) == memory.count
            host = self._host_words(memory) if is_read else None
            for _, first, size, position in pieces:
                if host is None:
                    part = np.asarray(read_part(self.arrays_of(memory), np.int32(first), size))
                else:
                    part = host[first : first + size]
                content[position : position + size] = part
        return content.data.cast("B")

    def _host_words(self, memory: Memory | StackMemory) -> np.ndarray[Any, Any]:
        """Return the words of an array as a vector on the processor; the array may be donated later."""
        return np.asarray(self.arrays_of(memory)).view(np.uint32).reshape(-1)

    def read_async(self, handle: Memory, offset: int, nbytes: int) -> Awaitable[memoryview]:
        content = self.read(handle, offset, nbytes)

        async def done() -> memoryview:
            return content

        return done()

    def upload(self, handle: Memory, offset: int, data: bytes) -> Command:
        return Upload(handle, offset, data)

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        self.stats.bind_groups += 1
        return Run(kernel, tuple(buffers), parameters, grid, float32_matmul_precision())

    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        return Copied(source, target)

    def record(self, commands: Sequence[Command]) -> Command:
        return _Recorded(tuple(commands))

    def submit(self, commands: Sequence[Command]) -> None:
        self._check()
        for number, command in enumerate(commands):
            try:
                self._run(command)
            except Exception as error:
                if isinstance(error, AllocationFailed) and not number:
                    raise  # nothing was done, so the same commands may be submitted again
                failure = self._launch_error(commands, number, error)
                if isinstance(_failed(error), AllocationFailed):
                    raise AllocationFailed(str(failure), operation=failure.operation) from error
                raise failure from error

    def _launch_error(self, commands: Sequence[Command], number: int, why: object) -> LaunchError:
        return launch_error(self, commands, commands[number], why, consequence(len(commands) - number - 1))

    def _run(self, command: Command) -> None:
        if isinstance(command, Upload):
            self.write(command.target, command.offset, memoryview(command.data))
            return
        if isinstance(command, _Recorded):
            if command.compiled is None:
                command.compiled = compile_program(command.commands)
                self.stats.pipelines += 1
            self._call(command.compiled, command.compiled.handles)
            return
        compiled, memories, control = compile_single(command, self._single)
        if compiled.is_fresh:
            compiled.is_fresh = False
            self.stats.pipelines += 1
        self._call(compiled, memories, control)

    def _call(self, compiled: Compiled, memories: Sequence[Memory | StackMemory], control: Any = None) -> None:
        """Call a compiled function, and give the memory that it writes, which comes first, its new arrays."""
        arrays = [self.arrays_of(memory) for memory in memories]
        results = compiled.function(tuple(arrays[: compiled.count]), tuple(arrays[compiled.count :]), control)
        for memory, result in zip(memories, results, strict=False):
            memory.arrays = result
        self._written.update((id(memory), memory) for memory in memories[: compiled.count])

    def synchronize(self) -> None:
        self._check()
        written, self._written = self._written, {}
        jax.block_until_ready([memory.arrays for memory in written.values()])

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        commands = command.commands if isinstance(command, _Recorded) else (command,)
        return [(part, _work_of(part)) for part in commands]

    # Ahead of time: no part of the contract.

    def stablehlo(self, kernel: Kernel) -> str:
        """See `ahead.stablehlo`."""
        return stablehlo(kernel)

    def compile_step(self, kernels: Sequence[Kernel], elements: int, topology: str) -> CompiledStep:
        """See `ahead.compile_step`."""
        return compile_step(kernels, elements, topology)

    def export(
        self,
        program: Command | None,
        scratch: Collection[Memory],
        inputs: Sequence[Any],
        outputs: Any,
        platforms: Sequence[str],
    ) -> Exported:
        """See `export.export`; what was submitted before is done."""
        commands = program.commands if isinstance(program, _Recorded) else ()
        return export(self._host_words, commands, scratch, inputs, outputs, platforms)

    def close(self) -> None:
        self._single.clear()
        self._written.clear()


def _by_memory(pieces: Iterable[Piece]) -> Iterator[tuple[Memory | StackMemory, list[Piece]]]:
    """Yield each memory with its pieces."""
    for memory, pieces_there in groupby(pieces, attrgetter("memory")):
        yield memory, list(pieces_there)


def _rounded(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length()) if count <= _ROUNDED else count


def _work_of(command: Run | Copied | Upload) -> Work | None:
    if isinstance(command, Run):
        sizes = tuple(size for _, _, size in command.buffers)
        return Work(command.kernel, sizes, command.parameters, command.grid)
    return Work(None, (command.source[2],)) if isinstance(command, Copied) else None


def _failed(error: Exception) -> Exception:
    """Return AllocationFailed for an error that says that JAX had no memory; any other error unchanged."""
    is_memory = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
    return AllocationFailed(str(error)) if is_memory else error

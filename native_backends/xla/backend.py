"""XLA through JAX: its CPU, GPU or TPU, whichever JAX was installed for. Kernels are functions of arrays (`kernels`).

A handle holds an array of words, which is replaced by each command that writes it: the old one is donated, so that XLA
writes in place. A recorded program is one function from the arrays of all its handles to those that it writes; what is
submitted without having been recorded is a function for each command. Functions are compiled once for each kernel,
the sizes of its buffers and those of its parameters that decide shapes; offsets and other parameters are arguments.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ...errors import DeviceLostError, DeviceNotAvailableError, LaunchError
from ...runtime.backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Capabilities, Command
from ...runtime.choosing.packages import wrong_version
from ...runtime.failures import consequence, launch_error
from ...runtime.matmul_precision import float32_matmul_precision
from ...runtime.stats import Stats
from ...runtime.timing import Work
from ..forks import Forks

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel
    from .ahead import CompiledStep
    from .export import Exported
    from .programs import Compiled

__all__ = ["Memory", "XlaBackend", "list_adapters", "open_backend"]

_UNLIMITED = (1 << 31) - 4
"""Bytes of a buffer: places in it are counted by i32."""

_LEAST, _ROUNDED = 1 << 10, 1 << 16
"""Words of the smallest array; and up to how many an array has a power of two, so that few sizes are compiled for."""

_REWRITTEN = 1 << 20
"""Bytes of a buffer on the processor that is rather replaced than written in part, which would be compiled."""

_forks = Forks("JAX")


def list_adapters(name: str) -> list[AdapterInfo]:
    """The devices of JAX's default platform; if there is none, one entry that says what to do."""
    reason = _forks.reason or wrong_version("jax", jax.__version__)
    try:
        devices = [] if reason else jax.local_devices()
    except (AssertionError, RuntimeError) as error:  # it asserts that a platform of those asked for is there
        reason = _no_platform(error)
    if reason:
        return [AdapterInfo(name, 0, "", available=False, reason=reason)]
    _forks.use()  # to be asked, JAX has started its platforms
    return [
        AdapterInfo(
            name,
            number,
            f"{device.platform}: {device.device_kind} (JAX {jax.__version__})",
            kind="cpu" if device.platform == "cpu" else "",
        )
        for number, device in enumerate(devices)
    ]


def _no_platform(error: Exception) -> str:
    said = os.environ.get("JAX_PLATFORMS")
    what = f"JAX finds no device ({' '.join(str(error).split()) or 'of the platforms that it was told'})"
    installs = "pip install 'jax[cuda13]' for an NVIDIA GPU, 'jax[tpu]' on a TPU VM"
    return f"{what}: unset JAX_PLATFORMS={said}, or install JAX for it: {installs}" if said else f"{what}: {installs}"


def open_backend(info: AdapterInfo) -> XlaBackend:
    """Open one of them.

    Raises:
        DeviceNotAvailableError: this process was forked from one that used it.
    """
    if _forks.reason:
        raise DeviceNotAvailableError(_forks.reason)
    return XlaBackend(info, jax.local_devices()[info.index])


class Memory:
    """A handle: an array of words, which is another one after each command that writes it."""

    __slots__ = ("count", "words")

    def __init__(self, count: int) -> None:
        self.count = count
        self.words: Any = None  # None stands for zeros


class Run(NamedTuple):
    """A kernel with its buffers bound, and the precision of its products: what was set when it was bound."""

    kernel: Kernel
    buffers: tuple[BoundBuffer, ...]
    parameters: bytes
    grid: tuple[int, int, int]
    precision: str


class Copied(NamedTuple):
    """A copy between buffers: a command without a kernel."""

    source: BoundBuffer
    target: BoundBuffer
    kernel: None = None
    parameters: bytes = b""
    precision: str = "highest"

    @property
    def buffers(self) -> tuple[BoundBuffer, ...]:
        """Both of them."""
        return self.source, self.target


class _Upload(NamedTuple):
    target: Memory
    offset: int
    data: bytes


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
        )
        self._single: dict[Any, Compiled] = {}
        self._written: dict[int, Memory] = {}  # since the last wait
        self._loss = ""
        _forks.add(self)

    def lose(self, why: str) -> None:
        """Every call from now on raises DeviceLostError with this message."""
        self.lost = True
        self._loss = why

    def _check(self) -> None:
        if self.lost:
            raise DeviceLostError(self._loss)

    def allocate(self, nbytes: int) -> Memory:
        self._check()
        if nbytes > _UNLIMITED:
            raise AllocationFailed(f"a buffer of {nbytes:,} bytes")
        return Memory(_rounded(nbytes // 4))

    def free(self, handle: Memory) -> None:
        self._written.pop(id(handle), None)
        handle.words = None

    def words_of(self, handle: Memory) -> Any:
        """The array of a handle; zeros are made when they are needed."""
        if handle.words is None:
            handle.words = self._put(np.zeros(handle.count, np.uint32))
        return handle.words

    def _put(self, words: np.ndarray[Any, Any]) -> Any:
        try:
            return jax.device_put(words, self.device)
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            raise _failed(error) from error

    def write(self, handle: Memory, offset: int, data: memoryview) -> None:
        self._check()
        words = np.frombuffer(data.cast("B"), np.uint32).copy()
        if words.size == handle.count:
            handle.words = self._put(words)
        elif self.device.platform == "cpu" and handle.count <= _REWRITTEN // 4:
            content = np.array(self.words_of(handle))
            content[offset // 4 : offset // 4 + words.size] = words
            handle.words = self._put(content)
        else:
            from .programs import write_part

            handle.words = write_part(self.words_of(handle), words, np.int32(offset // 4))
            self._written[id(handle)] = handle

    def read(self, handle: Memory, offset: int, nbytes: int) -> memoryview:
        self._check()
        words = self.words_of(handle)
        if self.device.platform != "cpu" and nbytes < 4 * handle.count:
            from .programs import read_part

            return np.array(read_part(words, np.int32(offset // 4), nbytes // 4)).data.cast("B")
        part = np.asarray(words)[offset // 4 : (offset + nbytes) // 4]
        return part.copy().data.cast("B")  # the array may be donated later

    def read_async(self, handle: Memory, offset: int, nbytes: int) -> Awaitable[memoryview]:
        content = self.read(handle, offset, nbytes)

        async def done() -> memoryview:
            return content

        return done()

    def upload(self, handle: Memory, offset: int, data: bytes) -> Command:
        return _Upload(handle, offset, data)

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
        if isinstance(command, _Upload):
            self.write(command.target, command.offset, memoryview(command.data))
            return
        from .programs import compile_program, compile_single  # loads the compiler

        if isinstance(command, _Recorded):
            if command.compiled is None:
                command.compiled = compile_program(command.commands)
                self.stats.pipelines += 1
            command.compiled.run(self, command.compiled.handles)
            return
        compiled, handles, control = compile_single(command, self._single)
        if compiled.is_fresh:
            compiled.is_fresh = False
            self.stats.pipelines += 1
        compiled.run(self, handles, control)

    def note_written(self, handles: Sequence[Memory]) -> None:
        """Remember what is to be waited for."""
        self._written.update((id(one), one) for one in handles)

    def synchronize(self) -> None:
        self._check()
        written, self._written = self._written, {}
        jax.block_until_ready([one.words for one in written.values()])

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        commands = command.commands if isinstance(command, _Recorded) else (command,)
        return [(one, _work_of(one)) for one in commands]

    # Ahead of time: no part of the contract.

    def stablehlo(self, kernel: Kernel) -> str:
        """See `ahead.stablehlo`."""
        from .ahead import stablehlo

        return stablehlo(kernel)

    def compile_step(self, kernels: Sequence[Kernel], elements: int, topology: str) -> CompiledStep:
        """See `ahead.compile_step`."""
        from .ahead import compile_step

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
        from .export import export

        commands = program.commands if isinstance(program, _Recorded) else ()
        return export(self, commands, scratch, inputs, outputs, platforms)

    def close(self) -> None:
        self._single.clear()
        self._written.clear()


def _rounded(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length()) if count <= _ROUNDED else count


def _work_of(command: Run | Copied | _Upload) -> Work | None:
    if isinstance(command, Run):
        sizes = tuple(size for _, _, size in command.buffers)
        return Work(command.kernel, sizes, command.parameters, command.grid)
    return Work(None, (command.source[2],)) if isinstance(command, Copied) else None


def _failed(error: Exception) -> Exception:
    """Return AllocationFailed for an error that says that JAX had no memory; any other error unchanged."""
    is_memory = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
    return AllocationFailed(str(error)) if is_memory else error

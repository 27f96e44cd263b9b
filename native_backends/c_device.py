"""The common base of `cuda` and `opencl`: a driver's queue of kernels printed as C, with buffers bound once.

Bound launches are kept, since most are given to the device again and again; and what a driver raises becomes an error
of ours.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ..errors import DeviceLostError, OptirsError
from ..runtime.backend import AdapterInfo, AllocationFailed, Backend, BoundBuffer, Command, Handle
from ..runtime.stats import Stats
from ..runtime.timing import GPU_TIMESTAMPS, Work
from .failed_steps import continue_after
from .steps import Step, flattened, work_of

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel

__all__ = ["CBackend", "Launch"]

_BOUND_KEPT = 4096


class Launch:
    """A call that enqueues a kernel, or what takes its place, with its arguments set once."""

    __slots__ = ("__weakref__", "key", "run")

    def __init__(self, run: Callable[[], Any], key: Any) -> None:
        """`key` is that of its step among those that are kept."""
        self.run: Callable[[], Any] | None = run
        self.key = key

    def __call__(self) -> Any:
        """Enqueue it; what the driver gives for it."""
        if self.run is None:
            raise OptirsError("it refers to freed memory")
        return self.run()


def _refused() -> NoReturn:
    raise OptirsError("it is given the same memory for reading and for writing")


class CBackend(Backend):
    """One device with a queue of its own. A handle's `launches`, a WeakSet, are those that name it."""

    clock = GPU_TIMESTAMPS
    failure: ClassVar[type[Exception]]
    """What the driver's calls raise; its `code` is the driver's number."""
    no_memory: ClassVar[frozenset[int]]
    """Numbers of failures for want of memory."""
    fatal: ClassVar[frozenset[int]]
    """Numbers of failures after which the device is of no use."""

    def __init__(self, info: AdapterInfo) -> None:
        """Nothing is bound yet."""
        self.info = info
        self.stats = Stats()
        self._loss = ""
        self._bound: OrderedDict[Any, Step] = OrderedDict()

    # Errors.

    def lose(self, why: str) -> None:
        """Every call from now on raises DeviceLostError with this message."""
        self.lost = True
        self._loss = why

    @abstractmethod
    def loss_by(self, error: Any, step: Step | None) -> str:
        """Return the message for a device that `error` has lost; `step` is the step that caused it, if known."""

    def _ours(self, error: Any, step: Step | None = None) -> Exception:
        """The driver's error as one of ours."""
        if error.code in self.no_memory:
            return AllocationFailed(str(error))
        if error.code not in self.fatal:
            return OptirsError(f"device '{self.info.label}' refused the work: {error}")
        self.lose(self.loss_by(error, step))
        return DeviceLostError(self._loss)

    def check(self) -> None:
        """Raise DeviceLostError where the device is lost or closed."""
        if self.lost:
            raise DeviceLostError(self._loss)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the driver's errors into ours."""
        self.check()
        try:
            yield
        except self.failure as error:
            raise self._ours(error) from error

    def _continue_after(self, commands: Sequence[Command], failed: Step, error: Exception) -> NoReturn:
        """After a step of the commands has failed: begin what does not need it, and raise whose fault it was."""
        why = self._ours(error, failed) if isinstance(error, self.failure) else error
        if self.lost:
            raise why from error
        continue_after(self, commands, list(flattened(commands)), failed, why)

    # Commands.

    def bind(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Command:
        key = (self.choice(kernel), kernel, grid, parameters, *buffers)
        step = self._bound.get(key)
        if step is None:
            step = Step(self._launch(key, kernel, buffers, parameters, grid), kernel, buffers, parameters, grid)
            self.stats.bind_groups += 1
            self._bound[key] = step
            if len(self._bound) > _BOUND_KEPT:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end(key)
        return step

    def choice(self, kernel: Kernel) -> Any:
        """Return the user's settings, besides the arguments, that a launch of the kernel depends on, or None."""
        return None

    def _launch(
        self, key: Any, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Callable[[], Any]:
        handles = [handle for handle, _, _ in buffers]
        written = [handle for binding, handle in zip(kernel.bindings, handles, strict=True) if binding.writes]
        if any(handles.count(handle) > 1 for handle in written):
            return _refused  # when it is submitted, as WebGPU does
        launch = Launch(self.call_of(kernel, buffers, parameters, grid), key)
        for handle in handles:
            handle.launches.add(launch)
        return launch

    @abstractmethod
    def call_of(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Callable[[], Any]:
        """Return a function that enqueues the kernel over these buffers."""

    def unbind(self, handle: Handle) -> None:
        """The launches that name this memory, which is to be freed, raise from now on."""
        for launch in list(handle.launches):
            launch.run = None
            self._bound.pop(launch.key, None)

    def upload(self, handle: Handle, offset: int, data: bytes) -> Command:
        return Step(partial(self.send, handle, offset, data), target=handle)

    @abstractmethod
    def send(self, handle: Handle, offset: int, data: bytes) -> Any:
        """Enqueue what writes these bytes."""

    def copy(self, source: BoundBuffer, target: BoundBuffer) -> Command:
        return Step(partial(self.transfer, source, target), buffers=(source,), target=target[0])

    @abstractmethod
    def transfer(self, source: BoundBuffer, target: BoundBuffer) -> Any:
        """Enqueue a copy."""

    def parts(self, command: Command) -> Sequence[tuple[Command, Work | None]]:
        return [(step, work_of(step)) for step in flattened((command,))]

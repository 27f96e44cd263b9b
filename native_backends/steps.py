"""Commands that are calls with their memory bound, of the devices whose work is begun call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.backend import BoundBuffer, Command, Handle
from ..runtime.timing import Work

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel

__all__ = ["Recorded", "Step", "flattened", "work_of"]


class Step(NamedTuple):
    """A command: a call with its memory bound, and what it does, for a profiler. An upload does nothing of note."""

    run: Callable[[], Any]
    kernel: Kernel | None = None
    buffers: Sequence[BoundBuffer] = ()
    parameters: bytes = b""
    grid: tuple[int, int, int] = (0, 0, 0)
    target: Handle | None = None  # of an upload or a copy


class Recorded(NamedTuple):
    """Steps that are replayed."""

    steps: tuple[Step, ...]


def flattened(commands: Sequence[Command]) -> Iterator[Step]:
    """Yield the steps of the commands, with those of each recording in its place."""
    for command in commands:
        if isinstance(command, Recorded):
            yield from command.steps
        else:
            yield command


def work_of(step: Step) -> Work | None:
    """Return the kernel, sizes in bytes, parameters and grid of a step, for measurements; None for an upload."""
    sizes = tuple(size for _, _, size in step.buffers)
    return Work(step.kernel, sizes, step.parameters, step.grid) if sizes else None

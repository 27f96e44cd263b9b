"""What a wgpu device is given to do: commands with their buffers bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..runtime.backend import Command
from ..runtime.timing import Work

__all__ = ["Copy", "Recorded", "Run", "Upload", "each", "work_of"]


class Run(NamedTuple):
    """A kernel over its buffers. `key` is that of the bind group: kernel, buffers and parameters."""

    pipeline: Any
    bind_group: Any
    grid: tuple[int, int, int]
    key: Any


class Copy(NamedTuple):
    """Bytes from one buffer to another."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


class Upload(NamedTuple):
    """Bytes from the host."""

    target: Any
    offset: int
    data: bytes


class Recorded(NamedTuple):
    """Commands that are replayed."""

    commands: tuple[Run | Copy, ...]


def each(commands: Sequence[Command]) -> Iterator[Any]:
    """The commands one by one, those of recordings among them."""
    for command in commands:
        if isinstance(command, Recorded):
            yield from command.commands
        else:
            yield command


def work_of(command: Run | Copy | Upload) -> Work | None:
    """What a command does, which of an upload is None."""
    match command:
        case Run(grid=grid, key=(kernel, *buffers, parameters)):
            return Work(kernel, tuple(size for _, _, size in buffers), parameters, grid)
        case Copy(nbytes=nbytes):
            return Work(None, (nbytes,))
    return None

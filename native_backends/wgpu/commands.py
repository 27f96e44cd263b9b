"""The commands of a wgpu device, with their buffers bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...runtime.backend import Command
from ...runtime.failures import needs_and_writes
from ...runtime.timing import Work

__all__ = ["Copy", "Recorded", "Run", "Upload", "encoded", "flattened", "touched", "work_of"]


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


class Recorded:
    """Commands that are replayed.

    Attributes:
        commands: in the order in which they run.
        is_valid: wgpu has accepted them before, so that they may be submitted in several pieces.
    """

    def __init__(self, commands: Sequence[Run | Copy]) -> None:
        """Hold commands that wgpu has not seen yet."""
        self.commands = tuple(commands)
        self.is_valid = False


def flattened(commands: Sequence[Command]) -> list[Any]:
    """Return the commands with those of each recording in its place."""
    single: list[Any] = []
    for command in commands:
        if isinstance(command, Recorded):
            single += command.commands
        else:
            single.append(command)
    return single


def work_of(command: Run | Copy | Upload) -> Work | None:
    """Return the kernel, sizes in bytes, parameters and grid of a command, for measurements; None for an upload."""
    match command:
        case Run(grid=grid, key=(kernel, *buffers, parameters)):
            return Work(kernel, tuple(size for _, _, size in buffers), parameters, grid)
        case Copy(nbytes=nbytes):
            return Work(None, (nbytes,))
    return None


def encoded(device: Any, commands: Iterable[Run | Copy]) -> Any:
    """Return a command buffer for the queue; None if there are no commands."""
    encoder = compute_pass = pipeline = None
    for command in commands:
        encoder = encoder or device.create_command_encoder()
        if isinstance(command, Copy):
            if compute_pass is not None:
                compute_pass.end()
                compute_pass = pipeline = None
            encoder.copy_buffer_to_buffer(*command)
            continue
        if compute_pass is None:
            compute_pass = encoder.begin_compute_pass()
        if command.pipeline is not pipeline:
            pipeline = command.pipeline
            compute_pass.set_pipeline(pipeline)
        compute_pass.set_bind_group(0, command.bind_group)
        compute_pass.dispatch_workgroups(*command.grid)
    if compute_pass is not None:
        compute_pass.end()
    return encoder and encoder.finish()


def touched(command: Run | Copy | Upload) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the buffers whose content a command needs, and those that it writes."""
    match command:
        case Run(key=(kernel, *buffers, _)):
            return needs_and_writes(kernel, buffers)
        case Copy(source=source, target=target):
            return [source], [target]
        case Upload(target=target):
            return [], [target]
    raise TypeError(f"no command of wgpu's: {command!r}")

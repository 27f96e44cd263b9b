"""How a backend tells when its kernels ran: for a profiler. Nothing of this is used while none runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["GPU_TIMESTAMPS", "HOST_CLOCK", "WALL_TIME", "Timed", "Work"]

GPU_TIMESTAMPS = "gpu timestamps"
"""The device notes the beginning and the end of each kernel, by a clock of its own."""

HOST_CLOCK = "host clock around each kernel"
"""Kernels run on the host, in the call that submits them."""

WALL_TIME = "wall time per submit"
"""A kernel is submitted by itself and waited for, so that its time includes both; in a page that cannot wait, all
kernels of a submit have one time."""


class Work(NamedTuple):
    """The work of a command: a launch of a kernel, or a copy between buffers.

    Attributes:
        kernel: what runs; None for a copy between buffers.
        sizes: bytes bound to each of the kernel's storage bindings; of a copy, those that it moves.
        parameters: the kernel's uniform block.
        grid: workgroups along each dimension.
    """

    kernel: Kernel | None
    sizes: tuple[int, ...]
    parameters: bytes = b""
    grid: tuple[int, int, int] = (0, 0, 0)


class Timed(NamedTuple):
    """When work was done, in seconds of the backend's clock.

    Attributes:
        works: one kernel or copy; all those of a submit where the device can tell no more than that.
        start: when it began.
        end: when it had ended.
    """

    works: tuple[Work, ...]
    start: float
    end: float

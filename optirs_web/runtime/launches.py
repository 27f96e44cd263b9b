"""Launches of kernels, and copies: the elements of a recorded program before it is bound to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .buffer import View

if TYPE_CHECKING:
    from .kernels import Kernel

__all__ = ["Copy", "Launch", "Recorded", "overlaps"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel over views, one for each of its bindings in order, with its parameters."""

    kernel: Kernel
    views: tuple[View, ...]
    grid: tuple[int, int, int]
    parameters: tuple[int | float, ...]

    @property
    def reads(self) -> list[View]:
        """The views that it may read. A kernel that can write a buffer may read it first, unless it is known not to."""
        pairs = zip(self.kernel.bindings, self.views, strict=True)
        return [view for binding, view in pairs if not (binding.writes and self.kernel.overwrites)]

    @property
    def writes(self) -> list[View]:
        """The views that it can write."""
        return [view for binding, view in zip(self.kernel.bindings, self.views, strict=True) if binding.writes]


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A copy between two views of equal size."""

    source: View
    target: View

    @property
    def reads(self) -> list[View]:
        """The source."""
        return [self.source]

    @property
    def writes(self) -> list[View]:
        """The target."""
        return [self.target]


Recorded = Launch | Copy


def overlaps(view: View, others: Sequence[View]) -> bool:
    """A byte of the view belongs to one of the others too."""
    return any(
        view.buffer is other.buffer
        and view.offset < other.offset + other.nbytes
        and other.offset < view.offset + view.nbytes
        for other in others
    )

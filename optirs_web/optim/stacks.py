"""State of tensors in stacks of their own: what an optimizer keeps in other shapes than those of the parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..runtime.buffer import Buffer, View
from .layout import Slots
from .matrices import Matrices, MatrixLayout

__all__ = ["Stack", "StackedLayout", "matrices_of", "places_of", "room"]

_ITEMSIZE = 4
_ALIGNMENT = 64
"""Elements: on every device a binding may begin at a multiple of so many."""


def room(size: int) -> int:
    """Elements from the beginning of one state of `size` elements to that of the next in a buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def places_of(
    buffers: Mapping[str, Buffer], shapes: Mapping[str, tuple[int, int]], position: int
) -> Iterator[tuple[str, View]]:
    """Kind and place of each state of the tensor at this position."""
    for kind, (rows, columns) in shapes.items():
        first = position * room(rows * columns)
        yield kind, View(buffers[kind], first * _ITEMSIZE, rows * columns * _ITEMSIZE)


def matrices_of(buffer: Buffer, shape: tuple[int, int], positions: Sequence[int]) -> Matrices:
    """The states of these positions in a buffer."""
    rows, columns = shape
    firsts = tuple(position * room(rows * columns) for position in positions)
    return Matrices(View.whole(buffer), firsts, rows, columns, columns, 1)


class Stack(Protocol):
    """Buffers with the state of several tensors.

    Attributes:
        buffers: by the kind of state.
    """

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """By the kind of state."""

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Tensor, name of the state, and place."""


class StackedLayout(MatrixLayout):
    """A layout whose state lies in stacks, besides that in slots."""

    @abstractmethod
    def _stacks(self) -> Sequence[Stack]:
        """All stacks."""

    def retire(self) -> None:
        """Programs that use this layout must be recorded again."""
        super().retire()
        for stack in self._stacks():
            for buffer in stack.buffers.values():
                buffer.retired = True

    def state_views(self) -> dict[str, View]:
        """One view for each buffer."""
        more = {
            f"stack {number} {kind}": View.whole(buffer)
            for number, stack in enumerate(self._stacks())
            for kind, buffer in stack.buffers.items()
        }
        return {**super().state_views(), **more}

    def state_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """The state of each tensor, as bytes."""
        found = super().state_in(contents)
        for number, stack in enumerate(self._stacks()):
            raw = {id(buffer): contents[f"stack {number} {kind}"] for kind, buffer in stack.buffers.items()}
            for tensor, name, view in stack.views():
                found[tensor][name] = raw[id(view.buffer)][view.offset : view.offset + view.nbytes]
        return found

    def slots(self) -> Slots:
        """Where each state of each tensor lies."""
        more = {(tensor, name): view for stack in self._stacks() for tensor, name, view in stack.views()}
        return {**super().slots(), **more}

    def places(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        """Where these scalars and the state of each tensor lie."""
        found = super().places(scalars)
        for stack in self._stacks():
            for tensor, name, view in stack.views():
                found[tensor][name] = view
        return found

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the state of each tensor; what is not given becomes zero."""
        super().write_state(given)
        for stack in self._stacks():
            content = {id(buffer): memoryview(bytearray(buffer.nbytes)) for buffer in stack.buffers.values()}
            for tensor, name, view in stack.views():
                value = given.get(tensor, {}).get(name)
                if value is not None:
                    content[id(view.buffer)][view.offset : view.offset + view.nbytes] = value
            for buffer in stack.buffers.values():
                self.device.write(View.whole(buffer), content[id(buffer)])

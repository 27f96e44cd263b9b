"""State of tensors in stacks of their own: what an optimizer keeps in other shapes than those of the parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..runtime.arena import blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.rules import Stored
from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK
from .layout import Slots
from .matrices import Matrices, MatrixLayout
from .packed import Packed, packed_stack

__all__ = ["AlikeStack", "Stack", "StackedLayout", "matrices_of", "places_of", "room"]

_ITEMSIZE = 4
_ALIGNMENT = 64
"""Elements: on every device a binding may begin at a multiple of so many."""


def room(size: int) -> int:
    """Elements from the beginning of one state of `size` elements to that of the next in a buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def buffers_of(
    device: Device, count: int, shapes: Mapping[str, tuple[int, int]], stored: Mapping[str, str]
) -> dict[str, Buffer]:
    """Buffers of zeros for each state of so many tensors; state in fewer bits has whole blocks."""
    buffers = {}
    for name, (rows, columns) in shapes.items():
        blocks = count * blocks_of(rows * columns)
        if name not in stored:
            buffers[name] = device.allocate_zeroed(count * room(rows * columns) * _ITEMSIZE)
            continue
        buffers[name] = device.allocate_zeroed(blocks * BLOCK * slot_storage.BITS[stored[name]] // 8)
        if slot_storage.is_blockwise([stored[name]]):
            buffers[slot_storage.largest_name(name)] = device.allocate_zeroed(blocks * _ITEMSIZE)
    return buffers


def places_of(
    buffers: Mapping[str, Buffer], shapes: Mapping[str, tuple[int, int]], position: int, stored: Mapping[str, str]
) -> Iterator[tuple[str, View]]:
    """Name and place of each state of the tensor at this position."""
    for name, (rows, columns) in shapes.items():
        size, blocks = rows * columns, blocks_of(rows * columns)
        if name not in stored:
            yield name, View(buffers[name], position * room(size) * _ITEMSIZE, size * _ITEMSIZE)
            continue
        first = position * blocks
        bits = slot_storage.BITS[stored[name]]
        yield name, View(buffers[name], first * BLOCK * bits // 8, size * bits // 8)
        if slot_storage.is_blockwise([stored[name]]):
            largest = slot_storage.largest_name(name)
            yield largest, View(buffers[largest], first * _ITEMSIZE, blocks * _ITEMSIZE)


def matrices_of(buffer: Buffer, shape: tuple[int, int], positions: Sequence[int]) -> Matrices:
    """The states of these positions in a buffer."""
    rows, columns = shape
    firsts = tuple(position * room(rows * columns) for position in positions)
    return Matrices(View.whole(buffer), firsts, rows, columns, columns, 1)


class Stack(Protocol):
    """Buffers with the state of several tensors.

    Attributes:
        buffers: by the kind of state.
        stored: how it is stored, where not as float32.
    """

    @property
    def stored(self) -> Mapping[str, str]:
        """By the kind of state."""

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """By the kind of state."""

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Tensor, name of the state, and place."""


@dataclass(frozen=True)
class AlikeStack:
    """The state of tensors that have the same kinds of it, in the same shapes."""

    tensors: tuple[int, ...]
    shapes: Mapping[str, tuple[int, int]]
    buffers: Mapping[str, Buffer]
    stored: Mapping[str, str]

    def matrices(self, kind: str, positions: Sequence[int]) -> Matrices:
        """Those of a kind of state at these places, which is stored as float32."""
        return matrices_of(self.buffers[kind], self.shapes[kind], positions)

    def packed(self, kind: str, positions: Sequence[int]) -> tuple[Matrices, Packed]:
        """Room for a kind of state as float32, laid out as `matrices` would be, and where it lies in fewer bits."""
        rows, columns = shape = self.shapes[kind]
        loaded = self.buffers[kind].device.allocate(len(self.tensors) * room(rows * columns) * _ITEMSIZE)
        return matrices_of(loaded, shape, positions), packed_stack(
            self.stored[kind], self.buffers, kind, shape, positions
        )

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Tensor, name of the state, and place."""
        for position, tensor in enumerate(self.tensors):
            for kind, view in places_of(self.buffers, self.shapes, position, self.stored):
                yield tensor, kind, view


class StackedLayout(MatrixLayout):
    """A layout whose state lies in stacks, besides that in slots."""

    @abstractmethod
    def _stacks(self) -> Sequence[Stack]:
        """All stacks."""

    def _new_stack(
        self, tensors: Sequence[int], shapes: Mapping[str, tuple[int, int]], stored: Stored = ()
    ) -> AlikeStack:
        """Zeros for these tensors."""
        kinds = {name: kind for name, kind in stored if name in shapes}
        return AlikeStack(tuple(tensors), shapes, buffers_of(self.device, len(tensors), shapes, kinds), kinds)

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

    def _stored_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """The state of each tensor, as it is stored."""
        found = super()._stored_in(contents)
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
                if slot_storage.slot_of(name) not in stack.stored:
                    found[tensor][name] = view
        return found

    def _write_stored(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the state of each tensor; what is not given becomes zero."""
        super()._write_stored(given)
        for stack in self._stacks():
            content = {id(buffer): memoryview(bytearray(buffer.nbytes)) for buffer in stack.buffers.values()}
            for tensor, name, view in stack.views():
                value = given.get(tensor, {}).get(name)
                if value is not None:
                    content[id(view.buffer)][view.offset : view.offset + view.nbytes] = value
            for buffer in stack.buffers.values():
                self.device.write(View.whole(buffer), content[id(buffer)])

"""State in stacks of their own buffers, for shapes other than those of the parameters."""

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

__all__ = ["AlikeStack", "Stack", "StackedLayout", "matrices_of", "room", "state_views_at"]

_ITEMSIZE = 4
_ALIGNMENT = 64
"""Elements: on every device a binding may begin at a multiple of this number."""


def room(size: int) -> int:
    """Return the elements from the beginning of one state of `size` elements to that of the next in a buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def buffers_of(
    device: Device, count: int, shapes: Mapping[str, tuple[int, int]], stored: Mapping[str, str]
) -> dict[str, Buffer]:
    """Allocate a buffer of zeros for each state of `count` tensors; state in fewer bits has whole blocks."""
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


def state_views_at(
    buffers: Mapping[str, Buffer], shapes: Mapping[str, tuple[int, int]], position: int, stored: Mapping[str, str]
) -> Iterator[tuple[str, View]]:
    """Yield the name and view of each state of the tensor at this position."""
    for name, (rows, columns) in shapes.items():
        size, blocks = rows * columns, blocks_of(rows * columns)
        if name not in stored:
            yield name, View(buffers[name], position * room(size) * _ITEMSIZE, size * _ITEMSIZE)
            continue
        first_block = position * blocks
        bits = slot_storage.BITS[stored[name]]
        yield name, View(buffers[name], first_block * BLOCK * bits // 8, size * bits // 8)
        if slot_storage.is_blockwise([stored[name]]):
            largest = slot_storage.largest_name(name)
            yield largest, View(buffers[largest], first_block * _ITEMSIZE, blocks * _ITEMSIZE)


def matrices_of(buffer: Buffer, shape: tuple[int, int], positions: Sequence[int]) -> Matrices:
    """Return the states at these positions in a buffer."""
    rows, columns = shape
    firsts = tuple(position * room(rows * columns) for position in positions)
    return Matrices(View.whole(buffer), firsts, rows, columns, columns, 1)


class Stack(Protocol):
    """Buffers with the state of several tensors.

    Attributes:
        buffers: by the kind of state.
        stored: the type of state, where it is not float32.
    """

    @property
    def stored(self) -> Mapping[str, str]:
        """The type by the kind of state, where it is not float32."""

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """The buffer by the kind of state."""

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Yield the tensor, name and view of each state."""


@dataclass(frozen=True)
class AlikeStack:
    """The state of tensors that have the same kinds of state, in the same shapes."""

    tensors: tuple[int, ...]
    shapes: Mapping[str, tuple[int, int]]
    buffers: Mapping[str, Buffer]
    stored: Mapping[str, str]

    def matrices(self, kind: str, positions: Sequence[int]) -> Matrices:
        """Return the matrices of a kind of state at these positions, which is stored as float32."""
        return matrices_of(self.buffers[kind], self.shapes[kind], positions)

    def packed(self, kind: str, positions: Sequence[int]) -> tuple[Matrices, Packed]:
        """Return uninitialized float32 matrices for a kind of state, laid out as `matrices`, and the packed state."""
        rows, columns = shape = self.shapes[kind]
        loaded = self.buffers[kind].device.allocate(len(self.tensors) * room(rows * columns) * _ITEMSIZE)
        return matrices_of(loaded, shape, positions), packed_stack(
            self.stored[kind], self.buffers, kind, shape, positions
        )

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Yield the tensor, name and view of each state."""
        for position, tensor in enumerate(self.tensors):
            for kind, view in state_views_at(self.buffers, self.shapes, position, self.stored):
                yield tensor, kind, view


class StackedLayout(MatrixLayout):
    """A layout with state in stacks, besides that in slots."""

    @abstractmethod
    def _stacks(self) -> Sequence[Stack]:
        """Return all stacks."""

    def _new_stack(
        self, tensors: Sequence[int], shapes: Mapping[str, tuple[int, int]], stored: Stored = ()
    ) -> AlikeStack:
        """Return a stack of zeros for these tensors."""
        kinds = {name: kind for name, kind in stored if name in shapes}
        return AlikeStack(tuple(tensors), shapes, buffers_of(self.device, len(tensors), shapes, kinds), kinds)

    def retire(self) -> None:
        """Retire the buffers, so that programs that use this layout are recorded again."""
        super().retire()
        for stack in self._stacks():
            for buffer in stack.buffers.values():
                buffer.retired = True

    def state_views(self) -> dict[str, View]:
        """Return a view of each buffer, by name."""
        more = {
            f"stack {number} {kind}": View.whole(buffer)
            for number, stack in enumerate(self._stacks())
            for kind, buffer in stack.buffers.items()
        }
        return {**super().state_views(), **more}

    def _stored_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """Return the state of each tensor, as it is stored."""
        state = super()._stored_in(contents)
        for number, stack in enumerate(self._stacks()):
            raw = {id(buffer): contents[f"stack {number} {kind}"] for kind, buffer in stack.buffers.items()}
            for tensor, name, view in stack.views():
                state[tensor][name] = raw[id(view.buffer)][view.offset : view.offset + view.nbytes]
        return state

    def slots(self) -> Slots:
        """Return the view of each state of each tensor."""
        more = {(tensor, name): view for stack in self._stacks() for tensor, name, view in stack.views()}
        return {**super().slots(), **more}

    def tensor_views(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        """Return the views of these scalars and of the state of each tensor."""
        views = super().tensor_views(scalars)
        for stack in self._stacks():
            for tensor, name, view in stack.views():
                if slot_storage.slot_of(name) not in stack.stored:
                    views[tensor][name] = view
        return views

    def _write_stored(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the state of each tensor; state that is not in `state` becomes zero."""
        super()._write_stored(state)
        for stack in self._stacks():
            content = {id(buffer): memoryview(bytearray(buffer.nbytes)) for buffer in stack.buffers.values()}
            for tensor, name, view in stack.views():
                value = state.get(tensor, {}).get(name)
                if value is not None:
                    content[id(view.buffer)][view.offset : view.offset + view.nbytes] = value
            for buffer in stack.buffers.values():
                self.device.write(View.whole(buffer), content[id(buffer)])

"""State in stacks of their own buffers, for shapes other than those of the parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..runtime.arena import blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.rules import Stored
from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK
from .matrices import Matrices
from .packed import Packed, packed_stack

__all__ = ["AlikeStack", "matrices_of", "new_stack", "room", "state_views_at"]

_ITEMSIZE = 4
_ALIGNMENT = 64
"""Elements: on every device a binding may begin at a multiple of this number."""


def room(size: int) -> int:
    """Return the elements from the beginning of one state of `size` elements to that of the next in a buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _buffers_of(
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


def new_stack(
    device: Device, tensors: Sequence[int], shapes: Mapping[str, tuple[int, int]], stored: Stored = ()
) -> AlikeStack:
    """Return a stack of zeros for these tensors."""
    kinds = {name: kind for name, kind in stored if name in shapes}
    return AlikeStack(tuple(tensors), shapes, _buffers_of(device, len(tensors), shapes, kinds), kinds)

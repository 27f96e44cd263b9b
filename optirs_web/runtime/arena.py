"""Arenas: one buffer for the values of many parameters, and one for their gradients.

Each tensor begins at a multiple of `BLOCK` elements, so a block belongs to one tensor and one table word
per block is enough for a kernel to find its tensor. What is left of a tensor's last block stays zero.
Tensors of one shape are adjacent, so that a compiler can take them for one array.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..errors import OutOfDeviceMemoryError
from ..wgsl.shell import BLOCK
from .backend import Stack
from .buffer import Buffer, View
from .device import Device
from .strides import Shape

__all__ = ["BLOCKS_PER_RANGE", "Arena", "Home", "blocks_of", "split_sizes"]

_ITEMSIZE = 4
_MOST_SHAPES, _MANY = 16, 1 << 16
"""The number of shapes that have a stack each, and the elements from which further ones have; others share blocks."""

BLOCKS_PER_RANGE = 64
"""A binding range begins at a multiple of this number, so that the offset of its table is aligned on every device."""


def split_sizes(device: Device, sizes: Sequence[int]) -> list[list[int]]:
    """Return the indices of the tensors of each arena: in order, as many as a buffer of the device can hold.

    Raises:
        OutOfDeviceMemoryError: one tensor alone is larger than a buffer can be.
    """
    capacity = device.capabilities.max_buffer_bytes // (BLOCK * _ITEMSIZE)
    arenas: list[list[int]] = [[]]
    used = 0
    for index, size in enumerate(sizes):
        blocks = blocks_of(size)
        if blocks > capacity:
            in_use = device.memory_stats().live_bytes
            raise OutOfDeviceMemoryError(size * _ITEMSIZE, in_use, device.capabilities.max_buffer_bytes, device.name)
        if used + blocks > capacity:
            arenas.append([])
            used = 0
        arenas[-1].append(index)
        used += blocks
    return arenas


def blocks_of(size: int) -> int:
    """Return the number of blocks of a tensor of `size` elements."""
    return -(-size // BLOCK)


class Arena:
    """Memory of tensors of these shapes, all float32.

    Attributes:
        sizes: of the tensors, in elements.
        firsts: the first element of each.
        order: their indices as they follow one another.
    """

    def __init__(self, device: Device, shapes: Sequence[Shape]) -> None:
        """Allocate the values; gradients are allocated when they are first used."""
        self.device = device
        self.sizes = tuple(math.prod(shape) for shape in shapes)
        by_shape: dict[Shape, list[int]] = {}
        for index, shape in enumerate(shapes):
            by_shape.setdefault(shape, []).append(index)
        rarest = self._rarest(by_shape) if len(by_shape) > _MOST_SHAPES else []
        rare = [index for shape in rarest for index in by_shape.pop(shape)]
        self.order = [index for indices in by_shape.values() for index in indices] + rare
        self._by_shape = by_shape
        self.firsts = [0] * len(shapes)
        self.blocks = 0
        for index in self.order:
            self.firsts[index] = self.blocks * BLOCK
            self.blocks += blocks_of(self.sizes[index])
        self.blocks = max(1, self.blocks)  # a buffer of no bytes does not exist
        self.params = self.new_buffer()
        self._grads: Buffer | None = None

    def _rarest(self, by_shape: Mapping[Shape, Sequence[int]]) -> list[Shape]:
        """Return the shapes of the fewest elements, in order, for each of which a compiler is not to make code."""
        elements = {shape: len(indices) * self.sizes[indices[0]] for shape, indices in by_shape.items()}
        largest = set(sorted(elements, key=elements.__getitem__, reverse=True)[:_MOST_SHAPES])
        return [shape for shape in by_shape if shape not in largest and elements[shape] < _MANY]

    @cached_property
    def stacks(self) -> Sequence[Stack]:
        """A stack for each common shape that has elements, then one of the blocks of rare shapes."""
        stacks, first = [], 0
        for shape, indices in self._by_shape.items():
            blocks = blocks_of(self.sizes[indices[0]])
            if blocks:
                stacks.append(Stack(first * BLOCK, len(indices), blocks * BLOCK, shape))
                first += len(indices) * blocks
        if first < self.blocks:
            stacks.append(Stack(first * BLOCK, self.blocks - first, BLOCK, (BLOCK,)))
        return stacks

    @property
    def nbytes(self) -> int:
        """Size of one buffer of the arena."""
        return self.blocks * BLOCK * _ITEMSIZE

    def new_buffer(self, block_bytes: int = BLOCK * _ITEMSIZE) -> Buffer:
        """Return a buffer of zeros with the blocks of the arena: for gradients, and for a slot of optimizer state.

        Args:
            block_bytes: the bytes of a block.
        """
        is_stacked = self.device.capabilities.stacks and block_bytes == BLOCK * _ITEMSIZE
        return self.device.allocate_zeroed(self.blocks * block_bytes, self.stacks if is_stacked else ())

    @property
    def grads(self) -> Buffer:
        """The gradients."""
        if self._grads is None:
            self._grads = self.new_buffer()
        return self._grads

    def tensor_view(self, buffer: Buffer, index: int) -> View:
        """Return the view of a tensor in a buffer of the arena."""
        block_bytes = buffer.nbytes // self.blocks
        if block_bytes < BLOCK:  # an entry for each block
            nbytes = blocks_of(self.sizes[index]) * block_bytes
        else:
            nbytes = self.sizes[index] * block_bytes // BLOCK
        return View(buffer, self.firsts[index] // BLOCK * block_bytes, nbytes)

    def block_table(self, numbers: Mapping[int, int], absent: int) -> array[int]:
        """Return for each block the number of its tensor (`absent` if it has none), and of the elements that it has."""
        table = array("I")
        for index in self.order:
            number = numbers.get(index, absent)
            whole, remainder = divmod(self.sizes[index], BLOCK)
            table.extend([number, BLOCK] * whole + [number, remainder] * (remainder > 0))
        table.extend([absent, 0] * (self.blocks - len(table) // 2))
        return table

    def binding_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first block and the number of blocks of each part that a kernel can bind."""
        limit = self.device.capabilities.max_binding_bytes // (BLOCK * _ITEMSIZE)
        limit = max(BLOCKS_PER_RANGE, limit // BLOCKS_PER_RANGE * BLOCKS_PER_RANGE)
        for first_block in range(0, self.blocks, limit):
            yield first_block, min(limit, self.blocks - first_block)

    def range_view(self, buffer: Buffer, first_block: int, blocks: int) -> View:
        """Return the view of these blocks of a buffer of the arena."""
        block_bytes = buffer.nbytes // self.blocks
        return View(buffer, first_block * block_bytes, blocks * block_bytes)


@dataclass(frozen=True, slots=True)
class Home:
    """The memory of a parameter: an arena, and the index of the parameter in it."""

    arena: Arena
    index: int

    def param_view(self) -> View:
        """Return the view of the values."""
        return self.arena.tensor_view(self.arena.params, self.index)

    def grad_view(self) -> View:
        """Return the view of the gradient."""
        return self.arena.tensor_view(self.arena.grads, self.index)

"""Memory on a device of JAX: a handle has an array of words, or one of float32 for each of the stacks of an arena."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.backend import Stack
from ..arrays.jax_arrays import as_type, put
from .bindings import Array

__all__ = ["Constant", "Memory", "Piece", "StackMemory", "Stacked", "Words"]


class Constant:
    """Words that are known when a function is traced. Two with the same words are equal."""

    def __init__(self, words: np.ndarray[Any, Any]) -> None:
        self.words = words
        self._bytes = words.tobytes()  # which keep their hash

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._bytes == other._bytes


class Piece(NamedTuple):
    """Words of a part of memory that follow one another in an array too.

    Attributes:
        memory: that of the array.
        first: the number of the first word there.
        size: words.
        position: of the first one in the part.
    """

    memory: Memory | StackMemory
    first: int
    size: int
    position: int


class Memory:
    """A handle: arrays that each command that writes them replaces by new ones.

    Attributes:
        count: of words.
        stacks: of tensors that have an array each; if there are none, all words are one array.
        arrays: that array, or those of the stacks; None stands for zeros.
        content: the words, if they are not written any more.
        dtype: of the array, if there are no stacks.
    """

    __slots__ = ("_constants", "_of_stacks", "arrays", "content", "count", "stacks")
    dtype = np.dtype(np.uint32)

    def __init__(self, count: int, stacks: Sequence[Stack] = ()) -> None:
        """`count` words, all of them zero."""
        self.count = count
        self.stacks = tuple(stacks)
        self._of_stacks = [StackMemory(self, number) for number in range(len(stacks))]
        self.arrays: Any = None
        self.content: np.ndarray[Any, Any] | None = None
        self._constants: dict[tuple[int, int], Constant] = {}

    @property
    def whole(self) -> Memory:
        """The handle."""
        return self

    @property
    def leaves(self) -> Sequence[Memory | StackMemory]:
        """The memory of each array: itself, or those of the stacks."""
        return self._of_stacks or [self]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array, if there are no stacks."""
        return (self.count,)

    @property
    def layout(self) -> Any:
        """The shapes of the arrays, which functions are compiled for."""
        return self.stacks or self.shape

    def zeros(self) -> Any:
        """Return zeros for the arrays."""
        if self.stacks:
            return tuple(np.zeros(memory.shape, memory.dtype) for memory in self.leaves)
        return np.zeros(self.shape, self.dtype)

    def constant(self, offset: int, size: int) -> Constant:
        """Return a range of bytes of memory that has a content."""
        if (offset, size) not in self._constants:
            assert self.content is not None
            self._constants[offset, size] = Constant(self.content[offset // 4 : (offset + size) // 4])
        return self._constants[offset, size]

    def pieces(self, first: int, count: int) -> Iterator[Piece]:
        """Yield the words of a part, each in its array; those between tensors have none, and are zero."""
        if not self.stacks:
            yield Piece(self, first, count, 0)
            return
        for index, stack, numbers in _touched(self.stacks, first, count):
            if stack.size == stack.step:  # nothing lies between them
                begin, end = max(first, stack.words.start), min(first + count, stack.words.stop)
                yield Piece(self.leaves[index], begin - stack.first, end - begin, begin - first)
                continue
            for number in numbers:
                word = stack.first + number * stack.step
                begin, end = max(first, word), min(first + count, word + stack.size)
                if begin < end:
                    in_stack = number * stack.size + begin - word
                    yield Piece(self.leaves[index], in_stack, end - begin, begin - first)

    def only_piece(self, first: int, count: int) -> Piece | None:
        """Return the words of a part, if one array has them all."""
        if not count:
            return Piece(self.leaves[0], 0, 0, 0)
        piece = next(self.pieces(first, count), None)
        return piece if piece is not None and piece.size == count else None


class StackMemory:
    """The array of one of the stacks of a handle, as memory: its elements, without what is between tensors.

    Attributes:
        whole: the handle.
        count: of words.
        shape: of the array.
        dtype: of the array.
        stacks: none, as for all memory of one array.
    """

    __slots__ = ("_number", "count", "shape", "whole")
    stacks: tuple[Stack, ...] = ()
    dtype = np.dtype(np.float32)

    def __init__(self, whole: Memory, number: int) -> None:
        self.whole = whole
        self._number = number
        self.shape = whole.stacks[number].array_shape
        self.count = math.prod(self.shape)

    @property
    def layout(self) -> Any:
        """The shape and the type of the array, which functions are compiled for."""
        return self.shape, self.dtype

    @property
    def arrays(self) -> Any:
        """The array, once the handle has some."""
        return self.whole.arrays[self._number]

    @arrays.setter
    def arrays(self, array: Any) -> None:
        arrays = [*self.whole.arrays]
        arrays[self._number] = array
        self.whole.arrays = tuple(arrays)


class Words:
    """One array while a function is traced, as a vector of its elements, which have 32 bits.

    Attributes:
        size: of the vector.
    """

    def __init__(self, array: Array) -> None:
        self._shape = array.shape
        self._vector = array.reshape(-1)  # of the array's type: XLA writes no part of a vector in place that it casts
        self.size = self._vector.size

    @property
    def arrays(self) -> Array:
        """The array."""
        return self._vector.reshape(self._shape)

    def load(self, first: Any, count: int) -> Array:
        """Return `count` elements from element `first` on, a number or a traced one."""
        if not isinstance(first, int):
            return lax.dynamic_slice(self._vector, (first,), (count,))
        return self._vector if count == self.size else lax.slice(self._vector, (first,), (first + count,))

    def with_elements(self, first: Any, values: Array) -> Words:
        """Return the same with the bits of others in place of elements from element `first` on."""
        return Words(put(self._vector, values, first).reshape(self._shape))


class Stacked:
    """The arrays of stacks while a function is traced, as a vector of float32: what lies between tensors is zero.

    Attributes:
        stacks: of tensors.
        arrays: for each stack, (tensors, *shape).
        dtype: of the arrays.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, stacks: Sequence[Stack], arrays: Sequence[Array]) -> None:
        self.stacks = stacks
        self.arrays = tuple(arrays)

    @property
    def size(self) -> int:
        """The number of elements of the vector."""
        return self.stacks[-1].words.stop

    def rows(self, number: int, part: Stack) -> Array:
        """Return some tensors of a stack."""
        return _rows_of(self.arrays[number], self._numbers(number, part))

    def with_rows(self, number: int, part: Stack, tensors: Array) -> Stacked:
        """Return the same with other tensors in a stack, in place of a part of it."""
        new = _put_rows(self.arrays[number], tensors, self._numbers(number, part).start)
        return Stacked(self.stacks, (*self.arrays[:number], new, *self.arrays[number + 1 :]))

    def _numbers(self, number: int, part: Stack) -> range:
        first = (part.first - self.stacks[number].first) // part.step
        return range(first, first + part.tensors)

    def __getitem__(self, part: slice) -> Array:
        """Return elements, from a number to another one."""
        return self.load(part.start, part.stop - part.start)

    def load(self, first: int, count: int) -> Array:
        """Return `count` elements from element `first` on."""
        if not count:
            return jnp.zeros(0, np.float32)
        parts, position = [], first
        for index, stack, numbers in _touched(self.stacks, first, count):
            begin = stack.first + numbers.start * stack.step
            tensors = _rows_of(self.arrays[index], numbers).reshape(len(numbers), stack.size)
            if len(numbers) > 1:
                tensors = jnp.pad(tensors, ((0, 0), (0, stack.step - stack.size)))
            cut = max(first - begin, 0)
            elements = tensors.reshape(-1)[cut : first + count - begin]
            if elements.size:
                parts += [jnp.zeros(begin + cut - position, np.float32), elements]
                position = begin + cut + elements.size
        parts.append(jnp.zeros(first + count - position, np.float32))
        parts = [part for part in parts if part.size]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def with_elements(self, first: int, values: Array) -> Stacked:
        """Return the same with other elements from element `first` on; those between tensors are left out."""
        arrays = [*self.arrays]
        for index, stack, numbers in _touched(self.stacks, first, values.size):
            begin, end = (stack.first + number * stack.step for number in (numbers.start, numbers.stop))
            cut = max(first - begin, 0)
            elements = as_type(values, np.float32)[begin + cut - first :][: end - begin - cut]
            missing = end - begin - cut - elements.size
            if cut or missing > stack.step - stack.size:
                elements = put(self.load(begin, end - begin), elements, cut)
            elif missing:
                elements = jnp.pad(elements, (0, missing))
            tensors = elements.reshape(len(numbers), stack.step)[:, : stack.size].reshape(len(numbers), *stack.shape)
            arrays[index] = _put_rows(arrays[index], tensors, numbers.start)
        return Stacked(self.stacks, arrays)


def _touched(stacks: Sequence[Stack], first: int, count: int) -> Iterator[tuple[int, Stack, range]]:
    """Yield the stacks with tensors in a part of memory: the number of the stack, itself, and those of the tensors."""
    begin = bisect_right(stacks, first, key=attrgetter("first")) - 1
    for index in range(max(0, begin), len(stacks)):
        stack = stacks[index]
        if stack.first >= first + count:
            return
        numbers = stack.numbers(first, first + count)
        if numbers:
            yield index, stack, numbers


def _rows_of(array: Array, numbers: range) -> Array:
    """Return some rows of an array, along its first axis."""
    is_whole = len(numbers) == len(array)
    return array if is_whole else lax.slice_in_dim(array, numbers.start, numbers.stop)


def _put_rows(array: Array, rows: Array, first: int) -> Array:
    """Return an array with other rows along its first axis from number `first` on."""
    if len(rows) == len(array):
        return rows
    starts = np.zeros(array.ndim, np.int32)  # not of 64 bits where `jax_enable_x64` is set
    starts[0] = first
    return lax.dynamic_update_slice(array, rows, tuple(starts))

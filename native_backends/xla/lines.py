"""How elements of an arena find the lines that they are in; see `wgsl.line_lookup`.

Shapes are known when a function is traced: adjacent tensors of one shape are a stack, an array of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import line_lookup, rule_shell
from ...wgsl.shell import BLOCK
from ..arrays.jax_arrays import floats
from ..arrays.lines import Shape
from .bindings import Array

__all__ = ["Lines", "Stack"]


class Stack(NamedTuple):
    """Adjacent tensors of one shape.

    Attributes:
        tensors: their numbers.
        shape: the row of the table of the first one.
        words: the size of the state of a tensor's lines.
        partials: the number of partials of a tensor's lines.
    """

    tensors: tuple[int, ...]
    shape: Shape
    words: int
    partials: int

    @property
    def padded(self) -> int:
        """Elements from one tensor to the next."""
        return -(-self.shape.size // BLOCK) * BLOCK

    def follows(self, other: Stack) -> bool:
        """Return whether the first tensor of this stack comes after the last of another, and all are alike."""
        count, shape = len(other.tensors), other.shape
        return self.shape == shape._replace(
            first=shape.first + count * other.padded,
            lines=shape.lines + count * other.words,
            partials=shape.partials + count * other.partials,
        )

    def of(self, vector: Array, first: int, length: int) -> Array:
        """Return (tensors, length): of each tensor a part of a vector, the first of which begins at `first`."""
        return vector[first : first + len(self.tensors) * length].reshape(len(self.tensors), length, *vector.shape[1:])

    def elements(self, arena: Array) -> Array:
        """Return the elements of the tensors, (tensors, matrices, rows, columns), of a vector of the arena's."""
        flat = self.of(arena, self.shape.first, self.padded)[:, : self.shape.size]
        return flat.reshape(len(self.tensors), self.shape.matrices, self.shape.rows, self.shape.columns)

    def lines(self, kind: str, values: Array) -> Array:
        """Return the values of lines of a kind, (tensors, lines), to be broadcast over the elements."""
        sizes = {"row": (self.shape.rows, 1), "column": (1, self.shape.columns), "matrix": (1, 1)}[kind]
        return values.reshape(len(self.tensors), self.shape.matrices, *sizes)

    def padded_vector(self, values: Array) -> Array:
        """Return values of all elements, which may have to be broadcast, with the rest of blocks as a vector."""
        shape = (len(self.tensors), self.shape.matrices, self.shape.rows, self.shape.columns)
        flat = jnp.broadcast_to(values, shape).reshape(len(self.tensors), self.shape.size)
        return jnp.pad(flat, ((0, 0), (0, self.padded - self.shape.size))).reshape(-1)


class Lines:
    """The tables of `line_lookup` that a kernel is bound to."""

    def __init__(self, kernel: RuleKernel, bound: Mapping[str, Array], functions: Mapping[str, Any]) -> None:
        """Take the tables of a kernel, by name, and its functions."""
        module = kernel.map_module
        self.functions = functions
        self.members = line_lookup.line_members(module)
        self.state = floats(bound["lines"]) if "lines" in bound else None
        self.are_used = rule_shell.has_function(module, kernel.part) and line_lookup.looks_up(module, kernel.part)
        self._table = bound["shapes"].reshape(-1, line_lookup.SHAPE_WORDS)

    @cached_property
    def stacks(self) -> list[Stack]:
        """All tensors that have elements, as they follow one another."""
        shapes = sorted((Shape(*row), tensor) for tensor, row in enumerate(self._table.tolist()))
        stacks: list[Stack] = []
        for shape, tensor in shapes:
            if not shape.size:
                continue
            words = shape.state_of("", self.members) - shape.lines
            stack = Stack((tensor,), shape, words, shape.partials_of("")[0] - shape.partials)
            if stacks and stack.follows(stacks[-1]):
                stacks[-1] = stacks[-1]._replace(tensors=(*stacks[-1].tensors, tensor))
            else:
                stacks.append(stack)
        return stacks

    def tensors(self, count: int) -> np.ndarray[Any, Any]:
        """Return the number of the tensor of each of so many blocks; the last of the table for one that has none."""
        numbers = np.full(count, len(self._table) - 1, np.uint32)
        for stack in self.stacks:
            first, blocks = stack.shape.first // BLOCK, stack.padded // BLOCK
            numbers[first : first + len(stack.tensors) * blocks] = np.repeat(np.array(stack.tensors, np.uint32), blocks)
        return numbers

    def sizes(self, count: int) -> np.ndarray[Any, Any]:
        """Return how many elements each of so many blocks has."""
        sizes = np.zeros(count * BLOCK, np.uint32)
        for stack in self.stacks:
            stack.of(sizes, stack.shape.first, stack.padded)[:, : stack.shape.size] = 1
        counts: np.ndarray[Any, Any] = sizes.reshape(count, BLOCK).sum(axis=1, dtype=np.uint32)
        return counts

    def load(self, stack: Stack, kind: str) -> list[Array]:
        """Return (tensors, lines) for each member of the state of the lines of a kind."""
        assert self.state is not None
        words = stack.of(self.state, stack.shape.lines, stack.words)
        first, count = stack.shape.state_of(kind, self.members) - stack.shape.lines, stack.shape.count(kind)
        return [words[:, first + number * count :][:, :count] for number in range(len(self.members.get(kind, ())))]

    def struct(self, kind: str, values: Iterable[Array]) -> Any:
        """Return the state of lines as the struct of their kind, where the rule has a use for it."""
        name = line_lookup.LINE_STRUCTS[kind]
        return self.functions[name](*values) if name in self.functions else None

    def of_elements(self, stack: Stack) -> dict[str, Any]:
        """Return a function's arguments that depend on lines, by name, for the elements of a stack."""
        if not self.are_used:
            return {}
        values = {
            kind: self.struct(kind, (stack.lines(kind, member) for member in self.load(stack, kind)))
            for kind in self.members
        }
        return {**values, "is_matrix": np.bool_(stack.shape.is_matrix)}

    def joined(self, results: Sequence[Array], count: int) -> Array:
        """Return the elements of all blocks, (blocks, BLOCK), of those of each stack."""
        elements = jnp.zeros(count * BLOCK, np.float32)
        for stack, values in zip(self.stacks, results, strict=True):
            elements = self.replaced(elements, stack.shape.first, stack.padded_vector(values))
        return elements.reshape(count, BLOCK)

    @staticmethod
    def replaced(vector: Array, first: int, values: Array) -> Array:
        """Return a vector, or rows, with these values of the tensors of a stack from `first` on."""
        new = values.reshape(-1, *vector.shape[1:])
        return lax.dynamic_update_slice(vector, new, (first, *(0,) * (vector.ndim - 1)))

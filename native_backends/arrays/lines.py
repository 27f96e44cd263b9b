"""The rows, columns and matrices of a tensor of which a rule keeps state, for NumPy and JAX; see `wgsl.line_lookup`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import line_lookup, rule_shell
from ...wgsl.shell import BLOCK
from . import Array

__all__ = ["KINDS", "Lines", "Shape", "Stack"]

KINDS = tuple(line_lookup.LINE_STRUCTS)


class Shape(NamedTuple):
    """The members of Shape in WGSL; here all of an arena is seen at once."""

    first: int
    matrices: int
    rows: int
    columns: int
    lines: int
    partials: int
    log_rows: int
    log_columns: int
    turns: int
    is_matrix: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.matrices * self.rows * self.columns

    def count(self, kind: str) -> int:
        """Return the number of lines of a kind."""
        return line_lookup.line_counts(self.matrices, self.rows, self.columns)[kind]

    def length(self, kind: str) -> int:
        """Return the number of elements of a line of a kind."""
        return {"row": self.columns, "column": self.rows, "matrix": self.rows * self.columns}[kind]

    @property
    def partial_count(self) -> int:
        """The number of partials of all lines."""
        tiles = line_lookup.tiles_of_lines(self.rows, self.columns, self.log_rows, self.log_columns)
        return sum(self.turns * tiles[kind] * self.count(kind) for kind in KINDS)


class Stack(NamedTuple):
    """Adjacent tensors of one shape.

    Attributes:
        tensors: their numbers.
        shape: the row of the table of the first one.
        words: the size of the state of a tensor's lines.
        partials: the number of partials of a tensor's lines.
        lines: for each of the `KINDS`, where its state begins in that of a tensor, and the number of lines.
    """

    tensors: tuple[int, ...]
    shape: Shape
    words: int
    partials: int
    lines: tuple[tuple[int, int], ...]

    @property
    def padded(self) -> int:
        """Elements from one tensor to the next."""
        return -(-self.shape.size // BLOCK) * BLOCK

    def follows(self, other: Stack) -> bool:
        """Return whether the first tensor of this stack comes after the last of another, and all are alike."""
        return self.shape == other._moved(len(other.tensors))

    def _moved(self, count: int) -> Shape:
        """Return the shape of the tensor that is `count` after the first one."""
        return self.shape._replace(
            first=self.shape.first + count * self.padded,
            lines=self.shape.lines + count * self.words,
            partials=self.shape.partials + count * self.partials,
        )

    def part(self, first: int, count: int) -> Stack:
        """Return at most `count` of the tensors, from number `first` on."""
        return self._replace(tensors=self.tensors[first : first + count], shape=self._moved(first))

    def of(self, vector: Array, first: int, length: int) -> Array:
        """Return (tensors, length): of each tensor a part of a vector, the first of which begins at `first`."""
        return vector[first : first + len(self.tensors) * length].reshape(len(self.tensors), length, *vector.shape[1:])

    def elements(self, arena: Array) -> Array:
        """Return the elements of the tensors, (tensors, matrices, rows, columns), of a vector of the arena's."""
        flat = self.of(arena, self.shape.first, self.padded)[:, : self.shape.size]
        return flat.reshape(len(self.tensors), self.shape.matrices, self.shape.rows, self.shape.columns)

    def over_lines(self, kind: str, values: Array) -> Array:
        """Return the values of lines of a kind, (tensors, lines), to be broadcast over the elements."""
        sizes = {"row": (self.shape.rows, 1), "column": (1, self.shape.columns), "matrix": (1, 1)}[kind]
        return values.reshape(len(self.tensors), self.shape.matrices, *sizes)


class Lines:
    """The tables of `line_lookup` that a kernel is bound to.

    Attributes:
        are_used: the kernel's function takes the state of lines, or whether its tensor is a matrix.
    """

    def __init__(self, xp: Any, kernel: RuleKernel, functions: Mapping[str, Any], bound: Mapping[str, Array]) -> None:
        module, part = kernel.map_module, kernel.part
        self._functions = functions
        self._shapes = bound["shapes"]
        self._state = xp.floats(bound["lines"]) if "lines" in bound else None
        self._members = line_lookup.line_members(module)
        self.are_used = rule_shell.has_function(module, part) and line_lookup.looks_up(module, part)

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of all tensors that have elements, as they follow one another."""
        members = tuple((kind, tuple(names)) for kind, names in self._members.items())
        return _stacks(self._shapes.tobytes(), members)

    def load(self, stack: Stack) -> dict[str, list[Array]]:
        """Return (tensors, lines) for each member of the state of lines, by kind."""
        assert self._state is not None
        words = stack.of(self._state, stack.shape.lines, stack.words)
        members = {}
        for kind, (first, count) in zip(KINDS, stack.lines, strict=True):
            numbers = range(len(self._members.get(kind, ())))
            members[kind] = [words[:, first + number * count :][:, :count] for number in numbers]
        return members

    def struct(self, kind: str, values: Iterable[Array]) -> Any:
        """Return the state of lines as the struct of their kind, where the rule has a use for it."""
        name = line_lookup.LINE_STRUCTS[kind]
        return self._functions[name](*values) if name in self._functions else None

    def arguments(self, stack: Stack, part: Callable[[Array], Array] = lambda lines: lines) -> dict[str, Any]:
        """Return a function's arguments that depend on lines, by name, to be broadcast over elements.

        Args:
            stack: the tensors.
            part: takes some of the lines, (tensors, matrices, rows or 1, columns or 1).
        """
        values: dict[str, Any] = {"is_matrix": np.bool_(stack.shape.is_matrix)}
        for kind, members in self.load(stack).items():
            if kind in self._members:
                values[kind] = self.struct(kind, [part(stack.over_lines(kind, member)) for member in members])
        return values


@lru_cache(64)
def _stacks(table: bytes, members: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Stack, ...]:
    """Return the stacks of a table of shapes, for rules with these members of lines by kind."""
    rows, names = np.frombuffer(table, np.uint32).reshape(-1, line_lookup.SHAPE_WORDS).tolist(), dict(members)
    stacks: list[Stack] = []
    for shape, tensor in sorted((Shape(*row), tensor) for tensor, row in enumerate(rows)):
        if not shape.size:
            continue
        lines, words = [], 0
        for kind in KINDS:
            lines.append((words, shape.count(kind)))
            words += len(names.get(kind, ())) * shape.count(kind)
        stack = Stack((tensor,), shape, words, shape.partial_count, tuple(lines))
        if stacks and stack.follows(stacks[-1]):
            stacks[-1] = stacks[-1]._replace(tensors=(*stacks[-1].tensors, tensor))
        else:
            stacks.append(stack)
    return tuple(stacks)

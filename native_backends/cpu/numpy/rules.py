"""The arrays of kernels of rules in NumPy: they take a chunk of elements at once, and write in place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ....wgsl import rule_shell, slot_storage
from ....wgsl.shell import BLOCK
from ...arrays import numpy_arrays
from ...arrays.lines import Stack
from ...arrays.numpy_arrays import floats, put, runs, words
from ...arrays.rules import Part, RowPart, Rule, TensorScalars
from ...arrays.sparse import row_heads
from ...arrays.storage import block_maxima
from ...arrays.transforms import RowsOfTensors
from .library import CHUNK, Array

__all__ = ["BoundRule"]


class _Run(NamedTuple):
    """Elements for which a rule does the same: those of a tensor, or of adjacent tensors with equal tables.

    Attributes:
        tensor: the number of the first tensor.
        first: the first element.
        end: the end of the last tensor.
        gaps: the elements between the tensors, which are of none.
    """

    tensor: int
    first: int
    end: int
    gaps: list[slice]


class BoundRule(Rule):
    """A kernel of a rule with what it is bound to."""

    xp = numpy_arrays

    def put(self, name: str, values: Array, start: int = 0) -> None:
        put(words(self.bound[name]), words(values), start)

    def put_tensors(self, tensors: TensorScalars) -> None:
        new, old = np.empty((len(self.entries), self.table.shape[1]), np.uint32), self.table[: len(self.entries)]
        on = () if tensors.on is None else (tensors.on,)
        for number, column in enumerate((tensors.is_active, *tensors.hyper, *tensors.scalars, *on, *tensors.words)):
            new[:, number] = words(column)
        inactive = new[:, 0] == 0
        new[inactive, 1 : self.on_at] = old[inactive, 1 : self.on_at]
        old[...] = new

    def scalars_along(self, tensors: Sequence[int], axes: int) -> TensorScalars:
        if len(tensors) == 1:  # numbers are faster than arrays of one
            return self.scalars_of(self.table[tensors[0]])
        return super().scalars_along(tensors, axes)

    def table_rows(self, tensors: Sequence[int]) -> Array:
        rows: Array = self.table[list(tensors)]
        return rows

    @cached_property
    def _tells_tensors_apart(self) -> bool:
        """Elements need more of their tensor than its table, or are stored or measured block by block."""
        kinds = {self.param_kind or "float32", *self.kernel.slots.values()}
        return bool(self.transforms or self.lines or kinds != {"float32"} or "partials" in self.bound)

    def parts(self) -> Iterator[Part]:
        if "partials" in self.bound:
            self.bound["partials"][:] = 0
        if self.lines is not None and self.lines.are_used:
            for stack in self.stacks():
                yield from self._pieces(stack)
            return
        if self._tells_tensors_apart:
            for tensor, first, end in self._tensors:
                yield from self._chunks(tensor, first, end)
            return
        for tensor, first, end, gaps in self._runs():
            yield from self._chunks(tensor, first, end)
            for gap in gaps:  # which all kernels keep zero
                for name in ("params", *self.slots):
                    if name in self.bound:
                        self.vectors[name][gap] = 0

    @cached_property
    def _tensors(self) -> Sequence[tuple[int, int, int]]:
        """The runs of blocks of one tensor; the table is complete when they are first asked for."""
        return tuple(runs(self.bound["blocks"]))

    def _runs(self) -> Iterator[_Run]:
        run, table_of_run = None, b""
        for tensor, first, end in self._tensors:
            table = self.table[tensor].tobytes()
            if run is not None and table == table_of_run and first - run.end < BLOCK:
                if run.end < first:
                    run.gaps.append(slice(run.end, first))
                run = run._replace(end=end)
                continue
            if run is not None:
                yield run
            run, table_of_run = _Run(tensor, first, end, []), table
        if run is not None:
            yield run

    def _chunks(self, tensor: int, first: int, end: int) -> Iterator[_Chunk]:
        scalars = self.scalars_of(self.table[tensor])
        of_tensor = self.of_tensor(scalars)
        for start in range(first, end, CHUNK):
            yield _Chunk(self, tensor, scalars, of_tensor, slice(start, min(start + CHUNK, end)))

    def parts_with_rows(self) -> Iterator[_RowChunk]:
        p = self.parameters
        row, is_head = row_heads(numpy_arrays, p, self.bound["rows"])
        all_heads = np.flatnonzero(is_head)
        step = max(1, CHUNK // p["length"])
        for first in range(0, all_heads.size, step):
            heads = all_heads[first : first + step]
            yield _RowChunk(self, heads, row[heads])

    def rows_at_once(self, rows: RowsOfTensors) -> Iterator[RowsOfTensors]:
        step = max(1, CHUNK // rows.size)
        for number, tensor in enumerate(rows.tensors):
            for begin in range(0, rows.rows, step):
                yield RowsOfTensors(
                    (tensor,),
                    rows.number + number * rows.rows + begin,
                    rows.first + number * rows.padded + begin * rows.size,
                    min(step, rows.rows - begin),
                    rows.size,
                    begin,
                )

    def stacks(self) -> Iterator[Stack]:
        assert self.lines is not None
        for stack in self.lines.stacks:
            step = max(1, CHUNK // stack.padded)
            for first in range(0, len(stack.tensors), step):
                yield stack.part(first, step)

    def measured_in(self, stack: Stack) -> Iterator[list[Array]]:
        for piece in self._pieces(stack):
            values, shape = piece.call(self.kernel.part), piece.shape
            yield [value if value.shape == shape else np.broadcast_to(value, shape) for value in values]

    def _pieces(self, stack: Stack) -> Iterator[_Piece]:
        """Yield the elements of a stack: at once, or some whole matrices, or rows of each of them in turn."""
        _, matrices, rows, columns = shape = (len(stack.tensors), *stack.shape[1:4])
        scalars = self.scalars_along(stack.tensors, 3)
        of_tensor = self.of_tensor(scalars)
        steps = _steps(stack, in_blocks=slot_storage.is_blockwise(self.slots.values()))
        if steps is None:
            yield _Piece(self, stack, scalars, of_tensor, (0, 0), shape)
            return
        for matrix in range(0, matrices, steps[0]):
            for row in range(0, rows, steps[1]):
                part = (1, min(steps[0], matrices - matrix), min(steps[1], rows - row), columns)
                yield _Piece(self, stack, scalars, of_tensor, (matrix, row), part)


def _steps(stack: Stack, *, in_blocks: bool) -> tuple[int, int] | None:
    """Return the matrices and rows of the pieces of a stack, which are about as large as a chunk; None for one piece.

    Args:
        stack: the tensors, several only where together they are no larger than a chunk.
        in_blocks: pieces have whole blocks.
    """
    shape = stack.shape
    if len(stack.tensors) * shape.size <= CHUNK:
        return None
    matrix = shape.rows * shape.columns
    steps = max(1, CHUNK // matrix), max(1, min(shape.rows, CHUNK // shape.columns))
    if not in_blocks:
        return steps
    if shape.matrices > 1 and (steps[0] > 1 or matrix % BLOCK):
        return None
    rows = BLOCK // math.gcd(shape.columns, BLOCK)
    return 1, -(-steps[1] // rows) * rows


class _Chunk(Part):
    """Elements of the arena that follow one another, from the beginning of a block on."""

    rule: BoundRule

    def __init__(
        self, rule: BoundRule, tensor: int, scalars: TensorScalars, of_tensor: Mapping[str, Any], elements: slice
    ) -> None:
        self.rule, self.tensor, self.scalars, self.of_tensor = rule, tensor, scalars, of_tensor
        self.shape = (elements.stop - elements.start,)
        self._elements = elements
        self._first_block = elements.start // BLOCK

    def read(self, name: str) -> Array:
        elements: Array = self.rule.vectors[name][self._elements]
        return elements

    def write(self, name: str, values: Array, mask: Any) -> None:
        if isinstance(mask, np.ndarray):
            np.copyto(self.rule.vectors[name][self._elements], values, where=mask, casting="unsafe")
        else:
            self.rule.vectors[name][self._elements] = values

    @property
    def rounding_index(self) -> Array:
        return np.arange(self._elements.start, self._elements.stop, dtype=np.uint32)

    @property
    def index(self) -> Array:
        first = int(self.rule.block_entries[self._first_block, 0]) * BLOCK
        return np.arange(first, first + self.shape[0], dtype=np.uint32)

    @property
    def first_row(self) -> tuple[int, int]:
        _, first, size = self.rule.block_entries[self._first_block].tolist()
        return first, size

    def largest(self, name: str) -> Array:
        blocks = floats(self.rule.bound[name])[self._first_block : -(-self._elements.stop // BLOCK)]
        return np.repeat(blocks, BLOCK)[: self.shape[0]]

    def put_largest(self, name: str, values: Array, mask: Any) -> Array:
        blocks = block_maxima(numpy_arrays, values)
        floats(self.rule.bound[name])[self._first_block : self._first_block + blocks.size] = blocks
        return np.repeat(blocks, BLOCK)[: self.shape[0]]

    def put_partials(self, names: Sequence[str], values: Sequence[Array], mask: Any) -> None:
        partials = floats(self.rule.bound["partials"]).reshape(-1, len(names))
        for column, (name, value) in enumerate(zip(names, values, strict=True)):
            value = np.broadcast_to(value, self.shape)
            partials[self._first_block, column] = numpy_arrays.total_of(name, value, 0)


class _Piece(Part):
    """Elements of a stack of tensors, (tensors, matrices, rows, columns): all of them, or some of one tensor's."""

    rule: BoundRule

    def __init__(
        self, rule: BoundRule, stack: Stack, scalars: TensorScalars, of_tensor: Mapping[str, Any],
        begin: tuple[int, int], shape: tuple[int, int, int, int],
    ) -> None:  # fmt: skip
        self.rule, self.scalars, self.of_tensor, self.shape = rule, scalars, of_tensor, shape
        self._stack = stack
        self._matrix, self._row = begin
        self._size = math.prod(shape[1:])
        self._start = (self._matrix * stack.shape.rows + self._row) * stack.shape.columns  # in its tensor

    @property
    def tensor(self) -> Array:
        return np.array(self._stack.tensors, np.uint32).reshape(-1, 1, 1, 1)

    @property
    def _first_blocks(self) -> Array:
        """The number of the block in which each tensor's elements begin."""
        firsts: Array = self._stack.shape.first + self._start + np.arange(self.shape[0]) * self._stack.padded
        return firsts // BLOCK

    def read(self, name: str) -> Array:
        vector, first = self.rule.vectors[name], self._stack.shape.first + self._start
        elements: Array = vector[first : first + self._size] if self.shape[0] == 1 else self._stack.elements(vector)
        return elements.reshape(self.shape)

    def write(self, name: str, values: Array, mask: Any) -> None:
        if self.shape[0] > 1:
            np.copyto(self.read(name), values, where=mask, casting="unsafe")
        else:
            self.read(name)[...] = values

    @property
    def rounding_index(self) -> Array:
        firsts = self._stack.shape.first + self._stack.padded * np.arange(self.shape[0], dtype=np.uint32)
        return firsts.reshape(-1, 1, 1, 1) + self.index

    @property
    def index(self) -> Array:
        return np.arange(self._start, self._start + self._size, dtype=np.uint32).reshape(1, *self.shape[1:])

    @property
    def first_row(self) -> tuple[Array, Array]:
        first, size = self.rule.block_entries[self._first_blocks].T[1:].reshape(2, -1, 1, 1, 1)
        return first, size

    def largest(self, name: str) -> Array:
        return self._spread(floats(self.rule.bound[name])[self._blocks()])

    def put_largest(self, name: str, values: Array, mask: Any) -> Array:
        maxima = np.stack([block_maxima(numpy_arrays, tensor.reshape(-1)) for tensor in values])
        stored, blocks = floats(self.rule.bound[name]), self._blocks()
        stored[blocks] = np.where(np.reshape(mask, (-1, 1)), maxima, stored[blocks])
        return self._spread(maxima)

    def _blocks(self) -> Array:
        """Return the numbers of the blocks of the elements, (tensors, blocks); they begin with a block."""
        blocks: Array = self._first_blocks[:, None] + np.arange(-(-self._size // BLOCK))
        return blocks

    def _spread(self, maxima: Array) -> Array:
        return np.repeat(maxima, BLOCK, axis=1)[:, : self._size].reshape(self.shape)

    def put_partials(self, names: Sequence[str], values: Sequence[Array], mask: Any) -> None:
        partials = floats(self.rule.bound["partials"]).reshape(-1, len(names))
        for column, (name, value) in enumerate(zip(names, values, strict=True)):
            value = np.broadcast_to(np.where(mask, value, np.float32(0)), self.shape).reshape(self.shape[0], -1)
            old, new = partials[self._first_blocks, column], numpy_arrays.total_of(name, value, 1)
            is_maximum = name.startswith(rule_shell.MAXIMUM)  # another piece of the tensor may end in this block
            partials[self._first_blocks, column] = np.maximum(old, new) if is_maximum else old + new

    def of_lines(self) -> dict[str, Any]:
        lines, matrix, row = self.rule.lines, self._matrix, self._row
        assert lines is not None
        matrices, rows = slice(matrix, matrix + self.shape[1]), slice(row, row + self.shape[2])

        def part(member: Array) -> Array:
            """Return the lines of these elements, of those of the stack."""
            return member[:, matrices, rows if member.shape[2] > 1 else slice(None)]

        return lines.arguments(self._stack, part)


class _RowChunk(RowPart):
    """Some of the rows that have a gradient; see `arrays.sparse`.

    Args:
        rule: the kernel.
        heads: the number of the first entry of each row.
        rows: their numbers.
    """

    rule: BoundRule

    def __init__(self, rule: BoundRule, heads: Array, rows: Array) -> None:
        super().__init__(rule, rows)
        self._heads = heads

    def read(self, name: str) -> Array:
        is_gradient = name == self.rule.gradient
        rows: Array = self.as_rows(self.rule.vectors[name])[self._heads if is_gradient else self.rows]
        return rows

    def write(self, name: str, values: Array, mask: Any) -> None:
        self.as_rows(self.rule.vectors[name])[self.rows] = values

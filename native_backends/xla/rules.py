"""The arrays of kernels of rules in JAX: tensors of one shape are taken at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.backend import Stack
from ...runtime.rule_kernels import RuleKernel
from ...wgsl.shell import BLOCK
from ..arrays import Parameters, jax_arrays
from ..arrays.jax_arrays import as_type, floats, put, put_at, words
from ..arrays.lines import Stack as LineStack
from ..arrays.rules import Part, RowPart, Rule, TensorScalars
from ..arrays.sparse import row_heads
from ..arrays.transforms import RowsOfTensors
from .bindings import Array
from .memory import Stacked

__all__ = ["written"]

Table = np.ndarray[Any, Any]
"""Words that are known when a function is traced."""


def written(
    kernel: RuleKernel, arrays: Sequence[Any], parameters: Parameters, compute: Callable[[Rule], None]
) -> tuple[Any, ...]:
    """Return the new contents of the bindings that the kernel writes: flat, or in stacks as they were given.

    Args:
        kernel: of a rule.
        arrays: for each binding a vector, or what is `Stacked` of it.
        parameters: of the launch.
        compute: the kernel, as in `arrays.rule_kernels`.
    """
    rule = _Rule(kernel, arrays, parameters)
    if rule.lines is None or rule.lines.stacks:  # otherwise no tensor has elements
        compute(rule)
    pairs = zip(kernel.bindings, arrays, strict=True)
    return tuple(_as_bound(rule.new.get(binding.name, array), array) for binding, array in pairs if binding.writes)


def _as_bound(new: Any, array: Any) -> Any:
    """Return a new content with the type of what was bound, flat."""
    if isinstance(array, Stacked):
        return new
    return as_type(new if new.dtype.itemsize == 4 else words(new), array.dtype).reshape(-1)


class _Rule(Rule):
    """A kernel of a rule with what it is bound to.

    Attributes:
        new: what is written, by the names of the bindings.
    """

    xp = jax_arrays

    def __init__(self, kernel: RuleKernel, arrays: Sequence[Any], parameters: Parameters) -> None:
        super().__init__(kernel, arrays, parameters)
        self.new: dict[str, Any] = {}

    def put(self, name: str, values: Array, start: int = 0) -> None:
        self.new[name] = put(self.new.get(name, self.bound[name]), values, start)

    def put_tensors(self, tensors: TensorScalars) -> None:
        count, is_due = len(self.entries), tensors.is_active != 0
        on = [] if tensors.on is None else [tensors.on]
        columns = [tensors.is_active]
        for number, column in enumerate((*tensors.hyper, *tensors.scalars), 1):
            columns.append(jnp.where(is_due, words(column), self.table[:count, number]))
        rows = [jnp.broadcast_to(words(column), count) for column in (*columns, *on, *tensors.words)]
        self.put("tensor_scalars", jnp.stack(rows, axis=1))

    def table_rows(self, tensors: Sequence[int]) -> Array:
        rows = [_rows(self.table, series) for series in _series(tensors)]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows)

    def parts(self) -> Iterator[_Tensors]:
        if self.lines is not None and self.lines.are_used:
            for lines in self.lines.stacks:
                yield from self._parts_of(lines)
            return
        for number, stack in enumerate(self.arena):
            tensors, sizes = self._blocks[stack.first // BLOCK :: stack.step // BLOCK][: stack.tensors].T
            is_ours = tensors + 1 < len(self.table)  # the last row stands for tensors of others
            ends = np.flatnonzero(np.diff(is_ours, prepend=False, append=False)).tolist()
            for first, end in zip(ends[::2], ends[1::2], strict=True):
                ours = tuple(tensors[first:end].tolist())
                yield _Tensors(self, stack.part(first, end), ours, number, sizes=sizes[first:end])

    def parts_with_rows(self) -> Iterator[_RowEntries]:
        yield _RowEntries(self)

    def rows_at_once(self, rows: RowsOfTensors) -> Iterator[RowsOfTensors]:
        yield rows

    def stacks(self) -> Sequence[LineStack]:
        assert self.lines is not None
        return self.lines.stacks

    def measured_in(self, stack: LineStack) -> Iterator[list[Array]]:
        measured = []
        for part in self._parts_of(stack):
            values = part.call(self.kernel.part)
            measured.append([jnp.broadcast_to(value, part.shape) for value in values])
        yield measured[0] if len(measured) == 1 else list(map(jnp.concatenate, zip(*measured, strict=True)))

    @cached_property
    def _blocks(self) -> Table:
        """The table of blocks: the number of the tensor, and how many elements are its."""
        table: Table = self.bound["blocks"].reshape(-1, 2)
        return table

    @cached_property
    def arena(self) -> Sequence[Stack]:
        """The tensors of the arena, others' too."""
        bound = next((array for array in self.bound.values() if isinstance(array, Stacked)), None)
        return _stacks_of(self._blocks) if bound is None else bound.stacks

    def _parts_of(self, lines: LineStack) -> Iterator[_Tensors]:
        """Yield the tensors of a stack of lines, which may have several shapes."""
        first = 0
        while first < len(lines.tensors):
            remaining = lines.part(first, len(lines.tensors))
            begin, step = remaining.shape.first, remaining.padded
            number, stack = next(pair for pair in enumerate(self.arena) if begin in pair[1].words)
            alike = remaining.part(0, (stack.words.stop - begin) // step)
            is_stacked = (stack.size, stack.step) == (alike.shape.size, step)
            shape = stack.shape if is_stacked else (alike.shape.size,)
            at = Stack(begin, len(alike.tensors), step, shape)
            yield _Tensors(self, at, alike.tensors, number if is_stacked else None, alike)
            first += len(alike.tensors)


def _stacks_of(blocks: Table) -> Sequence[Stack]:
    """Return a stack for each tensor of an arena without any, of its table of blocks."""
    begins = np.flatnonzero(np.diff(blocks[:, 0].astype(np.int64), prepend=-1))
    ends = [*begins[1:].tolist(), len(blocks)]
    return [
        Stack(begin * BLOCK, 1, (end - begin) * BLOCK, (int(blocks[begin:end, 1].sum()),))
        for begin, end in zip(begins.tolist(), ends, strict=True)
    ]


class _Series(NamedTuple):
    """Tensors whose numbers have the same distance, each as often in turn."""

    first: int
    length: int
    step: int
    repeats: int


def _series(tensors: Sequence[int]) -> Iterator[_Series]:
    """Yield the series that the tensors make up."""
    series: _Series | None = None
    for tensor, repeated in groupby(tensors):
        repeats = len(list(repeated))
        if series is not None and repeats == series.repeats:
            step = tensor - series.first if series.length == 1 else series.step
            if step > 0 and tensor == series.first + series.length * step:
                series = series._replace(length=series.length + 1, step=step)
                continue
        if series is not None:
            yield series
        series = _Series(tensor, 1, 1, repeats)
    if series is not None:
        yield series


def _rows(table: Array, series: _Series) -> Array:
    end, width = series.first + (series.length - 1) * series.step + 1, table.shape[1]
    rows = lax.slice(table, (series.first, 0), (end, width), (series.step, 1))
    shape = (series.length, series.repeats, width)
    return rows if series.repeats == 1 else jnp.broadcast_to(rows[:, None], shape).reshape(-1, width)


class _Tensors(Part):
    """Tensors of one shape, (tensors, *shape), or (tensors, matrices, rows, columns) for functions of lines; or blocks.

    Args:
        rule: the kernel.
        stack: their places in the arena.
        tensors: the numbers by which the rule has them, for each block its tensor's.
        number: the index of their stack in the arena; None for tensors in one of blocks.
        lines: their rows and columns, if the function takes these.
        sizes: of the first block of each.
    """

    rule: _Rule

    def __init__(
        self,
        rule: _Rule,
        stack: Stack,
        tensors: tuple[int, ...],
        number: int | None,
        lines: LineStack | None = None,
        sizes: Table | None = None,
    ) -> None:
        self.rule, self._stack, self._number, self._lines = rule, stack, number, lines
        self.shape = (len(tensors), *(stack.shape if lines is None else lines.shape[1:4]))
        axes = len(self.shape) - 1
        self.tensor = np.array(tensors, np.uint32).reshape(-1, *(1,) * axes)
        self.scalars = rule.scalars_along(tensors, axes)
        self.of_tensor = rule.of_tensor(self.scalars)
        self._is_inside: Any = np.True_  # in blocks: which elements belong to their tensors
        self._has_blocks = number is not None and rule.arena[number].shape == (BLOCK,)
        if sizes is not None and self._has_blocks and (sizes < BLOCK).any():
            self._is_inside = lax.broadcasted_iota(np.uint32, self.shape, 1) < sizes.reshape(-1, 1)

    def read(self, name: str) -> Array:
        vector = self.rule.vectors[name]
        if isinstance(vector, Stacked) and self._number is not None:
            return vector.rows(self._number, self._stack).reshape(self.shape)
        return self._of_blocks(vector, self._stack.step)[:, : self._stack.size].reshape(self.shape)

    def write(self, name: str, values: Array, mask: Any) -> None:
        old = self.read(name)
        elements = jnp.where(mask & self._is_inside, values.astype(old.dtype), old)
        rule, stack = self.rule, self._stack
        new = rule.new.get(name, rule.vectors[name])
        if not isinstance(new, Stacked):
            rule.new[name] = put(new, self._padded(elements), stack.first)
        elif self._number is None:
            rule.new[name] = new.with_elements(stack.first, self._padded(elements).reshape(-1))
        else:
            rule.new[name] = new.with_rows(self._number, stack, elements.reshape(stack.array_shape))

    def _padded(self, elements: Array) -> Array:
        """Return elements with zeros up to the next tensor, (tensors, elements)."""
        tensors, stack = elements.reshape(self.shape[0], -1), self._stack
        zero = np.zeros((), tensors.dtype)  # `jnp.pad` would convert one of 64 bits where `jax_enable_x64` is set
        return lax.pad(tensors, zero, [(0, 0, 0), (0, stack.step - stack.size, 0)])

    def _of_blocks(self, vector: Array, each: int) -> Array:
        """Return the tensors' part of a vector that has `each` numbers for a tensor, (tensors, each)."""
        first = self._stack.first * each // self._stack.step
        return vector[first : first + self.shape[0] * each].reshape(self.shape[0], each)

    @property
    def _blocks(self) -> int:
        """The number of blocks of each tensor."""
        return self._stack.step // BLOCK

    @property
    def _block_entries(self) -> Table:
        """The rows of `block_entries` for the first block of each tensor, by columns."""
        table: Table = self.rule.block_entries[self._stack.first // BLOCK :: self._blocks][: self.shape[0]]
        return table.T.reshape(-1, *self.tensor.shape)

    @property
    def rounding_index(self) -> Array:
        firsts = np.array(self._stack.words[:: self._stack.step], np.uint32)
        return firsts.reshape(self.tensor.shape) + self._iota

    @property
    def _iota(self) -> Array:
        return lax.iota(np.uint32, self._stack.size).reshape(1, *self.shape[1:])

    @property
    def index(self) -> Array:
        return self._iota if self._blocks > 1 else self._block_entries[0] * np.uint32(BLOCK) + self._iota

    @property
    def first_row(self) -> tuple[Array, Array]:
        _, first, size = self._block_entries
        return first, size

    def of_rows(self, values: Array) -> Array:
        if self._has_blocks:
            return super().of_rows(values)
        _, firsts, sizes = self._block_entries.reshape(3, -1).tolist()
        count = self._stack.size // sizes[0]
        follow = range(firsts[0], firsts[0] + len(firsts) * count, count)
        if firsts != [*follow]:
            return super().of_rows(values)
        rows = values[follow.start : follow.stop].reshape(-1, count, 1)
        return jnp.broadcast_to(rows, (*rows.shape[:2], sizes[0])).reshape(self.shape)

    def largest(self, name: str) -> Array:
        return self._spread(self._of_blocks(floats(self.rule.bound[name]), self._blocks))

    def _spread(self, maxima: Array) -> Array:
        """Return for each element the number of its block, (tensors, blocks)."""
        elements = jnp.repeat(maxima, BLOCK, axis=1)[:, : self._stack.size]
        return elements.reshape(self.shape)

    def put_largest(self, name: str, values: Array, mask: Any) -> Array:
        rule, vector = self.rule, floats(self.rule.bound[name])
        values = jnp.where(self._is_inside, jnp.abs(values), np.float32(0))
        maxima = self._padded(values).reshape(self.shape[0], self._blocks, BLOCK).max(axis=2)
        stored = jnp.where(mask.reshape(-1, 1), maxima, self._of_blocks(vector, self._blocks))
        rule.new[name] = put(rule.new.get(name, vector), stored, self._stack.first // BLOCK)
        return self._spread(maxima)

    def put_partials(self, names: Sequence[str], values: Sequence[Array], mask: Any) -> None:
        rule, totals = self.rule, []
        for name, value in zip(names, values, strict=True):
            total = jnp.broadcast_to(jnp.where(mask & self._is_inside, value, np.float32(0)), self.shape)
            while total.ndim > 1:
                total = jax_arrays.total_of(name, total, total.ndim - 1)
            totals.append(total)
        of_blocks = jnp.pad(jnp.stack(totals, axis=1)[:, None], ((0, 0), (0, self._blocks - 1), (0, 0)))
        bound = rule.bound["partials"]
        partials = rule.new.get("partials", jnp.zeros(bound.size, np.float32))
        rule.new["partials"] = put(partials, of_blocks, self._stack.first // BLOCK * len(names))

    def of_lines(self) -> dict[str, Any]:
        lines = self.rule.lines
        assert lines is not None
        assert self._lines is not None
        return lines.arguments(self._lines)


class _RowEntries(RowPart):
    """All entries of a gradient that has some rows alone: the first of each row stands for all."""

    rule: _Rule

    def __init__(self, rule: _Rule) -> None:
        rows, self._is_head = row_heads(jax_arrays, rule.parameters, rule.bound["rows"])
        super().__init__(rule, rows)

    def read(self, name: str) -> Array:
        vector = self.rule.vectors[name]
        if name == self.rule.gradient:
            return vector[: self.shape[0] * self.shape[1]].reshape(self.shape)
        return jnp.take(self.as_rows(vector), self.rows, axis=0, mode="clip")

    def write(self, name: str, values: Array, mask: Any) -> None:
        old = self.rule.vectors[name]
        values = jnp.broadcast_to(values, self.shape).astype(old.dtype)
        table = put_at(self.as_rows(old), self.rows, values, self._is_head & mask)
        self.rule.new[name] = put(old, table)

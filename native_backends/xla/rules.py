"""The arrays of kernels of rules in JAX: they take all elements of an arena at once, by blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.rule_kernels import RuleKernel
from ...wgsl.shell import BLOCK
from ..arrays import Parameters, jax_arrays
from ..arrays.jax_arrays import as_type, floats, put, put_at, words
from ..arrays.lines import Stack
from ..arrays.rules import Part, RowPart, Rule, TensorScalars
from ..arrays.sparse import row_heads
from ..arrays.transforms import RowsOfTensors
from .bindings import Array

__all__ = ["written"]

Table = np.ndarray[Any, Any]
"""Words that are known when a function is traced."""


def written(
    kernel: RuleKernel, arrays: Sequence[Array], parameters: Parameters, compute: Callable[[Rule], None]
) -> tuple[Array, ...]:
    """Return the new contents of the bindings that the kernel writes, flat.

    Args:
        kernel: of a rule.
        arrays: for each binding a vector.
        parameters: of the launch.
        compute: the kernel, as in `arrays.rule_kernels`.
    """
    rule = _Rule(kernel, arrays, parameters)
    if rule.lines is None or rule.lines.stacks:  # otherwise no tensor has elements
        compute(rule)
    pairs = zip(kernel.bindings, arrays, strict=True)
    return tuple(
        as_type(rule.new.get(binding.name, array), array.dtype).reshape(-1)
        for binding, array in pairs
        if binding.writes
    )


class _Rule(Rule):
    """A kernel of a rule with what it is bound to.

    Attributes:
        new: what is written, by the names of the bindings.
    """

    xp = jax_arrays

    def __init__(self, kernel: RuleKernel, arrays: Sequence[Array], parameters: Parameters) -> None:
        super().__init__(kernel, arrays, parameters)
        self.new: dict[str, Array] = {}

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
        numbers = np.array(tensors)
        return jnp.concatenate([_rows(self.table, series) for series in _series(numbers, np.ones_like(numbers))])

    def parts(self) -> Iterator[_Blocks]:
        tensors, sizes = self.bound["blocks"].reshape(-1, 2).T
        yield _Blocks(self, tensors, sizes)

    def parts_with_rows(self) -> Iterator[_RowEntries]:
        yield _RowEntries(self)

    def rows_at_once(self, rows: RowsOfTensors) -> Iterator[RowsOfTensors]:
        yield rows

    def stacks(self) -> Sequence[Stack]:
        assert self.lines is not None
        return self.lines.stacks

    def measured_in(self, stack: Stack) -> Iterator[list[Array]]:
        values = self._of_stacks[stack]
        yield [jnp.broadcast_to(value, (len(stack.tensors), *stack.shape[1:4])) for value in values]

    @cached_property
    def _of_stacks(self) -> Mapping[Stack, Any]:
        """The results of the kernel's function for the elements of each stack."""
        assert self.lines is not None
        count = self.bound["params" if "params" in self.bound else "grads"].size // BLOCK
        numbers = np.full(count, len(self.table) - 1, np.uint32)  # the last one stands for tensors of others
        is_element = np.zeros(count * BLOCK, np.uint32)
        for stack in self.lines.stacks:
            stack.of(is_element, stack.shape.first, stack.padded)[:, : stack.shape.size] = 1
            first, blocks = stack.shape.first // BLOCK, stack.padded // BLOCK
            numbers[first : first + len(stack.tensors) * blocks] = np.repeat(np.array(stack.tensors, np.uint32), blocks)
        blocks_of_all = _Blocks(self, numbers, is_element.reshape(count, BLOCK).sum(axis=1, dtype=np.uint32))
        return dict(zip(self.lines.stacks, blocks_of_all.of_stacks(self.kernel.part), strict=True))


class _Series(NamedTuple):
    """Tensors whose numbers have the same distance, and which have as many blocks."""

    first: int
    length: int
    step: int
    blocks: int


def _series(tensors: Table, blocks: Table) -> Iterator[_Series]:
    """Yield the series that the tensors make up."""
    series: _Series | None = None
    for tensor, count in zip(tensors.tolist(), blocks.tolist(), strict=True):
        if series is not None and count == series.blocks:
            step = tensor - series.first if series.length == 1 else series.step
            if step > 0 and tensor == series.first + series.length * step:
                series = series._replace(length=series.length + 1, step=step)
                continue
        if series is not None:
            yield series
        series = _Series(tensor, 1, 1, count)
    if series is not None:
        yield series


def _rows(table: Array, series: _Series) -> Array:
    end = series.first + (series.length - 1) * series.step + 1
    return lax.slice(table, (series.first, 0), (end, table.shape[1]), (series.step, 1))


def _repeated(table: Array, tensors: Table) -> Array:
    """Return for each block the row of its tensor in a table. XLA would look each element's up, if these were taken."""
    begins = np.flatnonzero(np.diff(tensors.astype(np.int64), prepend=-1))
    parts = []
    for series in _series(tensors[begins], np.diff(begins, append=tensors.size)):
        shape = (series.length, series.blocks, table.shape[1])
        parts.append(jnp.broadcast_to(_rows(table, series)[:, None], shape).reshape(-1, table.shape[1]))
    return lax.optimization_barrier(jnp.concatenate(parts))


class _Blocks(Part):
    """All elements of an arena, (blocks, BLOCK).

    Args:
        rule: the kernel.
        tensor: the number of each block's tensor.
        sizes: how many elements of the block are that tensor's.
    """

    rule: _Rule

    def __init__(self, rule: _Rule, tensor: Table, sizes: Table) -> None:
        scalars = rule.scalars_of(_repeated(rule.table, tensor)).expanded(1)
        self.rule, self.tensor, self.scalars, self.of_tensor = (
            rule,
            tensor.reshape(-1, 1),
            scalars,
            rule.of_tensor(scalars),
        )
        self.shape = (tensor.size, BLOCK)
        self._is_inside = lax.broadcasted_iota(np.uint32, self.shape, 1) < sizes.reshape(-1, 1)

    def read(self, name: str) -> Array:
        return self.rule.vectors[name][: self.shape[0] * BLOCK].reshape(self.shape)

    def write(self, name: str, values: Array, mask: Any) -> None:
        old, elements = self.rule.vectors[name], self.read(name)
        new = jnp.where(mask & self._is_inside, values.astype(old.dtype), elements)
        self.rule.new[name] = _stored(new.reshape(-1), old[elements.size :])

    @property
    def rounding_index(self) -> Array:
        return lax.iota(np.uint32, self.shape[0] * BLOCK).reshape(self.shape)

    @property
    def index(self) -> Array:
        first = self.rule.block_entries[: self.shape[0], :1] * BLOCK
        return first + lax.broadcasted_iota(np.uint32, self.shape, 1)

    @property
    def first_row(self) -> tuple[Array, Array]:
        entries = self.rule.block_entries[: self.shape[0]]
        return entries[:, 1:2], entries[:, 2:3]

    def largest(self, name: str) -> Array:
        return floats(self.rule.bound[name]).reshape(-1, 1)

    def put_largest(self, name: str, values: Array, mask: Any) -> Array:
        mask = mask & self._is_inside
        largest = jnp.abs(jnp.where(mask, values, np.float32(0))).max(axis=1, keepdims=True)
        self.rule.new[name] = jnp.where(mask.any(axis=1, keepdims=True), largest, self.largest(name))
        return largest

    def put_partials(self, names: Sequence[str], values: Sequence[Array], mask: Any) -> None:
        totals = []
        for name, value in zip(names, values, strict=True):
            kept = jnp.where(mask & self._is_inside, value, np.float32(0))
            totals.append(jax_arrays.total_of(name, kept, 1))
        self.rule.new["partials"] = jnp.stack(totals, axis=1)

    def of_lines(self) -> dict[str, Any]:
        return {}  # `of_stacks` adds them

    def call(self, function: str, grad: Array | None = None) -> Any:
        lines = self.rule.lines
        if lines is None or not lines.are_used:
            return super().call(function, grad)
        return jax.tree.map(partial(self._joined, lines.stacks), *self.of_stacks(function, grad))

    def of_stacks(self, function: str, grad: Array | None = None) -> list[Any]:
        """Return the results of a function of the rule for the elements of each stack of tensors."""
        rule, lines, elements = self.rule, self.rule.lines, self.arguments(grad)
        assert lines is not None
        results = []
        for stack in lines.stacks:
            values = jax.tree.map(partial(self._of_stack, stack), elements)
            values |= rule.of_tensor(rule.scalars_along(stack.tensors, 3))
            values |= lines.arguments(stack) if lines.are_used else {}
            results.append(rule.call(function, values))
        return results

    def _of_stack(self, stack: Stack, values: Array) -> Array:
        """Return the values of a stack's elements, of those of all blocks; a number as it is."""
        return stack.elements(values.reshape(-1)) if values.shape == self.shape else values

    def _joined(self, stacks: Sequence[Stack], *results: Array) -> Array:
        """Return the values of all blocks, of those of each stack's elements, which may have to be broadcast."""
        elements = jnp.zeros(self.shape[0] * BLOCK, np.float32)
        for stack, values in zip(stacks, results, strict=True):
            count, shape = len(stack.tensors), stack.shape
            flat = jnp.broadcast_to(values, (count, *shape[1:4])).reshape(count, shape.size)
            padded = jnp.pad(flat, ((0, 0), (0, stack.padded - shape.size)))
            elements = put(elements, padded, shape.first)
        return elements.reshape(self.shape)


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
        self.rule.new[name] = _stored(table.reshape(-1), old[table.size :])


def _stored(vector: Array, remainder: Array) -> Array:
    """Return the words of a vector, which a 16-bit element may follow that fills the last word."""
    whole = jnp.concatenate([vector, remainder]) if remainder.size else vector
    return whole if whole.dtype.itemsize == 4 else words(whole)

"""The kernels of rules over arrays: their tables, the elements of an arena by blocks, and sums over these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import rule_shell, shell, transform_lookup
from ...wgsl.shell import BLOCK
from ..arrays.jax_arrays import as_type, floats, functions_of, words
from .bindings import Array, total_of
from .lines import Lines, Stack
from .slots import Params, Slot, largest_of
from .transforms import Transforms

__all__ = [
    "Blocks",
    "BoundRule",
    "TensorScalars",
    "entries_of",
    "measured_by_block",
    "measured_by_tensor",
    "partials_of",
    "taken",
    "with_columns",
    "written",
]


_MOST_COMPARED = 1 << 20
"""Comparisons of numbers of rows that are sooner made than a gather."""

Table = np.ndarray[Any, Any]
"""Words that are known when a function is traced."""


class TensorScalars(NamedTuple):
    """The rows of `tensor_scalars` of some tensors, by columns."""

    is_active: Array
    hyper: list[Array]
    scalars: list[Array]
    step: Array
    on: Array | None
    words: list[Array]  # of transforms


class BoundRule:
    """A kernel of a rule with what it is bound to."""

    def __init__(self, kernel: RuleKernel, arrays: Sequence[Array]) -> None:
        self.kernel = kernel
        self.bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
        self.functions = functions_of(kernel)
        self.module = kernel.map_module
        rule = kernel.rule
        self.width = 1 + len(rule.hyper) + len(rule.scalars) + (1 + len(rule.transforms) if rule.stages else 0)
        self.table = words(self.bound["tensor_scalars"]).reshape(-1, self.width)
        self.transforms = Transforms(kernel, self.bound, self.functions) if rule.stages else None
        self.lines = Lines(kernel, self.bound, self.functions) if "shapes" in self.bound else None

    def scalars_of(self, rows: Array) -> TensorScalars:
        """Return rows of the table, (..., width), by columns of shape (...)."""
        rule = self.kernel.rule
        columns = [rows[..., number] for number in range(self.width)]
        first = 1 + len(rule.hyper)
        end = first + len(rule.scalars)
        scalars = [floats(column) for column in columns[first:end]]
        return TensorScalars(
            columns[0],
            [floats(column) for column in columns[1:first]],
            scalars,
            scalars[rule.scalars.index("step")],
            columns[end] if rule.stages else None,
            columns[end + 1 :],
        )

    def rows_of(self, tensors: Sequence[int]) -> Array:
        """Return the rows of the table for some tensors, (tensors, width)."""
        numbers = np.array(tensors)
        return jnp.concatenate([_rows(self.table, series) for series in _series(numbers, np.ones_like(numbers))])

    def of_tensor(self, scalars: TensorScalars) -> dict[str, Any]:
        """Return the arguments that every function of the rule takes for tensors: `h` (Hyper) and `s` (Scalars)."""
        return {"h": self.struct("Hyper", scalars.hyper), "s": self.struct("Scalars", scalars.scalars)}

    def struct(self, name: str, columns: Iterable[Any]) -> Any:
        """A struct of the rule, where it has a use for it."""
        return self.functions[name](*columns) if name in self.functions else None

    def call(self, function: str, values: Mapping[str, Any]) -> Any:
        """Return the result of a function of the rule, called with the values that its parameters name."""
        names = rule_shell.arguments_of(self.module, function, dict.fromkeys(values, ""))
        return self.functions[function](*(values[name] for name in names))


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


class Blocks:
    """All blocks of an arena: arrays of (blocks, BLOCK), and of (blocks, 1) for what is one tensor's.

    Args:
        rule: the kernel.
        tensor: the number of each block's tensor.
        sizes: how many elements of the block are that tensor's.
    """

    def __init__(self, rule: BoundRule, tensor: Table, sizes: Table) -> None:
        self.rule = rule
        self.shape = (tensor.size, BLOCK)
        self.tensor = tensor.reshape(-1, 1)
        self.scalars = rule.scalars_of(_repeated(rule.table, tensor)[:, None, :])
        self.inside = lax.broadcasted_iota(np.uint32, self.shape, 1) < sizes.reshape(-1, 1)

    @classmethod
    def of(cls, rule: BoundRule) -> Blocks:
        """Return the blocks of the table that the kernel is bound to."""
        tensor, sizes = rule.bound["blocks"].reshape(-1, 2).T
        return cls(rule, tensor, sizes)

    @property
    def places(self) -> Array:
        """The number of each element."""
        return lax.iota(np.uint32, self.shape[0] * BLOCK).reshape(self.shape)

    def floats(self, name: str) -> Array:
        """A binding that is laid out like the arena."""
        return floats(self.rule.bound[name]).reshape(self.shape)

    def params(self) -> Params:
        """The parameters."""
        return Params(self.rule.kernel.param_kind, self.rule.bound, self.shape)

    def slots(self) -> dict[str, Slot]:
        """The slots of state that are bound."""
        bound = self.rule.bound
        kinds = self.rule.kernel.slots.items()
        return {
            name: Slot(kind, bound[name], self.shape, largest_of(bound, name)) for name, kind in kinds if name in bound
        }

    def elements(self, grad: Array | None = None) -> dict[str, Any]:
        """Return arguments of the rule's functions by name; `grad` is the kept gradient of transforms that gather."""
        rule, kernel = self.rule, self.rule.kernel
        values = rule.of_tensor(self.scalars)
        if "params" in rule.bound:
            values["param"] = self.params().load()
        if "grads" in rule.bound:
            if grad is None:
                grad = self.floats("grads")
                if rule.transforms is not None:
                    grad = self.transformed("transform_gradient", grad)
            values["grad"] = -grad if kernel.negates else grad
        if "State" in rule.functions:
            slots = self.slots()
            state = [slots[name].load() if name in slots else np.float32(0) for name in kernel.rule.state]
            values["state"] = rule.struct("State", state)
        return values

    def call(self, function: str, grad: Array | None = None) -> Any:
        """Return the results of a function of the rule for all elements; `grad` as `elements` takes it."""
        lines = self.rule.lines
        if lines is None or not lines.are_used:
            return self.rule.call(function, self.elements(grad))
        results = self.of_stacks(function, grad)
        return jax.tree.map(lambda *values: lines.joined(values, self.shape[0]), *results)

    def of_stacks(self, function: str, grad: Array | None = None) -> list[Any]:
        """Return the results of a function of the rule for the elements of each stack of tensors."""
        rule, lines, elements = self.rule, self.rule.lines, self.elements(grad)
        assert lines is not None
        results = []
        for stack in lines.stacks:
            own = jax.tree.map(partial(self._of_stack, stack), elements)
            own |= rule.of_tensor(rule.scalars_of(rule.rows_of(stack.tensors)[:, None, None, None]))
            results.append(rule.call(function, own | lines.of_elements(stack)))
        return results

    def _of_stack(self, stack: Stack, values: Array) -> Array:
        """Return the values of a stack's elements, of those of all blocks; a number as it is."""
        return stack.elements(values.reshape(-1)) if values.shape == self.shape else values

    def transformed(self, function: str, grad: Array, t: Any = None, on: Any = None) -> Array:
        """Return the result of a function of the transforms over all blocks."""
        rule, transforms = self.rule, self.rule.transforms
        assert transforms is not None
        values: dict[str, Any] = {"grad": grad, "tensor": self.tensor}
        values["t"] = transforms.struct(self.scalars.words) if t is None else t
        values["on"] = self.scalars.on if on is None else on
        names = transform_lookup.parameters_of(rule.module, function)
        if "param" in names:
            values["param"] = self.floats("params")
        if "kept" in names:
            values["kept"] = self.floats("kept")
        if "block_entries" in rule.bound:
            entries = words(rule.bound["block_entries"]).reshape(-1, transform_lookup.BLOCK_ENTRY_WORDS)
            block, first_row, row_size = (column[:, None] for column in entries.T)
            index = block * BLOCK + lax.broadcasted_iota(np.uint32, self.shape, 1)
            values["index"] = index
            rows = (name for name in names if name not in values)
            values |= {name: transforms.row_values(name, first_row, row_size, index) for name in rows}
        return rule.functions[function](*(values[name] for name in names))

    def gather(self, is_due: Array) -> tuple[Array, Array]:
        """Return, where gradients are kept for a step, the gradient of the step, and the kept gradient after it."""
        kept = self.floats("kept")
        gathered = self.transformed("gather_gradient", self.floats("grads"))
        assert self.scalars.on is not None
        changes = (is_due | ((self.scalars.on & 1) != 0)) & self.inside
        new = jnp.where(changes, jnp.where(is_due, np.float32(0), gathered), kept)
        return self.transformed("finish_gradient", gathered), new


def written(
    kernel: RuleKernel, arrays: Sequence[Array], compute: Callable[[BoundRule], Mapping[str, Array]]
) -> tuple[Array, ...]:
    """Return the new contents of the bindings that the kernel writes, flat; `compute` returns them by name."""
    rule = BoundRule(kernel, arrays)
    is_empty = rule.lines is not None and not rule.lines.stacks  # no tensor has elements
    new = {} if is_empty else compute(rule)
    pairs = zip(kernel.bindings, arrays, strict=True)
    return tuple(
        as_type(new.get(binding.name, array), array.dtype).reshape(-1) for binding, array in pairs if binding.writes
    )


def entries_of(rule: BoundRule) -> Array:
    """The table of tensors, by rows."""
    return words(rule.bound["tensors"]).reshape(-1, rule_shell.ENTRY_WORDS)


def partials_of(rule: BoundRule, struct: str) -> tuple[list[str], Array]:
    """The members of what is measured, and the table of it, by rows."""
    names = shell.member_names(rule.module, struct)
    return names, floats(rule.bound["partials"]).reshape(-1, len(names))


def with_columns(rule: BoundRule, tensors: TensorScalars) -> Array:
    """Return the table of the rule with these columns for the first tensors."""
    on = [] if tensors.on is None else [tensors.on]
    columns = [tensors.is_active, *tensors.hyper, *tensors.scalars, *on, *tensors.words]
    count = tensors.is_active.size
    rows = jnp.stack([words(jnp.broadcast_to(column, count)) for column in columns], axis=1)
    return jnp.concatenate([rows, rule.table[count:]])


def measured_by_block(names: Sequence[str], values: Iterable[Array], mask: Array) -> Array:
    """(blocks, members): of each member the sum over a block, or the largest value, where the mask is set."""
    columns = []
    for name, value in zip(names, values, strict=True):
        kept = jnp.where(mask, value, np.float32(0))
        columns.append(kept.max(axis=1) if name.startswith(rule_shell.MAXIMUM) else total_of(kept))
    return jnp.stack(columns, axis=1)


def measured_by_tensor(names: Sequence[str], partials: Array, entries: Array | None) -> list[Array]:
    """Return the sum (or maximum) of each member over each entry's blocks, as (entries,); over all if None."""
    if isinstance(entries, np.ndarray):
        return _totals_of_known(names, partials, entries)
    columns = []
    if entries is not None:
        number = lax.iota(np.uint32, partials.shape[0])
        first, blocks = entries[:, 2:3], entries[:, 3:4]
        mask = (number >= first) & (number < first + blocks)
    for name, column in zip(names, partials.T, strict=True):
        kept = column if entries is None else jnp.where(mask, column, np.float32(0))
        is_largest = name.startswith(rule_shell.MAXIMUM)
        columns.append(jnp.maximum(kept.max(axis=-1), 0) if is_largest else total_of(kept))
    return columns


def _totals_of_known(names: Sequence[str], partials: Array, entries: Table) -> list[Array]:
    """`measured_by_tensor` where it is known which blocks each tensor has: those of as many blocks are one array."""
    order = np.argsort(entries[:, 2], kind="stable")
    first, blocks = entries[order, 2].astype(np.int64), entries[order, 3].astype(np.int64)
    is_next = (blocks[1:] == blocks[:-1]) & (first[1:] == first[:-1] + blocks[:-1])
    begins = np.flatnonzero(np.concatenate([[True], ~is_next]))
    parts = []
    for begin, end in zip(begins, [*begins[1:], order.size], strict=True):
        own = partials[first[begin] : first[begin] + (end - begin) * blocks[begin]]
        parts.append(own.reshape(end - begin, blocks[begin], len(names)))
    columns = []
    for number, name in enumerate(names):
        is_largest = name.startswith(rule_shell.MAXIMUM)
        totals = [
            part[:, :, number].max(axis=1, initial=0) if is_largest else total_of(part[:, :, number]) for part in parts
        ]
        columns.append(jnp.concatenate(totals))
    return list(taken(jnp.stack(columns, axis=1), np.argsort(order)).T)


def taken(table: Array, numbers: Array) -> Array:
    """Return rows of a table, by number; compared with all, as long as that is little: XLA gathers slowly."""
    if table.shape[0] * numbers.size > _MOST_COMPARED:
        return jnp.take(table, numbers, axis=0, mode="clip")
    is_row = numbers.reshape(-1, 1, 1) == np.arange(table.shape[0], dtype=np.uint32).reshape(1, -1, 1)
    return as_type(jnp.where(is_row, words(table), np.uint32(0)).max(axis=1), table.dtype)

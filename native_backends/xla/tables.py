"""The kernels of rules over arrays: their tables, the elements of an arena by blocks, and sums over these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import rule_shell, shell, transform_lookup
from ...wgsl.shell import BLOCK
from ..arrays.jax_arrays import as_type, floats, functions_of, words
from .bindings import Array, total_of
from .lines import Lines
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
    "with_columns",
    "written",
]


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


class Blocks:
    """All blocks of an arena: arrays of (blocks, BLOCK), and of (blocks, 1) for what is one tensor's.

    Args:
        rule: the kernel.
        tensor: the number of each block's tensor.
        sizes: how many elements of the block are that tensor's.
    """

    def __init__(self, rule: BoundRule, tensor: Array, sizes: Array) -> None:
        self.rule = rule
        self.shape = (tensor.size, BLOCK)
        self.tensor = tensor.reshape(-1, 1)
        self.scalars = rule.scalars_of(jnp.take(rule.table, tensor, axis=0, mode="clip")[:, None, :])
        self.inside = lax.broadcasted_iota(np.uint32, self.shape, 1) < sizes.reshape(-1, 1)

    @classmethod
    def of(cls, rule: BoundRule) -> Blocks:
        """Return the blocks of the table that the kernel is bound to."""
        tensor, sizes = words(rule.bound["blocks"]).reshape(-1, 2).T
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
        if rule.lines is not None:
            values |= rule.lines.of_elements(self.tensor, self.places)
        return values

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
    new = compute(rule)
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

"""Gradient transforms: what the kernels of rules need of them; see `wgsl.transform_lookup`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...wgsl import shell, transform_lookup
from ...wgsl.shell import BLOCK
from ..arrays.jax_arrays import floats, words
from .bindings import Array

if TYPE_CHECKING:
    from .tables import Blocks, BoundRule, Its

__all__ = ["Transforms"]


class Transforms:
    """The tables of transforms that a kernel is bound to."""

    def __init__(self, rule: BoundRule) -> None:
        self.rule = rule
        self.gathers = rule.kernel.rule.gathers

    def struct(self, columns: Sequence[Array]) -> Any:
        """The struct Transforms of columns of words."""
        remaining, functions = iter(columns), self.rule.functions
        members = iter(self.rule.kernel.rule.transforms)
        values = [[_as(next(remaining), next(members).type) for _ in range(one.members)] for one in self._stages]
        names = shell.struct_of(self.rule.module, "Transforms").members
        pairs = zip(names, values, strict=True)
        return functions["Transforms"](*(functions[str(name.type)](*value) for name, value in pairs))

    @property
    def _stages(self) -> Sequence[Any]:
        return self.rule.kernel.rule.stages

    def given(self) -> Any:
        """The struct Transforms that the host sets, of arrays of one element."""
        return self.struct(list(words(self.rule.bound["transforms"]).reshape(-1, 1)))

    def takes_part(self, on: Any) -> Any:
        """Return whether transforms apply to the tensors with this `on`."""
        return on != 0 if self.gathers else (on & 1) != 0

    def scale(self) -> Any:
        """That of the loss."""
        return floats(self.rule.bound["scaler"])[0] if "scaler" in self.rule.bound else np.float32(1)

    def begun(self, columns: Sequence[Array], on: Array) -> Any:
        """Return the struct Transforms at the beginning of a call, from columns of words and the tensors' `on`."""
        live = (on & 1).astype(np.float32)
        return self.rule.functions["begin_transforms"](self.struct(columns), self.given(), self.scale(), live)

    def row_values(self, name: str, first_row: Array, row_size: Array, index: Array) -> Array:
        """Return, for each element at `index`, the value of a transform's row that the element is in."""
        found = floats(self.rule.bound[f"rows{name.removeprefix('row')}"])
        return jnp.take(found, first_row + index // jnp.maximum(row_size, 1), mode="clip")

    def call(self, function: str, blocks: Blocks, grad: Array, t: Any = None, on: Any = None) -> Array:
        """A function of the glue over all blocks."""
        values: dict[str, Any] = {"grad": grad, "tensor": blocks.tensor}
        values["t"] = self.struct(blocks.its.words) if t is None else t
        values["on"] = blocks.its.on if on is None else on
        names = transform_lookup.parameters_of(self.rule.module, function)
        if "param" in names:
            values["param"] = blocks.floats("params")
        if "kept" in names:
            values["kept"] = blocks.floats("kept")
        if "block_places" in self.rule.bound:
            places = words(self.rule.bound["block_places"]).reshape(-1, 3)
            block, first_row, row_size = (places[:, number : number + 1] for number in range(3))
            index = block * BLOCK + lax.broadcasted_iota(np.uint32, blocks.shape, 1)
            values["index"] = index
            rows_asked = (name for name in names if name not in values)
            values |= {name: self.row_values(name, first_row, row_size, index) for name in rows_asked}
        return self.rule.functions[function](*(values[name] for name in names))

    def gather(self, blocks: Blocks, is_due: Array) -> tuple[Array, Array]:
        """Where gradients are kept for a step: the gradient of the step, and what is kept then."""
        kept = blocks.floats("kept")
        gathered = self.call("gather_gradient", blocks, blocks.floats("grads"))
        assert blocks.its.on is not None
        changes = (is_due | ((blocks.its.on & 1) != 0)) & blocks.inside
        new = jnp.where(changes, jnp.where(is_due, np.float32(0), gathered), kept)
        return self.call("finish_gradient", blocks, gathered), new

    def begin(
        self, entries: Array, its: Its, totals: Sequence[Array], number: int | None, rest: Any, skip: Array
    ) -> Its:
        """Run the transforms' part of `advance` for all tensors, and return their new scalars.

        Args:
            entries: of all tensors.
            its: their scalars.
            totals: what was measured over all tensors.
            number: of the transform that is settled here.
            rest: what is_active is where a tensor has no gradient.
            skip: this call is left out.
        """
        functions, count = self.rule.functions, entries.shape[0]
        on = jnp.where(skip, np.uint32(0), entries[:, 1])
        t = self.begun(its.words, on)
        if number is not None:
            measured = functions[f"Partial{number}"](*totals)
            t = functions[f"settle_transform_{number}"](t, measured, entries[:, 4].astype(np.float32))
        new = [jnp.where(skip, old, one) for one, old in zip(self.columns_of(t, count), its.words, strict=True)]
        is_active = jnp.where(skip, np.uint32(0), functions["activity"](t, on, rest))
        return its._replace(is_active=jnp.broadcast_to(is_active, count), on=on, words=new)

    @staticmethod
    def columns_of(struct: Any, count: int) -> list[Array]:
        """Columns of words from a struct Transforms of arrays."""
        return [words(jnp.broadcast_to(value, count)) for member in struct for value in member]


def _as(column: Array, type_: str) -> Array:
    return floats(column) if type_ == "f32" else column

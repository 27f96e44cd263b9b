"""The tables of gradient transforms that a rule's kernels are bound to; see `wgsl.transform_lookup`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import shell
from ..arrays.jax_arrays import floats, words
from .bindings import Array

__all__ = ["Transforms"]


class Transforms:
    """The tables of transforms that a kernel is bound to."""

    def __init__(self, kernel: RuleKernel, bound: Mapping[str, Array], functions: Mapping[str, Any]) -> None:
        """Take the tables of a kernel, by name, and its functions."""
        self.rule = kernel.rule
        self.module = kernel.map_module
        self.bound = bound
        self.functions = functions
        self.gathers = kernel.rule.gathers

    def struct(self, columns: Sequence[Array]) -> Any:
        """Return the struct Transforms of columns of words."""
        remaining, members, functions = iter(columns), iter(self.rule.transforms), self.functions
        values = [
            [_as(next(remaining), next(members).type) for _ in range(stage.members)] for stage in self.rule.stages
        ]
        names = shell.struct_of(self.module, "Transforms").members
        pairs = zip(names, values, strict=True)
        return functions["Transforms"](*(functions[str(name.type)](*value) for name, value in pairs))

    def settings(self) -> Any:
        """Return the struct Transforms that the host sets, of arrays of one element."""
        return self.struct(list(words(self.bound["transforms"]).reshape(-1, 1)))

    def takes_part(self, on: Any) -> Any:
        """Return whether transforms apply to the tensors with this `on`."""
        return on != 0 if self.gathers else (on & 1) != 0

    def scale(self) -> Any:
        """Return the scale of the loss."""
        return floats(self.bound["scaler"])[0] if "scaler" in self.bound else np.float32(1)

    def struct_at_begin(self, columns: Sequence[Array], on: Array) -> Any:
        """Return the struct Transforms at the beginning of a call, from columns of words and the tensors' `on`."""
        live = (on & 1).astype(np.float32)
        return self.functions["begin_transforms"](self.struct(columns), self.settings(), self.scale(), live)

    def row_values(self, name: str, first_row: Array, row_size: Array, index: Array) -> Array:
        """Return, for each element at `index`, the value of a transform's row that the element is in."""
        rows = floats(self.bound[f"rows{name.removeprefix('row')}"])
        return jnp.take(rows, first_row + index // jnp.maximum(row_size, 1), mode="clip")

    def begin(
        self,
        entries: Array,
        columns: Sequence[Array],
        totals: Sequence[Array],
        number: int | None,
        inactive: Any,
        skip: Array,
    ) -> tuple[Array, Array, list[Array]]:
        """Run the transforms' part of `advance`, and return is_active, `on` and the columns of words of all tensors.

        Args:
            entries: of all tensors.
            columns: of words, of the struct Transforms of all tensors.
            totals: what was measured over all tensors.
            number: of the transform that is settled here.
            inactive: is_active of a tensor without a gradient.
            skip: this call is left out.
        """
        functions, count = self.functions, entries.shape[0]
        on = jnp.where(skip, np.uint32(0), entries[:, 1])
        t = self.struct_at_begin(columns, on)
        if number is not None:
            measured = functions[f"Partial{number}"](*totals)
            t = functions[f"settle_transform_{number}"](t, measured, entries[:, 4].astype(np.float32))
        new = [jnp.where(skip, old, value) for value, old in zip(self.columns_of(t, count), columns, strict=True)]
        is_active = jnp.where(skip, np.uint32(0), functions["activity"](t, on, inactive))
        return jnp.broadcast_to(is_active, count), on, new

    @staticmethod
    def columns_of(struct: Any, count: int) -> list[Array]:
        """Return columns of words from a struct Transforms of arrays."""
        return [words(jnp.broadcast_to(value, count)) for member in struct for value in member]


def _as(column: Array, type_: str) -> Array:
    return floats(column) if type_ == "f32" else column

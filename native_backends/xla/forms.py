"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...lower.arrays import Reductions, lowered, table_shapes
from ...runtime.form_kernels import FormKernel
from ...wgsl.jax_dialect import JAX
from ..arrays.jax_arrays import put
from .bindings import Array

__all__ = ["lower_form"]


def _taken(table: Array, columns: Array) -> Array:
    return jnp.take_along_axis(table, columns.astype(np.int32), axis=1, mode="promise_in_bounds")


_OF_ROWS = Reductions(
    sum=lambda table: table.sum(axis=1, keepdims=True),
    max=lambda table: table.max(axis=1, keepdims=True),
    taken=_taken,
)


@cache
def _of_segments(segment: int) -> Reductions:
    """Return reductions of segments of rows, of so many columns."""

    def cut(table: Array, neutral: float) -> Array:
        outer, columns, inner = table.shape
        padded = jnp.pad(table, ((0, 0), (0, -columns % segment), (0, 0)), constant_values=neutral)
        return padded.reshape(outer, -1, segment, inner)

    return Reductions(
        sum=lambda table: cut(table, 0.0).sum(axis=2),
        max=lambda table: cut(table, -jnp.inf).max(axis=2),
        taken=_taken,
    )


def lower_form(kernel: FormKernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that the kernel writes."""
    form, columns, inner = kernel.form, values["columns"], values["inner"]
    shapes = table_shapes((kernel.elements(values) // (columns * inner), columns, inner))
    reductions = _of_segments(values["segment"]) if kernel.layout == "segments" else _OF_ROWS
    operands = []
    for array, kind in zip(arrays, form.kinds[: len(form.reads)], strict=False):
        operands.append(array[: math.prod(shapes[kind])].reshape(shapes[kind]))
    results = lowered(form, JAX, reductions).call(columns, *operands, *(values[name] for name in form.numbers))
    return tuple(put(old, result) for old, result in zip(arrays[len(form.reads) :], results, strict=True))

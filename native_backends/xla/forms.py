"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...lower.arrays import Reductions, lowered, table_shapes
from ...runtime.form_kernels import FormKernel
from ...wgsl.jax_dialect import JAX
from ..arrays.jax_arrays import put
from .bindings import Array
from .windows import lower_windows

__all__ = ["lower_form"]


def _taken(table: Array, columns: Array) -> Array:
    return jnp.take_along_axis(table, columns.astype(np.int32), axis=1, mode="promise_in_bounds")


_OF_ROWS = Reductions(
    sum=lambda table: table.sum(axis=1, keepdims=True),
    max=lambda table: table.max(axis=1, keepdims=True),
    argmax=lambda table: table.argmax(axis=1, keepdims=True).astype(np.uint32),
    argmin=lambda table: table.argmin(axis=1, keepdims=True).astype(np.uint32),
    taken=_taken,
)


@cache
def _of_segments(segment: int) -> Reductions:
    """Return reductions of segments of rows, of so many columns."""

    def cut(table: Array, sign: int) -> Array:
        """Return (outer, segments, segment, inner); what is added is 0, or beyond all on the side of the sign."""
        outer, columns, inner = table.shape
        is_float = jnp.issubdtype(table.dtype, jnp.floating)
        largest, smallest = (np.inf, -np.inf) if is_float else (jnp.iinfo(table.dtype).max, jnp.iinfo(table.dtype).min)
        neutral = table.dtype.type({0: 0, 1: largest, -1: smallest}[sign])
        padded = jnp.pad(table, ((0, 0), (0, -columns % segment), (0, 0)), constant_values=neutral)
        return padded.reshape(outer, -1, segment, inner)

    return Reductions(
        sum=lambda table: cut(table, 0).sum(axis=2),
        max=lambda table: cut(table, -1).max(axis=2),
        argmax=lambda table: cut(table, -1).argmax(axis=2).astype(np.uint32),
        argmin=lambda table: cut(table, 1).argmin(axis=2).astype(np.uint32),
        taken=lambda table, columns: _taken(table, columns + _begin(columns.shape[1], segment)),
    )


def _begin(segments: int, segment: int) -> Array:
    """Return the columns at which segments begin, with the axes of tables."""
    return lax.iota(np.uint32, segments)[None, :, None] * np.uint32(segment)


def lower_form(kernel: FormKernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that the kernel writes."""
    if kernel.layout == "windows":
        return lower_windows(kernel.form, values, arrays)
    form, columns, inner = kernel.form, values["columns"], values["inner"]
    shapes = table_shapes((kernel.elements(values) // (columns * inner), columns, inner))
    reductions, begin = _OF_ROWS, np.zeros((1, 1, 1), np.uint32)
    if kernel.layout == "segments":
        segment = values["segment"]
        reductions, begin = _of_segments(segment), _begin(-(-columns // segment), segment)
    operands = []
    for array, kind in zip(arrays, form.kinds[: len(form.reads)], strict=False):
        operands.append(array[: math.prod(shapes[kind])].reshape(shapes[kind]))
    results = lowered(form, JAX, reductions).call(columns, begin, *operands, *(values[name] for name in form.numbers))
    return tuple(put(old, result) for old, result in zip(arrays[len(form.reads) :], results, strict=True))

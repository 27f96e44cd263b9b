"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...lower.arrays import Reductions, lowered, table_shapes
from ...runtime.form_kernels import FormKernel
from ...wgsl.jax_dialect import JAX
from ..arrays.jax_arrays import put
from .bindings import Array

__all__ = ["lower_form"]

_REDUCTIONS = Reductions(
    sum=lambda table: table.sum(axis=1, keepdims=True), max=lambda table: table.max(axis=1, keepdims=True)
)


def lower_form(kernel: FormKernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that the kernel writes."""
    form, space = kernel.form, (values["rows"] // values["inner"], values["columns"], values["inner"])
    shapes = [table_shapes(space)[kind] for kind in form.kinds[0]]
    operands = (array[: math.prod(shape)].reshape(shape) for array, shape in zip(arrays, shapes, strict=False))
    results = lowered(form, JAX, _REDUCTIONS).call(space[1], *operands, *(values[name] for name in form.numbers))
    return tuple(put(old, result) for old, result in zip(arrays[len(form.reads) :], results, strict=True))

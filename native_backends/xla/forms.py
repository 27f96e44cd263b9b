"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...lower.arrays import Reductions, lowered
from ...runtime.form_kernels import FormKernel
from ...wgsl.jax_dialect import JAX
from ..arrays.jax_arrays import put
from .bindings import Array

__all__ = ["lower_form"]

_REDUCTIONS = Reductions(
    sum=lambda table: table.sum(axis=1, keepdims=True),
    max=lambda table: table.max(axis=1, keepdims=True),
    across=lambda numbers, _: numbers,
)


def lower_form(kernel: FormKernel, values: Mapping[str, Any], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the arrays that the kernel writes."""
    shape = values["rows"] // values["inner"], values["columns"], values["inner"]
    read_count = len(kernel.form.reads)
    tables = (array[: math.prod(shape)].reshape(shape) for array in arrays[:read_count])
    results = lowered(kernel.form, JAX, _REDUCTIONS)(shape[1], *tables)
    return tuple(put(old, result) for old, result in zip(arrays[read_count:], results, strict=True))

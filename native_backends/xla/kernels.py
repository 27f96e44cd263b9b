"""Kernels as functions of arrays: map functions and forms printed for JAX; `library` has what replaces the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ...runtime.factored import LineMeasureKernel, LineSettleKernel
from ...runtime.form_kernels import FormKernel
from ...runtime.fused_kernels import FusedKernel, FusedMapKernel
from ...runtime.kernels import ElementwiseKernel, Kernel, SourceKernel
from ...runtime.option_kernels import OptionKernel
from ...runtime.rows import RowsKernel
from ...runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, RuleKernel, SettleKernel, UpdateKernel
from ...runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ...wgsl import shell
from ..arrays.jax_arrays import as_type, functions_of, put, strided
from . import (
    factored,
    fused,
    measured,
    options,
    rows,
    rules,
)
from .bindings import DTYPES, Array
from .forms import lower_form
from .library import REPLACEMENTS, TRACED
from .packed import packed
from .tables import written

__all__ = ["lower", "traced_parameters"]

Values = Mapping[str, Any]

_RULES: Mapping[type, Any] = {
    AdvanceKernel: rules.advance,
    LineMeasureKernel: factored.measure_lines,
    LineSettleKernel: factored.settle_lines,
    MeasureKernel: rules.measure,
    RoundKernel: rules.round_params,
    SettleKernel: rules.settle,
    TransformMeasureKernel: measured.measure,
    TransformRowsKernel: measured.rows,
    TransformSettleKernel: measured.settle,
    UpdateKernel: rules.update,
}


def lower(kernel: Kernel, values: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the bindings that the kernel writes, in their order.

    Args:
        kernel: what to compute.
        values: its parameters, numbers or traced scalars.
        arrays: for each binding a vector of the type of its elements, of u32 where these are structs.
    """
    if isinstance(kernel, RuleKernel) and type(kernel) in _RULES:
        return written(kernel, arrays, _RULES[type(kernel)])
    match kernel:
        case ElementwiseKernel():
            return _elementwise(kernel, values, arrays)
        case FusedMapKernel():
            return fused.fused_map(kernel, values, arrays)
        case FusedKernel():
            return fused.fused(kernel, values, arrays, partial(_source, kernel.base))
        case OptionKernel():
            return options.follow(kernel, values, arrays)
        case RowsKernel():
            return rows.update_rows(kernel, values, arrays)
        case SourceKernel():
            return _source(kernel, values, *arrays)
    return packed(kernel, values, arrays, lower)


def _source(kernel: SourceKernel, values: Values, *arrays: Array) -> tuple[Array, ...]:
    if isinstance(kernel, FormKernel):
        return lower_form(kernel, values, arrays)
    return REPLACEMENTS[kernel.name]({**kernel.constants, **values}, *arrays)


def traced_parameters(kernel: Kernel) -> dict[str, str]:
    """The parameters that decide no shape, which differ from call to call of one compiled function; and their types."""
    match kernel:
        case ElementwiseKernel():
            names = {name for name, _ in kernel.parameters if not _is_shape(name)}
        case FusedMapKernel():
            names = {name for name, _ in fused.own_parameters(kernel.fused) if not _is_shape(name)}
        case FusedKernel():
            names = {name for name, _ in fused.own_parameters(kernel.fused) if not _is_shape(name)}
            names |= _traced(kernel.base)
        case OptionKernel():
            names = {name for name, _ in kernel.parameters}
        case SourceKernel():
            names = _traced(kernel)
        case _:
            base = getattr(kernel, "base", None)  # of a kernel over halves
            return {} if base is None else traced_parameters(base)
    return {name: "i32" if name.endswith("_start") else type_ for name, type_ in kernel.parameters if name in names}


def _traced(kernel: SourceKernel) -> set[str]:
    return set(kernel.form.numbers if isinstance(kernel, FormKernel) else TRACED.get(kernel.name, ()))


def _is_shape(name: str) -> bool:
    """Return whether a map function's launch parameter is the size, a dimension or a stride, by name."""
    stem = name.rstrip("0123456789")
    return name == "size" or stem == "dim" or stem.endswith("_stride")


def _elementwise(kernel: ElementwiseKernel, values: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    declared = shell.function_of(kernel.map_module, kernel.name)
    size = values["size"]
    shape = tuple(values[f"dim{axis}"] for axis in range(kernel.rank)) or (size,)
    old = arrays[-1]
    kinds, remaining = iter(kernel.operands), iter(arrays)
    operands: list[Any] = []
    for parameter in declared.parameters:
        dtype = DTYPES[str(parameter.type)]
        kind = "index" if parameter.name == "index" else next(kinds)
        if kind == "index":
            operands.append(lax.iota(np.uint32, size).reshape(shape))
        elif kind == "result":
            operands.append(as_type(old[:size], dtype).reshape(shape))
        elif kind == "scalar":
            operands.append(jnp.asarray(values[parameter.name], dtype))
        elif kernel.rank:
            strides = [values[f"{parameter.name}_stride{axis}"] for axis in range(kernel.rank)]
            operands.append(strided(next(remaining), values[f"{parameter.name}_start"], shape, strides))
        else:
            operands.append(next(remaining)[:size])
    result = jnp.asarray(functions_of(kernel)[kernel.name](*operands))
    if result.dtype == np.bool_:
        result = result.astype(np.uint32)
    return (put(old, jnp.broadcast_to(result, shape)),)

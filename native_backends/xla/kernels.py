"""Kernels as functions of arrays: map functions and forms printed for JAX; `library` has what replaces the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

from ...runtime.form_kernels import FormKernel
from ...runtime.kernels import Kernel, SourceKernel
from ...runtime.map_kernels import FusedKernel, MapKernel
from ...runtime.option_kernels import OptionKernel
from ...runtime.rows import RowsKernel
from ...runtime.rule_kernels import RuleKernel
from ..arrays.rule_kernels import RULE_KERNELS
from . import maps, options
from .bindings import Array
from .forms import lower_form
from .library import REPLACEMENTS, TRACED
from .packed import packed
from .rules import written
from .windows import TRACED_OF_WINDOWS

__all__ = ["has_constant_tables", "lower", "traced_parameters"]

Values = Mapping[str, Any]


def has_constant_tables(kernel: Kernel | None) -> TypeGuard[RuleKernel]:
    """Return whether the kernel is one of a rule over an arena: its tables of tensors have to be NumPy arrays."""
    return isinstance(kernel, RuleKernel) and not isinstance(kernel, RowsKernel)


def lower(kernel: Kernel, values: Values, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the new contents of the bindings that the kernel writes, in their order.

    Args:
        kernel: what to compute.
        values: its parameters, numbers or traced scalars.
        arrays: for each binding a vector of the type of its elements, of u32 where these are structs; or what is
            `Stacked` of an arena, as it is returned then, too.
    """
    if isinstance(kernel, RuleKernel):
        return written(kernel, arrays, values, RULE_KERNELS[type(kernel)])
    match kernel:
        case MapKernel():
            return maps.lower_map(kernel, values, arrays)
        case FusedKernel():
            return maps.fused(kernel, values, arrays, partial(_source, kernel.base))
        case OptionKernel():
            return options.follow(kernel, values, arrays)
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
        case MapKernel():
            names = _traced_of_map(kernel)
        case FusedKernel():
            names = _traced_of_map(kernel) | _traced(kernel.base)
        case OptionKernel():
            names = {name for name, _ in kernel.parameters}
        case SourceKernel():
            names = _traced(kernel)
        case _:
            base = getattr(kernel, "base", None)  # of a kernel over halves
            return {} if base is None else traced_parameters(base)
    return {name: "i32" if name.endswith("_start") else type_ for name, type_ in kernel.parameters if name in names}


def _traced(kernel: SourceKernel) -> set[str]:
    if isinstance(kernel, FormKernel):
        return {*kernel.form.numbers, *(TRACED_OF_WINDOWS if kernel.layout == "windows" else ())}
    return set(TRACED.get(kernel.name, ()))


def _traced_of_map(kernel: MapKernel | FusedKernel) -> set[str]:
    return {*kernel.form.numbers, *(f"{name}_start" for name in kernel.places.strided)}

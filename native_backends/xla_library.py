"""JAX that takes the place of cooperative kernels: what XLA is given instead of their WGSL.

Each is called with the kernel's parameters and overrides, and with its bindings as vectors of 32-bit numbers, and
returns what becomes of the bindings that the kernel writes, in their order. It is pure, and traced: the parameters are
numbers that are known then, but for those that `TRACED` names, which change from call to call. Nothing is in float64,
and nothing calls the host, so that it lowers for every device that XLA has. Products have JAX's default precision,
which `xla_programs` sets for each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from . import (
    xla_attention,
    xla_indexing,
    xla_losses,
    xla_matrices,
    xla_normalization,
    xla_reductions,
    xla_scaling,
    xla_sparse,
    xla_storage,
    xla_windows,
)
from .xla_arrays import floats, put, repeated_once, strided

__all__ = ["REPLACEMENTS", "TRACED", "Parameters", "Results"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _matmul(p: Parameters, a: Array, b: Array, c: Array) -> Results:
    rows, columns, inner, within = p["rows"], p["columns"], p["inner"], p["batch_inner"]
    a_strides = [p["a_outer_stride"], p["a_batch_stride"], p["a_row_stride"], p["a_inner_stride"]]
    b_strides = [p["b_outer_stride"], p["b_batch_stride"], p["b_inner_stride"], p["b_column_stride"]]
    batch = (c.size // (rows * columns * within), within)
    left_shape = (*repeated_once(batch, a_strides), rows, inner)
    right_shape = (*repeated_once(batch, b_strides), inner, columns)
    left = strided(floats(a), p["a_start"], left_shape, a_strides)
    right = strided(floats(b), p["b_start"], right_shape, b_strides)
    return (put(c, jnp.broadcast_to(left @ right, (*batch, rows, columns))),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    **xla_attention.REPLACEMENTS,
    **xla_indexing.REPLACEMENTS,
    **xla_losses.REPLACEMENTS,
    **xla_matrices.REPLACEMENTS,
    **xla_normalization.REPLACEMENTS,
    **xla_reductions.REPLACEMENTS,
    **xla_scaling.REPLACEMENTS,
    **xla_sparse.REPLACEMENTS,
    **xla_storage.REPLACEMENTS,
    **xla_windows.REPLACEMENTS,
    "matmul": _matmul,
}

TRACED: dict[str, frozenset[str]] = {
    **xla_attention.TRACED,
    **xla_indexing.TRACED,
    **xla_windows.TRACED,
    "matmul": frozenset({"a_start", "b_start"}),
}

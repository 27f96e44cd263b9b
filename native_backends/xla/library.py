"""JAX that takes the place of cooperative kernels: what XLA is given instead of their WGSL.

Each is called with the kernel's parameters and overrides, and with its bindings as vectors of 32-bit numbers, and
returns what becomes of the bindings that the kernel writes, in their order. It is pure, and traced: the parameters are
numbers that are known then, but for those that `TRACED` names, which change from call to call. Nothing is in float64,
and nothing calls the host, so that it lowers for every device that XLA has. Products have JAX's default precision,
which `programs` sets for each kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jax import Array

from ..arrays import jax_arrays, routines

__all__ = ["REPLACEMENTS", "TRACED", "Parameters", "Results"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    name: partial(routine, jax_arrays) for name, routine in routines.ROUTINES.items()
}

TRACED = routines.TRACED

"""Library calls that take the place of sums, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..arrays.jax_arrays import floats, put

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _sum(p: Parameters, values: Array, sums: Array) -> Results:
    outer, length, inner = p["outer"], p["length"], p["inner"]
    chunk = min(p["chunk"], length)
    table = floats(values)[: outer * length * inner].reshape(outer, length, inner)
    padded = jnp.pad(table, ((0, 0), (0, -length % chunk), (0, 0)))
    return (put(sums, padded.reshape(outer, -(-length // chunk), chunk, inner).sum(axis=2)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {"sum": _sum}

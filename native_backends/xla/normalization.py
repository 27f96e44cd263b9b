"""Layer normalization in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..arrays.jax_arrays import floats, put

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _rows(p: Parameters, array: Array) -> Array:
    return floats(array)[: p["rows"] * p["columns"]].reshape(p["rows"], p["columns"])


def _layer_norm_weight_grad(
    p: Parameters, grad: Array, values: Array, mean: Array, scale: Array, result: Array
) -> Results:
    means, scales = (floats(array)[: p["rows"], None] for array in (mean, scale))
    normalized = (_rows(p, values) - means) * scales
    g = _rows(p, grad)
    chunk = min(p["chunk"], p["rows"])
    missing = -p["rows"] % chunk
    both = jnp.pad(jnp.stack([g * normalized, g], axis=1), ((0, missing), (0, 0), (0, 0)))
    return (put(result, both.reshape(-1, chunk, 2, p["columns"]).sum(axis=1)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

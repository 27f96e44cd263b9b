"""Layer normalization in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays.jax_arrays import floats, put

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _rows(p: Parameters, array: Array) -> Array:
    return floats(array)[: p["rows"] * p["columns"]].reshape(p["rows"], p["columns"])


def _normalized(p: Parameters, values: Array, of_rows: Array) -> tuple[Array, Array]:
    """The values with mean 0 and variance 1, and the scale of each row that made them so."""
    table = floats(of_rows)[: 2 * p["rows"]].reshape(-1, 2)
    return (_rows(p, values) - table[:, :1]) * table[:, 1:], table[:, 1:]


def _weighted(p: Parameters, values: Array, weight: Array) -> Array:
    return values * floats(weight)[: p["columns"]] if p["has_weight"] else values


def _layer_norm(p: Parameters, values: Array, weight: Array, bias: Array, of_rows: Array, result: Array) -> Results:
    x = _rows(p, values)
    means = x.mean(axis=1, keepdims=True)
    means += (x - means).mean(axis=1, keepdims=True)  # what rounding left of it
    centred = x - means
    scales = 1 / jnp.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(p["eps"]))
    normalized = _weighted(p, centred * scales, weight)
    if p["has_bias"]:
        normalized += floats(bias)[: p["columns"]]
    return put(of_rows, jnp.concatenate([means, scales], axis=1)), put(result, normalized)


def _layer_norm_grad(
    p: Parameters, grad: Array, values: Array, weight: Array, of_rows: Array, result: Array
) -> Results:
    normalized, scales = _normalized(p, values, of_rows)
    weighted = _weighted(p, _rows(p, grad), weight)
    products = (weighted * normalized).mean(axis=1, keepdims=True)
    return (put(result, (weighted - weighted.mean(axis=1, keepdims=True) - normalized * products) * scales),)


def _layer_norm_weight_grad(p: Parameters, grad: Array, values: Array, of_rows: Array, result: Array) -> Results:
    normalized, _ = _normalized(p, values, of_rows)
    g = _rows(p, grad)
    chunk = min(p["chunk"], p["rows"])
    missing = -p["rows"] % chunk
    both = jnp.pad(jnp.stack([g * normalized, g], axis=1), ((0, missing), (0, 0), (0, 0)))
    return (put(result, both.reshape(-1, chunk, 2, p["columns"]).sum(axis=1)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

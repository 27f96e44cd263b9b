"""Cross-entropy in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..arrays.jax_arrays import floats, ints, put

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _cross_entropy(
    p: Parameters, values: Array, targets: Array, class_weights: Array, of_rows: Array, result: Array
) -> Results:
    rows, columns, smoothing = p["rows"], p["columns"], np.float32(p["smoothing"])
    x = floats(values)[: rows * columns].reshape(rows, columns)
    labels = ints(targets)[:rows]
    maxima = x.max(axis=1, keepdims=True)
    below = x - maxima
    log_sums = jnp.log(jnp.exp(below).sum(axis=1))
    weights = floats(class_weights)[:columns] if p["has_weight"] else jnp.ones(columns, np.float32)
    is_class = (labels >= 0) & (labels < columns)
    own = jnp.where(is_class, labels, 0)
    weight = jnp.where(is_class, weights[own], np.float32(np.nan))
    below_own = jnp.take_along_axis(below, own[:, None], axis=1, mode="clip")[:, 0]
    shares = (1 - smoothing) * weight
    losses = shares * (log_sums - below_own)
    if smoothing:
        smoothed = smoothing / np.float32(columns)
        losses += smoothed * (weights.sum() * log_sums - (below * weights).sum(axis=1))
        shares += smoothed * weights.sum()
    is_counted = labels != p["ignored"]
    known = jnp.stack([maxima[:, 0] + log_sums, jnp.where(is_counted, shares, 0)], axis=1)
    both = jnp.where(is_counted, jnp.stack([losses, weight]), 0)
    return put(of_rows, known), put(result, both)


REPLACEMENTS: dict[str, Callable[..., Results]] = {"cross_entropy": _cross_entropy}

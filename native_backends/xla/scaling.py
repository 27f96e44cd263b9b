"""The scale of a loss, and what is looked for in gradients, in JAX: numbers that stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...wgsl import rule_shell, shell
from ..arrays.jax_arrays import floats, put, words

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _columns(table: Array, count: int) -> tuple[Array, ...]:
    """The members of a table of structs, each of `count` words."""
    return tuple(words(table)[: table.size // count * count].reshape(-1, count).T)


def _gradients(grads: Array, blocks: Array, tensors: Array) -> tuple[Array, Array]:
    """The gradients by blocks of an arena, and which of these have any."""
    tensor, _ = _columns(blocks, 2)
    live = jnp.take(_columns(tensors, rule_shell.ENTRY_WORDS)[1], tensor, mode="clip") & 1
    size = tensor.size * shell.BLOCK
    return floats(grads)[:size].reshape(-1, shell.BLOCK), live[:, None] != 0


def _marked(found_inf: Array, is_bad: Array) -> Array:
    return put(found_inf, jnp.where(is_bad, jnp.uint32(1), words(found_inf)[:1]))


def _nonfinite(p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> Results:
    values, is_live = _gradients(grads, blocks, tensors)
    return (_marked(found_inf, jnp.any(is_live & ~jnp.isfinite(values))),)


def _unscale(p: Parameters, grads: Array, blocks: Array, tensors: Array, scaler: Array, found_inf: Array) -> Results:
    values, is_live = _gradients(grads, blocks, tensors)
    is_bad = jnp.any(is_live & ~jnp.isfinite(values))
    state = floats(scaler)
    unscaled = jnp.where(is_live, values * (np.float32(1) / state[0]), values)
    scaler = put(scaler, jnp.where(is_bad, np.float32(1), state[1:2]), 1)
    return put(grads, unscaled), scaler, _marked(found_inf, is_bad)


def _update_scale(p: Parameters, scaler: Array) -> Results:
    scale, found_inf, tracker = floats(scaler)[:3]
    grown = scale * np.float32(p["growth_factor"])
    is_full = tracker + 1 == p["growth_interval"]
    larger = jnp.where(is_full & jnp.isfinite(grown), grown, scale)
    smaller = jnp.maximum(scale * np.float32(p["backoff_factor"]), np.finfo(np.float32).tiny)
    has_failed = found_inf != 0
    next_tracker = jnp.where(has_failed | is_full, 0, tracker + 1)
    state = jnp.stack([jnp.where(has_failed, smaller, larger), jnp.zeros_like(scale), next_tracker])
    return (put(scaler, state),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "nonfinite": _nonfinite,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

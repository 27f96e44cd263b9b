"""The scale of a loss: gradients are divided by it and searched for what is not finite; nothing is read on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Array, Parameters, Results

__all__ = ["ROUTINES"]


def _flagged(xp: Any, flags: Array, is_finite: Any, index: int = 0) -> Array:
    """Return a vector with 1 at an index, unless all is finite."""
    return xp.put(flags, xp.where(is_finite, flags[index : index + 1], flags.dtype.type(1)), index)


def _nonfinite(xp: Any, p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> Results:
    _, is_finite = xp.over_live(xp.floats(grads), blocks, tensors, lambda grad: (grad, xp.isfinite(grad)))
    return (_flagged(xp, xp.words(found_inf), is_finite),)


def _unscale(
    xp: Any, p: Parameters, grads: Array, blocks: Array, tensors: Array, scaler: Array, found_inf: Array
) -> Results:
    state = xp.floats(scaler)
    factor = np.float32(1) / state[0]

    def unscaled(grad: Array) -> Results:
        is_finite = xp.isfinite(grad)
        return xp.into(grad, xp.multiply, grad, factor), is_finite

    new, is_finite = xp.over_live(xp.floats(grads), blocks, tensors, unscaled)
    return new, _flagged(xp, state, is_finite, 1), _flagged(xp, xp.words(found_inf), is_finite)


def _update_scale(xp: Any, p: Parameters, scaler: Array) -> Results:
    state = xp.floats(scaler)
    scale, found_inf, tracker = state[:3]
    grown = scale * np.float32(p["growth_factor"])
    is_full = tracker + 1 == p["growth_interval"]
    larger = xp.where(is_full & xp.isfinite(grown), grown, scale)
    smaller = xp.maximum(scale * np.float32(p["backoff_factor"]), np.finfo(np.float32).tiny)
    has_failed = found_inf != 0
    next_tracker = xp.where(has_failed | is_full, np.float32(0), tracker + 1)
    return (xp.put(state, xp.stack([xp.where(has_failed, smaller, larger), xp.zeros_like(scale), next_tracker])),)


ROUTINES: dict[str, Callable[..., Results]] = {
    "nonfinite": _nonfinite,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

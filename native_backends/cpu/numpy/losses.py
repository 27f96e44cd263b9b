"""Cross-entropy in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.numpy_rows import of_rows, row_maxima, row_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _cross_entropy(
    p: Parameters, values: Array, targets: Array, class_weights: Array, row_statistics: Array, result: Array
) -> None:
    rows, columns, smoothing = p["rows"], p["columns"], np.float32(p["smoothing"])
    x = values.view(np.float32)[: rows * columns].reshape(rows, columns)
    labels = targets.view(np.int32)[:rows]
    maxima = row_maxima(x)
    below = x - of_rows(maxima, columns)
    log_sums = np.log(row_sums(np.exp(below)).astype(np.float32))
    if p["has_weight"]:
        weights = class_weights.view(np.float32)[:columns]
    else:
        weights = np.ones(columns, np.float32)
    is_class = (labels >= 0) & (labels < columns)
    own = np.where(is_class, labels, 0)
    weight = np.where(is_class, weights[own], np.float32(np.nan))
    losses = (1 - smoothing) * weight * (log_sums - below[np.arange(rows), own])
    shares = (1 - smoothing) * weight
    if smoothing:
        smoothed = smoothing / np.float32(columns)
        losses += smoothed * (weights.sum() * log_sums - below @ weights)
        shares += smoothed * weights.sum()
    known = row_statistics.view(np.float32)[: 2 * rows].reshape(rows, 2)
    known[:, 0], known[:, 1] = maxima + log_sums, shares
    both = result.view(np.float32)[: 2 * rows].reshape(2, rows)
    both[0], both[1] = losses, weight
    is_ignored = labels == p["ignored"]
    both[:, is_ignored] = 0
    known[is_ignored, 1] = 0


REPLACEMENTS: dict[str, Callable[..., None]] = {"cross_entropy": _cross_entropy}

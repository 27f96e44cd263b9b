"""Layer normalization in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.numpy_rows import column_sums, of_rows, outer, row_blocks, row_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _rows(p: Parameters, raw: Array) -> Array:
    return raw.view(np.float32)[: p["rows"] * p["columns"]].reshape(p["rows"], p["columns"])


def _statistics(p: Parameters, raw: Array) -> Array:
    """Mean and scale of each row."""
    return raw.view(np.float32)[: 2 * p["rows"]].reshape(-1, 2)


def _layer_norm(p: Parameters, values: Array, weight: Array, bias: Array, statistics: Array, result: Array) -> None:
    columns = p["columns"]
    factors = weight.view(np.float32)[:columns] if p["has_weight"] else np.ones(columns, np.float32)
    for block in row_blocks(p["rows"], columns):
        means, scales = _statistics(p, statistics)[block].T
        x, target = _rows(p, values)[block], _rows(p, result)[block]
        means[:] = row_sums(x) / columns
        np.subtract(x, of_rows(means, columns), out=target)
        correction = (row_sums(target) / columns).astype(np.float32)  # what rounding left of the mean
        means += correction
        target -= of_rows(correction, columns)
        variances = np.vecdot(target, target) / np.float32(columns)
        scales[:] = 1 / np.sqrt(variances + np.float32(p["eps"]))
        target *= outer(scales, factors)
        if p["has_bias"]:
            target += outer(np.ones(means.size, np.float32), bias.view(np.float32)[:columns])


def _layer_norm_grad(
    p: Parameters, grad: Array, values: Array, weight: Array, statistics: Array, result: Array
) -> None:
    columns = p["columns"]
    factors = weight.view(np.float32)[:columns] if p["has_weight"] else np.ones(columns, np.float32)
    for block in row_blocks(p["rows"], columns):
        means, scales = _statistics(p, statistics)[block].T
        target, g = _rows(p, result)[block], _rows(p, grad)[block]
        centered = _rows(p, values)[block] - of_rows(means, columns)
        np.multiply(g, outer(scales, factors), out=target)
        centered *= of_rows(scales * scales * np.vecdot(target, centered) / np.float32(columns), columns)
        centered += of_rows((row_sums(target) / columns).astype(np.float32), columns)
        target -= centered


def _layer_norm_weight_grad(p: Parameters, grad: Array, values: Array, statistics: Array, result: Array) -> None:
    means, scales = _statistics(p, statistics).T
    x, g = _rows(p, values), _rows(p, grad)
    target = result.view(np.float32).reshape(-1, 2, p["columns"])
    for number, first in enumerate(range(0, p["rows"], p["chunk"])):
        chunk = slice(first, first + p["chunk"])
        products = x[chunk] - of_rows(means[chunk], p["columns"])
        products *= g[chunk]
        target[number, 0] = column_sums(products[None], scales[None, chunk])[0]
        target[number, 1] = column_sums(g[None, chunk])[0]


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

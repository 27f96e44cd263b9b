"""Layer normalization in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .numpy_rows import column_sums, row_blocks, row_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _rows(p: Parameters, raw: Array) -> Array:
    return raw.view(np.float32)[: p["rows"] * p["columns"]].reshape(p["rows"], p["columns"])


def _of_rows(p: Parameters, raw: Array) -> tuple[Array, Array]:
    """Mean and scale of each row."""
    table = raw.view(np.float32)[: 2 * p["rows"]].reshape(-1, 2)
    return table[:, :1], table[:, 1:]


def _layer_norm(p: Parameters, values: Array, weight: Array, bias: Array, of_rows: Array, result: Array) -> None:
    columns = p["columns"]
    for block in row_blocks(p["rows"], columns):
        means, scales = (one[block] for one in _of_rows(p, of_rows))
        x, target = _rows(p, values)[block], _rows(p, result)[block]
        means[:, 0] = row_sums(x) / columns
        np.subtract(x, means, out=target)
        rest = _means(target)  # what rounding left of the mean
        means += rest
        target -= rest
        variances = np.einsum("rc,rc->r", target, target)[:, None] / np.float32(columns)
        scales[:] = 1 / np.sqrt(variances + np.float32(p["eps"]))
        target *= scales
        if p["has_weight"]:
            target *= weight.view(np.float32)[:columns]
        if p["has_bias"]:
            target += bias.view(np.float32)[:columns]


def _means(table: Array) -> Array:
    means: Array = (row_sums(table) / table.shape[1]).astype(np.float32)[:, None]
    return means


def _layer_norm_grad(p: Parameters, grad: Array, values: Array, weight: Array, of_rows: Array, result: Array) -> None:
    columns = p["columns"]
    for block in row_blocks(p["rows"], columns):
        means, scales = (one[block] for one in _of_rows(p, of_rows))
        target, g = _rows(p, result)[block], _rows(p, grad)[block]
        normalized = _rows(p, values)[block] - means
        normalized *= scales
        weighted = g * weight.view(np.float32)[:columns] if p["has_weight"] else g
        normalized *= np.einsum("rc,rc->r", weighted, normalized)[:, None] / np.float32(columns)
        np.subtract(weighted, _means(weighted), out=target)
        target -= normalized
        target *= scales


def _layer_norm_weight_grad(p: Parameters, grad: Array, values: Array, of_rows: Array, result: Array) -> None:
    means, scales = _of_rows(p, of_rows)
    x, g = _rows(p, values), _rows(p, grad)
    target = result.view(np.float32).reshape(-1, 2, p["columns"])
    for number, first in enumerate(range(0, p["rows"], p["chunk"])):
        chunk = slice(first, first + p["chunk"])
        normalized = x[chunk] - means[chunk]
        normalized *= scales[chunk]
        normalized *= g[chunk]
        target[number, 0] = column_sums(normalized[None])[0]
        target[number, 1] = column_sums(g[None, chunk])[0]


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

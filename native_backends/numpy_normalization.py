"""Layer normalization in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
    means, scales = _of_rows(p, of_rows)
    target = _rows(p, result)
    means[:] = _rows(p, values).mean(axis=1, keepdims=True, dtype=np.float64)
    np.subtract(_rows(p, values), means, out=target)
    variances = np.einsum("rc,rc->r", target, target)[:, None] / np.float32(p["columns"])
    scales[:] = 1 / np.sqrt(variances + np.float32(p["eps"]))
    target *= scales
    if p["has_weight"]:
        target *= weight.view(np.float32)[: p["columns"]]
    if p["has_bias"]:
        target += bias.view(np.float32)[: p["columns"]]


def _layer_norm_grad(p: Parameters, grad: Array, values: Array, weight: Array, of_rows: Array, result: Array) -> None:
    means, scales = _of_rows(p, of_rows)
    target, g = _rows(p, result), _rows(p, grad)
    normalized = (_rows(p, values) - means) * scales
    weighted = g * weight.view(np.float32)[: p["columns"]] if p["has_weight"] else g
    columns = np.float32(p["columns"])
    products = np.einsum("rc,rc->r", weighted, normalized)[:, None] / columns
    normalized *= products
    np.subtract(weighted, weighted.sum(axis=1, keepdims=True) / columns, out=target)
    target -= normalized
    target *= scales


def _layer_norm_weight_grad(p: Parameters, grad: Array, values: Array, of_rows: Array, result: Array) -> None:
    means, scales = _of_rows(p, of_rows)
    g = _rows(p, grad)
    chunks = -(-p["rows"] // p["chunk"])
    target = result.view(np.float32)[: chunks * 2 * p["columns"]].reshape(chunks, 2, p["columns"])
    normalized = _rows(p, values) - means
    normalized *= scales
    normalized *= g
    whole = p["rows"] // p["chunk"]
    end = whole * p["chunk"]
    for number, values_of_rows in enumerate((normalized, g)):
        parts = values_of_rows[:end].reshape(whole, p["chunk"], p["columns"])
        np.add.reduce(parts, axis=1, out=target[:whole, number])
        if whole < chunks:
            np.add.reduce(values_of_rows[end:], axis=0, out=target[-1, number])


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

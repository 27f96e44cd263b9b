"""Layer normalization in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.numpy_rows import column_sums, of_rows

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _rows(p: Parameters, raw: Array) -> Array:
    return raw.view(np.float32)[: p["rows"] * p["columns"]].reshape(p["rows"], p["columns"])


def _layer_norm_weight_grad(
    p: Parameters, grad: Array, values: Array, mean: Array, scale: Array, result: Array
) -> None:
    means, scales = (array.view(np.float32)[: p["rows"]] for array in (mean, scale))
    x, g = _rows(p, values), _rows(p, grad)
    target = result.view(np.float32).reshape(-1, 2, p["columns"])
    for number, first in enumerate(range(0, p["rows"], p["chunk"])):
        chunk = slice(first, first + p["chunk"])
        products = x[chunk] - of_rows(means[chunk], p["columns"])
        products *= g[chunk]
        target[number, 0] = column_sums(products[None], scales[None, chunk])[0]
        target[number, 1] = column_sums(g[None, chunk])[0]


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "layer_norm_weight_grad": _layer_norm_weight_grad,
}

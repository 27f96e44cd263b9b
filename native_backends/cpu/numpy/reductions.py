"""Library calls that take the place of sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...arrays.numpy_rows import column_sums, row_sums

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _sum(p: Parameters, values: Array, sums: Array) -> None:
    outer, length, inner, chunk = p["outer"], p["length"], p["inner"], p["chunk"]
    chunks = -(-length // chunk)
    add, columns = (row_sums, ()) if inner == 1 else (column_sums, (inner,))
    table = values.view(np.float32)[: outer * length * inner].reshape(outer, length, *columns)
    result = sums.view(np.float32)[: outer * chunks * inner].reshape(outer, chunks, *columns)
    if length % chunk and length > chunk:
        whole = length // chunk
        parts = np.ascontiguousarray(table[:, : whole * chunk]).reshape(outer * whole, chunk, *columns)
        result[:, :whole] = add(parts).reshape(outer, whole, *columns)
        result[:, whole] = add(np.ascontiguousarray(table[:, whole * chunk :]))
    else:
        result.reshape(-1, *columns)[:] = add(table.reshape(outer * chunks, min(length, chunk), *columns))


REPLACEMENTS: dict[str, Callable[..., None]] = {"sum": _sum}

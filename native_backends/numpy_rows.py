"""Sums and maxima along an axis of float32 values, several times as fast as NumPy's own.

BLAS multiplies with ones: it adds in float32, in lanes, where NumPy adds one value after the other, of few columns
with a call for each row. At most 512 values are added so; these sums are added in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

__all__ = ["column_sums", "row_blocks", "row_maxima", "row_sums"]

Array = np.ndarray[Any, Any]

_MOST = 512
_FEWEST = 8
_BLOCK = 1 << 16
"""Values that stay in a core's cache while they are passed over several times."""
_NARROW = 16
_SHORT = 64
"""Columns up to which maxima are taken over a transposed copy, and over halves of the rows."""


@cache
def _ones(count: int) -> Array:
    return np.ones(count, np.float32)


@cache
def _width(length: int) -> int:
    """The most values, up to 512, into which a length can be cut evenly."""
    return next(width for width in range(min(length, _MOST), 0, -1) if length % width == 0)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """The rows, in blocks that stay in a core's cache."""
    step = max(1, _BLOCK // max(1, columns))
    return (slice(first, first + step) for first in range(0, rows, step))


def row_sums(table: Array) -> Array:
    """The sums of contiguous rows, (rows, columns): (rows,), float32 or float64."""
    rows, columns = table.shape
    width = _width(columns) if columns else 0
    if width < min(columns, _FEWEST) or not columns:
        total: Array = np.add.reduce(table, axis=1, dtype=np.float64)
        return total
    sums: Array = table.reshape(-1, width) @ _ones(width)
    return sums if width == columns else np.add.reduce(sums.reshape(rows, -1), axis=1, dtype=np.float64)


def column_sums(tables: Array) -> Array:
    """The sums of the columns of contiguous tables, (tables, rows, columns): (tables, columns), float32 or float64."""
    count, rows, columns = tables.shape
    width = _width(rows) if rows else 0
    if width < min(rows, _FEWEST) or not rows:
        total: Array = np.add.reduce(tables, axis=1, dtype=np.float64)
        return total
    sums: Array = _ones(width) @ tables.reshape(count * (rows // width), width, columns)
    return sums if width == rows else np.add.reduce(sums.reshape(count, -1, columns), axis=1, dtype=np.float64)


def row_maxima(table: Array) -> Array:
    """The largest values of contiguous rows, (rows, columns): (rows,). NaN where there is one, -inf of no columns.

    NumPy takes a call for each row, which is long for short ones: these are folded, or taken as columns.
    """
    while _NARROW < table.shape[1] <= _SHORT and table.shape[1] % 2 == 0:
        left, right = np.split(table, 2, axis=1)
        table = np.maximum(left, right)
    if table.shape[1] <= _NARROW:
        return np.maximum.reduce(np.ascontiguousarray(table.T), axis=0, initial=-np.inf)  # type: ignore[no-any-return]
    return np.maximum.reduce(table, axis=1)  # type: ignore[no-any-return]

"""Sums, maxima and tables of repeated numbers along rows of float32, several times as fast as NumPy's own.

BLAS multiplies with ones: it adds in float32, in lanes, where NumPy adds one value after the other, of few columns
with a call for each row. BLAS adds at most 512 values; these sums are added in float64. NumPy's operations between a
column and a table also loop over the rows. Where rows are short it is faster to repeat the column to a table first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

__all__ = ["column_maxima", "column_sums", "of_rows", "outer", "row_blocks", "row_maxima", "row_sums"]

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
    """Return the sums over the rows of contiguous (tables, rows, columns): (tables, columns), float32 or float64."""
    count, rows, columns = tables.shape
    width = _width(rows) if rows else 0
    if width < min(rows, _FEWEST) or not tables.size:
        total: Array = np.add.reduce(tables, axis=1, dtype=np.float64)
        return total
    sums: Array = (_ones(width) @ tables.reshape(count * (rows // width), width, columns)).reshape(count, -1, columns)
    return sums[:, 0] if width == rows else np.add.reduce(sums, axis=1, dtype=np.float64)


def column_maxima(tables: Array) -> Array:
    """Return the largest values of the columns of tables, (tables, rows, columns): (tables, 1, columns).

    NaN where there is one. Halves of the rows are compared, since NumPy takes a call for each row.
    """
    if tables.shape[1] == 1:
        return tables.copy()
    while (rows := tables.shape[1]) > 1:
        half = rows // 2
        folded = np.maximum(tables[:, :half], tables[:, half : 2 * half])
        if rows % 2:
            np.maximum(folded[:, :1], tables[:, -1:], out=folded[:, :1])
        tables = folded
    return tables


def of_rows(numbers: Array, out: Array) -> Array:
    """Return `out`, (rows, columns), after each of its columns has become `numbers`, (rows,)."""
    out[...] = numbers[:, None]
    return out


def outer(rows: Array, columns: Array, out: Array) -> Array:
    """Return `out`, float32, after it has become the outer product of (rows,) and (columns,)."""
    left, right = np.zeros((rows.size, 2), np.float32), np.zeros((2, columns.size), np.float32)
    left[:, 0], right[0] = rows, columns
    return np.matmul(left, right, out=out)  # by BLAS, which NumPy does not call for one column


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

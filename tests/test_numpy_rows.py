"""Sums, maxima and tables of repeated numbers agree with NumPy in float64."""

import numpy as np
import pytest

from optirs_web.native_backends.arrays.numpy_rows import column_sums, of_rows, outer, row_blocks, row_maxima, row_sums

SHAPES = [(0, 5), (5, 0), (1, 1), (3, 7), (5, 64), (7, 96), (3, 521), (4, 1042), (9, 128), (2, 4096), (33, 130)]


def values_of(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def bound(magnitudes, axis):
    """A few units in the last place of what is added."""
    return 4 * np.finfo(np.float32).eps * np.abs(magnitudes).sum(axis=axis, dtype=np.float64)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_sums_and_maxima(rows, columns):
    table = values_of(rows, columns)
    assert (np.abs(row_sums(table) - table.sum(axis=1, dtype=np.float64)) <= bound(table, 1)).all()
    assert np.array_equal(row_maxima(table), table.max(axis=1, initial=-np.inf))
    tables = values_of(2, rows, columns)
    assert (np.abs(column_sums(tables) - tables.sum(axis=1, dtype=np.float64)) <= bound(tables, 1)).all()


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_numbers_of_rows_and_columns_in_a_table(rows, columns):
    of_row, of_column, table = values_of(rows), values_of(columns), np.empty((rows, columns), np.float32)
    assert np.array_equal(of_rows(of_row, table), np.broadcast_to(of_row[:, None], (rows, columns)))
    assert np.array_equal(outer(of_row, of_column, table), np.multiply.outer(of_row, of_column))


@pytest.mark.parametrize("columns", [3, 16, 64, 200])
def test_what_is_no_number_stays_in_its_row(columns):
    table = values_of(4, columns)
    table[1, columns // 2], table[2, 0] = np.nan, -np.inf
    table[3] = -np.inf
    with np.errstate(invalid="ignore"):
        assert np.array_equal(row_maxima(table), table.max(axis=1), equal_nan=True)
        sums = row_sums(table)
        spread = outer(table[:, 0] + table[:, columns // 2], np.ones(columns, np.float32), np.empty_like(table))
    assert np.isfinite(sums[0])
    assert np.isnan(sums[1])
    assert np.isfinite(spread[0]).all()
    assert np.isnan(spread[1]).all()
    assert (sums[2:] == -np.inf).all()


def test_blocks_are_all_rows_in_order():
    for rows, columns in ((0, 4), (5, 0), (1000, 1024), (3, 1 << 20)):
        actual = [row for block in row_blocks(rows, columns) for row in range(rows)[block]]
        assert actual == [*range(rows)]

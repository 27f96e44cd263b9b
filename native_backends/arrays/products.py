"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "TRACED", "Product", "product_of"]


class Product(NamedTuple):
    """A product with its operands as arrays, and where its result is written: this shape, first in a vector."""

    left: Array
    right: Array
    result: Array
    shape: tuple[int, ...]


def product_of(xp: Any, p: Parameters, a: Array, b: Array, c: Array) -> Product:
    """Return the product that the parameters of a launch describe."""
    rows, columns, inner, within = p["rows"], p["columns"], p["inner"], p["batch_inner"]
    a_strides = (p["a_outer_stride"], p["a_batch_stride"], p["a_row_stride"], p["a_inner_stride"])
    b_strides = (p["b_outer_stride"], p["b_batch_stride"], p["b_inner_stride"], p["b_column_stride"])
    result = xp.floats(c)
    batch = (result.size // (rows * columns * within), within)
    left = xp.strided(xp.floats(a), p["a_start"], (*batch, rows, inner), a_strides, broadcast_axes=2)
    right = xp.strided(xp.floats(b), p["b_start"], (*batch, inner, columns), b_strides, broadcast_axes=2)
    return Product(left, right, result, (*batch, rows, columns))


def _matmul(xp: Any, p: Parameters, a: Array, b: Array, c: Array) -> Results:
    left, right, result, shape = product_of(xp, p, a, b, c)
    return (xp.put_result(result, shape, xp.matmul, left, right),)


ROUTINES: dict[str, Callable[..., Results]] = {"matmul": _matmul}

TRACED: dict[str, frozenset[str]] = {"matmul": frozenset({"a_start", "b_start"})}

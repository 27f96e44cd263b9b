"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "TRACED", "Product", "Strided", "product_of"]


class Strided(NamedTuple):
    """A strided view of a vector; starts and strides in elements or, where it is said, in bytes."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Product(NamedTuple):
    """The operands of a product, and the shape of its result, which is written first in a vector."""

    left: Strided
    right: Strided
    shape: tuple[int, ...]


def product_of(p: Parameters, size: int) -> Product:
    """Return the product that the parameters of a launch describe, in elements, with a result of so many."""
    rows, columns, inner, within = p["rows"], p["columns"], p["inner"], p["batch_inner"]
    a_strides = (p["a_outer_stride"], p["a_batch_stride"], p["a_row_stride"], p["a_inner_stride"])
    b_strides = (p["b_outer_stride"], p["b_batch_stride"], p["b_inner_stride"], p["b_column_stride"])
    batch = (size // (rows * columns * within), within)
    return Product(
        Strided(p["a_start"], (*batch, rows, inner), a_strides),
        Strided(p["b_start"], (*batch, inner, columns), b_strides),
        (*batch, rows, columns),
    )


def _matmul(xp: Any, p: Parameters, a: Array, b: Array, c: Array) -> Results:
    result = xp.floats(c)
    left, right, shape = product_of(p, result.size)
    operands = (xp.strided(xp.floats(a), *left, broadcast_axes=2), xp.strided(xp.floats(b), *right, broadcast_axes=2))
    return (xp.put_result(result, shape, xp.matmul, *operands),)


ROUTINES: dict[str, Callable[..., Results]] = {"matmul": _matmul}

TRACED: dict[str, frozenset[str]] = {"matmul": frozenset({"a_start", "b_start"})}

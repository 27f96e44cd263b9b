"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Array, Parameters, Results

__all__ = ["ROUTINES", "TRACED"]


def _matmul(xp: Any, p: Parameters, a: Array, b: Array, c: Array) -> Results:
    rows, columns, inner, within = p["rows"], p["columns"], p["inner"], p["batch_inner"]
    a_strides = (p["a_outer_stride"], p["a_batch_stride"], p["a_row_stride"], p["a_inner_stride"])
    b_strides = (p["b_outer_stride"], p["b_batch_stride"], p["b_inner_stride"], p["b_column_stride"])
    result = xp.floats(c)
    batch = (result.size // (rows * columns * within), within)
    left = xp.strided(xp.floats(a), p["a_start"], (*batch, rows, inner), a_strides, broadcast_axes=2)
    right = xp.strided(xp.floats(b), p["b_start"], (*batch, inner, columns), b_strides, broadcast_axes=2)
    return (xp.put_result(result, (*batch, rows, columns), xp.matmul, left, right),)


ROUTINES: dict[str, Callable[..., Results]] = {"matmul": _matmul}

TRACED: dict[str, frozenset[str]] = {"matmul": frozenset({"a_start", "b_start"})}

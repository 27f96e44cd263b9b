"""Matrix products."""

from __future__ import annotations

from typing import Any

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..runtime.dtypes import FLOAT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty, tensor
from .creation import full
from .launch import need_float32, need_one_device

__all__ = ["matmul"]

_TILE = 32


def matmul(a: Any, b: Any) -> Tensor:
    """The product of two matrices, (n, k) @ (k, m). Gradients: g bᵀ and aᵀ g, without transposed copies.

    Raises:
        ShapeError: the inner dimensions differ, or the tensors lie on different devices.
        UnsupportedError: an operand is no float32 matrix.
    """
    device = a.device if isinstance(a, Tensor) else b.device
    a, b = (one if isinstance(one, Tensor) else tensor(one, device, FLOAT32) for one in (a, b))
    need_float32("matmul", a, b)
    if a.ndim != 2 or b.ndim != 2:
        raise UnsupportedError(f"matmul needs two matrices, and got shapes {a.shape} and {b.shape}")
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"matmul of {a.shape} and {b.shape}: {a.shape[1]} columns meet {b.shape[0]} rows")
    need_one_device("matmul", a, b)
    return record(
        _product(a, b),
        (a, lambda g: _product(g, b, transpose_b=True)),
        (b, lambda g: _product(a, g, transpose_a=True)),
    )


def _product(a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    rows, inner = reversed(a.shape) if transpose_a else a.shape
    columns = b.shape[0] if transpose_b else b.shape[1]
    a_strides = (1, a.shape[1]) if transpose_a else (a.shape[1], 1)
    b_strides = (1, b.shape[1]) if transpose_b else (b.shape[1], 1)
    if inner == 0:
        return full((rows, columns), 0.0, a.device)
    result = empty((rows, columns), FLOAT32, a.device)
    a.device.dispatch(
        cooperative("matmul"),
        [a.view, b.view, result.view],
        (-(-columns // _TILE), -(-rows // _TILE)),
        (rows, columns, inner, *a_strides, *b_strides),
    )
    return result

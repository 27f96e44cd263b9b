"""Matrix products."""

from __future__ import annotations

from typing import Any

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..runtime.dtypes import FLOAT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty

__all__ = ["matmul"]

_TILE = 32


def matmul(a: Tensor, b: Any) -> Tensor:
    """The product of two matrices, (n, k) @ (k, m). Gradients: g bᵀ and aᵀ g, without transposed copies.

    Raises:
        ShapeError: the inner dimensions differ, or the tensors lie on different devices.
        UnsupportedError: an operand is no float32 matrix.
    """
    for one in (a, b):
        if not isinstance(one, Tensor) or one.ndim != 2 or one.dtype is not FLOAT32:
            raise UnsupportedError(f"matmul needs two float32 matrices, and got {one!r}")
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"matmul of {a.shape} and {b.shape}: {a.shape[1]} columns meet {b.shape[0]} rows")
    if a.device is not b.device:
        raise ShapeError(f"matmul got tensors on {a.device.name} and {b.device.name}; move them to one device")
    return record(
        _product(a, b),
        (a, b),
        lambda g: (
            _product(g, b, transpose_b=True) if a.requires_grad else None,
            _product(a, g, transpose_a=True) if b.requires_grad else None,
        ),
    )


def _product(a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    rows, inner = reversed(a.shape) if transpose_a else a.shape
    columns = b.shape[0] if transpose_b else b.shape[1]
    a_strides = (1, a.shape[1]) if transpose_a else (a.shape[1], 1)
    b_strides = (1, b.shape[1]) if transpose_b else (b.shape[1], 1)
    if inner == 0:
        from .creation import zeros

        return zeros((rows, columns), a.device)
    result = empty((rows, columns), FLOAT32, a.device)
    a.device.dispatch(
        cooperative("matmul"),
        [a.view, b.view, result.view],
        (-(-columns // _TILE), -(-rows // _TILE)),
        (rows, columns, inner, *a_strides, *b_strides),
    )
    return result

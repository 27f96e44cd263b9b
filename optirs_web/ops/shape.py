"""Operations that move elements without changing them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..tensors import Tensor
from .launch import broadcast_shapes, broadcast_strides, row_major_strides, strided_copy

__all__ = ["broadcast_to", "permute", "reshape", "transpose"]


def reshape(x: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape; one dimension may be -1. No copy.

    Raises:
        ShapeError: the number of elements differs.
    """
    asked = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    new = asked
    if asked.count(-1) == 1:
        known = -math.prod(asked)
        new = tuple((x.size // known if known else 0) if one == -1 else one for one in asked)
    if any(one < 0 for one in new) or math.prod(new) != x.size:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be reshaped to {asked}")
    result = Tensor(x.view, new, x.dtype)
    result._shares = x._tracked
    return record(result, (x, lambda g: reshape(g, x.shape)))


def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The axes in another order.

    Raises:
        ShapeError: `axes` is no permutation of the tensor's axes.
    """
    order = tuple(one % x.ndim if -x.ndim <= one < x.ndim else -1 for one in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"{tuple(axes)} is no order of the {x.ndim} axes of a tensor")
    strides = row_major_strides(x.shape)
    result = strided_copy(x, tuple(x.shape[one] for one in order), tuple(strides[one] for one in order))
    back = tuple(order.index(one) for one in range(x.ndim))
    return record(result, (x, lambda g: permute(g, back)))


def transpose(x: Tensor, first: int, second: int) -> Tensor:
    """Two axes exchanged.

    Raises:
        ShapeError: there is no such axis.
    """
    if not all(-x.ndim <= one < x.ndim for one in (first, second)):
        raise ShapeError(f"a tensor with {x.ndim} axes has no axes {first} and {second}")
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(x, order)


def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeated along new axes and along axes of length 1.

    Raises:
        ShapeError: the shape does not fit.
    """
    from .reduce import sum_to  # whose gradient is this function

    if x.shape == shape:
        return x
    if broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"shape {x.shape} cannot be broadcast to {shape}")
    result = strided_copy(x, shape, broadcast_strides(x.shape, shape))
    return record(result, (x, lambda g: sum_to(g, x.shape)))

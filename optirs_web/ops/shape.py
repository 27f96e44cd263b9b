"""Operations that give another walk over the same elements: nothing moves, unless a reshape needs them in order."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..tensors import Tensor
from .launch import broadcast_shapes, broadcast_strides

__all__ = ["broadcast_to", "permute", "reshape", "transpose", "walk_over"]


def reshape(x: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape; one dimension may be -1. No copy if they lie in order.

    Raises:
        ShapeError: the number of elements differs.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.reshape(x, (4,)).tolist()
        [1.0, 2.0, 3.0, 6.0]
    """
    asked = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    new = asked
    if asked.count(-1) == 1:
        known = -math.prod(asked)
        new = tuple((x.size // known if known else 0) if one == -1 else one for one in asked)
    if any(one < 0 for one in new) or math.prod(new) != x.size:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be reshaped to {asked}")
    result = Tensor(x.view, new, x.dtype)
    result._shares = x._tracked if x.is_contiguous else None
    return record(result, (x, lambda g, _: reshape(g, x.shape)))


def walk_over(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], start: int | None = None) -> Tensor:
    """Another walk over the same memory. Leaves no history."""
    view, first, _ = x.walk
    result = Tensor(view, shape, x.dtype, strides=strides, start=first if start is None else start)
    result._shares = x._tracked
    return result


def permute(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The axes in another order. No copy.

    Raises:
        ShapeError: `axes` is no permutation of the tensor's axes.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.permute(ow.zeros((2, 3, 4), device="cpu"), (2, 0, 1)).shape
        (4, 2, 3)
    """
    order = tuple(one % x.ndim if -x.ndim <= one < x.ndim else -1 for one in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"{tuple(axes)} is not a permutation of the {x.ndim} axes")
    strides = x.walk.strides
    result = walk_over(x, tuple(x.shape[one] for one in order), tuple(strides[one] for one in order))
    back = tuple(order.index(one) for one in range(x.ndim))
    return record(result, (x, lambda g, _: permute(g, back)))


def transpose(x: Tensor, first: int, second: int) -> Tensor:
    """Two axes exchanged. No copy.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.transpose(x, 0, 1).tolist()
        [[1.0, 3.0], [2.0, 6.0]]
    """
    if not all(-x.ndim <= one < x.ndim for one in (first, second)):
        raise ShapeError(f"a tensor with {x.ndim} axes has no axes {first} and {second}")
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(x, order)


def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeated along new axes and along axes of length 1. No copy.

    Raises:
        ShapeError: the shape does not fit.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.broadcast_to(ow.ones((1, 2), device="cpu"), (2, 2)).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    from .reduce import sum_to  # whose gradient is this function

    if x.shape == shape:
        return x
    if broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"shape {x.shape} cannot be broadcast to {shape}")
    result = walk_over(x, shape, broadcast_strides(x, shape))
    return record(result, (x, lambda g, _: sum_to(g, x.shape)))

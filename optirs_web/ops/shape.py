"""Operations that give another strided view of the same elements: only a reshape of a strided view copies."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..tensor_class import Tensor

__all__ = ["permute", "reshape", "strided_view", "transpose"]


def reshape(x: Tensor, shape: Any) -> Tensor:
    """A tensor of another shape with these elements; one dimension may be -1. No copy if they are contiguous.

    Raises:
        ShapeError: the number of elements differs.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.reshape(x, (4,)).tolist()
        [1.0, 2.0, 3.0, 6.0]
    """
    sizes = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    new = sizes
    if sizes.count(-1) == 1:
        known_size = -math.prod(sizes)
        new = tuple((x.size // known_size if known_size else 0) if size == -1 else size for size in sizes)
    if any(size < 0 for size in new) or math.prod(new) != x.size:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be reshaped to {sizes}")
    result = Tensor(x.view, new, x.dtype)
    result._shares = x._tracked if x.is_contiguous else None
    return record(result, (x, lambda g, _: reshape(g, x.shape)))


def strided_view(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], start: int | None = None) -> Tensor:
    """Return a strided view of the tensor's memory. Leaves no history."""
    view, origin, _ = x.strided
    result = Tensor(view, shape, x.dtype, strides=strides, start=origin if start is None else start)
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
    rank = x.ndim
    order = tuple(axis % rank if -rank <= axis < rank else -1 for axis in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"{tuple(axes)} is not a permutation of the {rank} axes")
    strides = x.strided.strides
    result = strided_view(x, tuple(x.shape[axis] for axis in order), tuple(strides[axis] for axis in order))
    back = tuple(order.index(axis) for axis in range(rank))
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
    rank = len(x.shape)
    if not (-rank <= first < rank and -rank <= second < rank):
        raise ShapeError(f"a tensor with {rank} axes has no axes {first} and {second}")
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return permute(x, order)

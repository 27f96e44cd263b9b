"""Sums and means over axes."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence

from ..autograd import record
from ..errors import ShapeError
from ..runtime.dtypes import FLOAT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty
from .creation import full
from .launch import need_float32
from .shape import broadcast_to, permute, reshape

__all__ = ["mean", "normalize_axes", "sum", "sum_to"]

_CHUNK = 4096
"""Elements that one workgroup adds up; a longer axis takes another pass over the partial sums."""


def normalize_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes from 0, in order.

    Raises:
        ShapeError: there is no such axis, or it is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    axes = [operator.index(one) for one in (axis if isinstance(axis, Iterable) else (axis,))]
    if any(not -rank <= one < rank for one in axes):
        raise ShapeError(f"axis {axis} is out of range for a tensor with {rank} axes")
    normalized = sorted(one % rank for one in axes)
    if len(set(normalized)) < len(normalized):
        raise ShapeError(f"an axis is named twice in {axis}")
    return tuple(normalized)


def _sum_axis(x: Tensor, outer: int, length: int, inner: int) -> Tensor:
    """Sum over the middle one of three axes."""
    while True:
        chunks = max(1, -(-length // _CHUNK))
        result = empty((outer * chunks * inner,), FLOAT32, x.device)
        x.device.dispatch(
            cooperative("sum"),
            [x.view, result.view],
            outer * chunks * inner,
            (outer, length, inner, min(length, _CHUNK)),
        )
        if chunks == 1:
            return result
        x, length = result, chunks


def sum(x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum over axes (all by default). Gradient: g, broadcast.

    Raises:
        ShapeError: there is no such axis, or it is named twice.
        UnsupportedError: the tensor is not float32.
    """
    need_float32("sum", x)
    axes = normalize_axes(axis, x.ndim)
    kept_shape = tuple(1 if one in axes else size for one, size in enumerate(x.shape))
    shape = kept_shape if keepdims else tuple(size for one, size in enumerate(x.shape) if one not in axes)
    if x.size == 0:
        result = full(shape, 0.0, x.device)
    elif axes:
        flat = x.detach()
        first, last = axes[0], axes[-1]
        if axes != tuple(range(first, last + 1)):
            rest = [one for one in range(x.ndim) if one not in axes]
            flat, first, last = permute(flat, (*rest, *axes)), len(rest), x.ndim - 1
        outer, inner = math.prod(flat.shape[:first]), math.prod(flat.shape[last + 1 :])
        result = _sum_axis(flat, outer, math.prod(flat.shape[first : last + 1]), inner)
        result = Tensor(result.view, shape, FLOAT32)
    else:
        result = x.detach()
    return record(result, (x, lambda g: broadcast_to(reshape(g, kept_shape), x.shape)))


def mean(x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The mean over axes (all by default).

    Raises:
        ShapeError: there is nothing to average.
    """
    axes = normalize_axes(axis, x.ndim)
    count = math.prod(x.shape[one] for one in axes)
    if count == 0:
        raise ShapeError(f"the mean over axes {axes} of shape {x.shape} has no elements")
    from .arithmetic import multiply  # whose gradients need `sum_to`

    return multiply(sum(x, axes, keepdims), 1.0 / count)


def sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of broadcasting `shape` to the shape of `g`: a sum over the axes that were stretched."""
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    stretched = [one for one in range(g.ndim) if one < added or (shape[one - added] == 1 and g.shape[one] != 1)]
    return reshape(sum(g, stretched, keepdims=True), shape)

"""Axes of length 1, added and removed, and several axes merged into one."""

from __future__ import annotations

import math

from ..autograd import record
from ..errors import ShapeError
from ..tensor_class import Tensor
from .reduce import normalize_axes
from .shape import reshape, strided_view

__all__ = ["flatten", "squeeze", "unsqueeze"]


def unsqueeze(x: Tensor, axis: int) -> Tensor:
    """A view with a new axis of length 1, which is `axis` of the result. No copy.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((2, 3), device="cpu").unsqueeze(1).shape
        (2, 1, 3)
    """
    (at,) = normalize_axes(axis, x.ndim + 1)
    strides = x.strided.strides
    result = strided_view(x, (*x.shape[:at], 1, *x.shape[at:]), (*strides[:at], 1, *strides[at:]))
    return record(result, (x, lambda g, _: squeeze(g, at)))


def squeeze(x: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """A view without the axes of length 1 among these, all by default. No copy.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((1, 3, 1), device="cpu").squeeze().shape
        (3,)
    """
    removed = [index for index in normalize_axes(axis, x.ndim) if x.shape[index] == 1]
    kept = [index for index in range(x.ndim) if index not in removed]
    result = strided_view(x, tuple(x.shape[index] for index in kept), tuple(x.strided.strides[index] for index in kept))

    def rule(g: Tensor, _: Tensor) -> Tensor:
        for index in removed:
            g = unsqueeze(g, index)
        return g

    return record(result, (x, rule))


def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """The tensor with the axes from `start` to `end`, both included, merged into one. A tensor without axes gets one.

    Raises:
        ShapeError: there is no such axis, or `end` comes before `start`.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((2, 3, 4), device="cpu").flatten(1).shape
        (2, 12)
    """
    if x.ndim == 0:
        return reshape(x, (1,))
    (first,), (last,) = normalize_axes(start, x.ndim), normalize_axes(end, x.ndim)
    if last < first:
        raise ShapeError(f"flatten from axis {start} to axis {end} of shape {x.shape}: the end comes before the start")
    return reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))

"""Axes of length 1 that come and go, and several axes as one."""

from __future__ import annotations

import math

from ..autograd import record
from ..errors import ShapeError
from ..tensors import Tensor
from .reduce import normalize_axes
from .shape import reshape, walk_over

__all__ = ["flatten", "squeeze", "unsqueeze"]


def unsqueeze(x: Tensor, axis: int) -> Tensor:
    """With a new axis of length 1, which is `axis` of the result. No copy.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((2, 3), device="cpu").unsqueeze(1).shape
        (2, 1, 3)
    """
    (at,) = normalize_axes(axis, x.ndim + 1)
    strides = x.walk.strides
    result = walk_over(x, (*x.shape[:at], 1, *x.shape[at:]), (*strides[:at], 1, *strides[at:]))
    return record(result, (x, lambda g, _: squeeze(g, at)))


def squeeze(x: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Without these axes where they have length 1, all such by default. No copy.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> ow.ones((1, 3, 1), device="cpu").squeeze().shape
        (3,)
    """
    gone = [one for one in normalize_axes(axis, x.ndim) if x.shape[one] == 1]
    kept = [one for one in range(x.ndim) if one not in gone]
    result = walk_over(x, tuple(x.shape[one] for one in kept), tuple(x.walk.strides[one] for one in kept))

    def rule(g: Tensor, _: Tensor) -> Tensor:
        for one in gone:
            g = unsqueeze(g, one)
        return g

    return record(result, (x, rule))


def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """With the axes from `start` to `end`, both included, as one. A tensor without axes gets one.

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

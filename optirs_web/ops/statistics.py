"""Variance, standard deviation, and the logarithm of a sum of exponentials."""

from __future__ import annotations

import math

from ..autograd import record
from ..tensor_class import Tensor
from .arithmetic import add, mean, multiply, subtract
from .compare import equal, isinf, where
from .extremum import max
from .reduce import Axes, any_axes, normalize_axes, reduced_shapes, sum
from .shape import reshape
from .unary import exp, log, sqrt_or_zero_slope, square

__all__ = ["logsumexp", "std", "var"]


def var(
    x: Tensor, axis: Axes = None, keepdims: bool = False, correction: float = 1.0, *, dim: Axes = None,
    keepdim: bool | None = None,
) -> Tensor:  # fmt: skip
    """The variance over axes (all by default): sum((x - mean)²) / (count - correction).

    Gradient: 2 g (x - mean) / (count - correction). NaN where `count - correction` is 0, as in torch.

    Args:
        x: float32.
        axis: one, several, or None for all.
        keepdims: leave the axes in place, with length 1.
        correction: 1 for the unbiased estimate of torch, 0 for the one of the population, which NumPy has.
        dim: as `axis`.
        keepdim: as `keepdims`.

    Raises:
        ShapeError: there is no such axis, or it is named twice.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([1.0, 2.0, 3.0], device="cpu")
        >>> x.var().item(), round(x.var(correction=0).item(), 6)
        (1.0, 0.666667)
    """
    axis, keepdims = any_axes(axis, keepdims, dim, keepdim)
    axes = normalize_axes(axis, x.ndim)
    degrees = math.prod(x.shape[index] for index in axes) - correction
    squares = sum(square(subtract(x, mean(x, axes, keepdims=True))), axes, keepdims)
    if degrees > 0:
        return multiply(squares, 1.0 / degrees)
    return multiply(squares, math.inf)  # 0 times infinity is NaN


def std(
    x: Tensor, axis: Axes = None, keepdims: bool = False, correction: float = 1.0, *, dim: Axes = None,
    keepdim: bool | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation, the square root of `var`. Its gradient is 0 where it is 0, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> [round(value, 4) for value in ow.ops.std(x, axis=1).tolist()]
        [0.7071, 2.1213]
    """
    axis, keepdims = any_axes(axis, keepdims, dim, keepdim)
    return sqrt_or_zero_slope(var(x, axis, keepdims, correction))


def logsumexp(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
) -> Tensor:
    """log(sum(exp(x))) over axes (all by default), without overflow. Gradient: g softmax(x).

    -infinity where all elements are, with the gradient 0; infinity where one is.

    Raises:
        ShapeError: there is no such axis, it is named twice, or has no elements.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([1000.0, 1000.0], device="cpu").logsumexp().item() - 1000.0 < 0.6932
        True
    """
    axis, keepdims = any_axes(axis, keepdims, dim, keepdim)
    axes = normalize_axes(axis, x.ndim)
    kept, shape = reduced_shapes(x, axes, keepdims)
    values = x.detach()
    largest = max(values, axes, keepdims=True)
    shift = where(isinf(largest), 0.0, largest)
    total = sum(exp(subtract(values, shift)), axes, keepdims=True)
    result = reshape(add(log(total), shift), shape)

    def rule(g: Tensor, y: Tensor) -> Tensor:
        y = reshape(y, kept)
        share = exp(subtract(x, where(equal(y, -math.inf), 0.0, y)))
        return multiply(reshape(g, kept), share)

    return record(result, (x, rule))

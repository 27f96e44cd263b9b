"""The larger and the smaller of two values."""

from __future__ import annotations

import math
from typing import Any

from ..autograd import record
from ..launch import Operand, apply, need_float32
from ..tensor_class import Tensor
from .compare import greater, less, logical_and, logical_or, where
from .operands import operand, shape_of
from .reduce import sum_to

__all__ = ["clip", "maximum", "minimum"]


def maximum(a: Any, b: Any) -> Tensor:
    """The larger one of each pair, broadcast; NaN if one of them is.

    Gradients: g to the one that was taken, g / 2 to each where they are equal, g to both at NaN, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> ow.maximum(ow.tensor([1.0, -2.0], device="cpu"), 0.0).tolist()
        [1.0, 0.0]
    """
    return _extreme("maximum", a, b)


def minimum(a: Any, b: Any) -> Tensor:
    """The smaller one of each pair. See `maximum`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.minimum(x, y).tolist()
        [1.0, 4.0]
    """
    return _extreme("minimum", a, b)


def _extreme(function: str, a: Any, b: Any) -> Tensor:
    a, b = operand(a, b), operand(b, a)
    return record(
        apply("maximum", function, a, b),
        (a, lambda g, _: sum_to(_share(function, g, a, b), shape_of(a))),
        (b, lambda g, _: sum_to(_share(function, g, b, a), shape_of(b))),
    )


def _share(function: str, g: Tensor, chosen: Operand, other: Operand) -> Tensor:
    """Return the share of a gradient that belongs to `chosen`; it is piecewise constant in the operands."""
    result = apply("maximum", f"{function}_grad", g, chosen, other)
    return record(result, (g, lambda h, _: _share(function, h, chosen, other)))


def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """min(max(x, low), high): `high` where the bounds cross. NaN stays NaN.

    Gradients: g where x is between the bounds or at one, else to the bound that was taken, as torch.clamp.

    Args:
        x: float32.
        min: the lower bound, a number or a tensor; None for none.
        max: the upper bound.

    Raises:
        UnsupportedError: a tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([-2.0, 0.5, 2.0], device="cpu").clip(-1.0, 1.0).tolist()
        [-1.0, 0.5, 1.0]
    """
    need_float32("clip", x)
    low = -math.inf if min is None else operand(min, x)
    high = math.inf if max is None else operand(max, x)
    result = apply("clip", "clip", x, low, high)
    return record(
        result,
        (x, lambda g, _: sum_to(_passed(g, x, low, high), shape_of(x))),
        (low, lambda g, _: sum_to(where(logical_and(less(x, low), less(low, high)), g, 0.0), shape_of(low))),
        (high, lambda g, _: sum_to(where(logical_or(greater(x, high), less(high, low)), g, 0.0), shape_of(high))),
    )


def _passed(g: Tensor, x: Tensor, low: Operand, high: Operand) -> Tensor:
    result = apply("clip", "clip_grad", g, x, low, high)
    return record(result, (g, lambda h, _: _passed(h, x, low, high)))

"""Powers."""

from __future__ import annotations

import math
from typing import Any

from ..autograd import record
from ..launch import Operand, apply
from ..tensor_class import Tensor
from .arithmetic import multiply, subtract
from .compare import equal, greater_equal, logical_and, logical_not, where
from .creation import full
from .operands import operand, shape_of
from .reduce import sum_to
from .unary import abs, log, square

__all__ = ["power"]

_SMALLEST_NORMAL = 2.0**-126


def power(x: Any, y: Any) -> Tensor:
    """X to the power y, broadcast, within 4 ulp; either may be a number.

    Special cases are C99's: x⁰ and 1ʸ are 1, also for NaN; a negative base has powers with integer exponents, of the
    right sign, and NaN with others. Gradients: g y x^(y - 1), which is 0 where y is 0, and g x^y log(x), which is 0
    where x is 0 and y is not negative, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> (ow.tensor([3.0, -2.0], device="cpu") ** 3).tolist()
        [27.0, -8.0]
    """
    x, y = operand(x, y), operand(y, x)
    if not isinstance(y, Tensor) and y == 2.0:
        return square(x)
    return record(
        apply("power", "power", x, y),
        (x, lambda g, _: sum_to(multiply(g, _by_base(x, y)), shape_of(x))),
        (y, lambda g, result: sum_to(multiply(g, _by_exponent(x, y, result)), shape_of(y))),
    )


def _by_base(x: Tensor, y: Operand) -> Operand:
    """Y x^(y - 1), and 0 instead of 0 times infinity."""
    if not isinstance(y, Tensor):
        if y == 0.0:
            return full(x.shape, 0.0, x.device)
        return 1.0 if y == 1.0 else multiply(power(x, y - 1.0), y)
    is_zero = logical_and(equal(y, 0.0), logical_not(greater_equal(abs(x.detach()), _SMALLEST_NORMAL)))
    return multiply(power(x, where(is_zero, 0.0, subtract(y, 1.0))), y)


def _by_exponent(x: Operand, y: Tensor, result: Tensor) -> Operand:
    """x^y log(x), and 0 where x is 0 and y is not negative."""
    if isinstance(x, Tensor):
        is_zero = logical_and(equal(x, 0.0), greater_equal(y, 0.0))
        return multiply(result, log(where(is_zero, 1.0, x)))
    if x > 0.0:
        return multiply(result, math.log(x))
    if x == 0.0:
        return where(greater_equal(y, 0.0), 0.0, multiply(result, -math.inf))
    return full(result.shape, math.nan, result.device)

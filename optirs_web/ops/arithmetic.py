"""Sums, differences, products, quotients and means, and copies."""

from __future__ import annotations

import math
from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..launch import Operand, apply, apply_in_place, write_into
from ..tensor_class import Tensor, empty
from .operands import operand, shape_of
from .reduce import Axes, any_axes, normalize_axes, sum, sum_to

__all__ = ["add", "add_into", "clone", "divide", "in_order", "mean", "multiply", "negate", "subtract"]


def _binary(name: str, a: Any, b: Any) -> tuple[Operand, Operand, Tensor]:
    a, b = operand(a, b), operand(b, a)
    return a, b, apply(name, name, a, b)


def add(a: Any, b: Any) -> Tensor:
    """Sum a + b, broadcast. Gradients: g and g.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.add(x, y).tolist()
        [3.0, 9.0]
    """
    a, b, result = _binary("add", a, b)
    shape_a, shape_b = shape_of(a), shape_of(b)
    return record(result, (a, lambda g, _: sum_to(g, shape_a)), (b, lambda g, _: sum_to(g, shape_b)))


def subtract(a: Any, b: Any) -> Tensor:
    """Difference a - b, broadcast. Gradients: g and -g.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.subtract(x, y).tolist()
        [-1.0, 1.0]
    """
    a, b, result = _binary("subtract", a, b)
    shape_a, shape_b = shape_of(a), shape_of(b)
    return record(result, (a, lambda g, _: sum_to(g, shape_a)), (b, lambda g, _: sum_to(negate(g), shape_b)))


def multiply(a: Any, b: Any) -> Tensor:
    """Product a * b, broadcast. Gradients: g b and g a.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.multiply(x, y).tolist()
        [2.0, 20.0]
    """
    a, b, result = _binary("multiply", a, b)
    return record(
        result,
        (a, lambda g, _: sum_to(multiply(g, b), shape_of(a))),
        (b, lambda g, _: sum_to(multiply(g, a), shape_of(b))),
    )


def divide(a: Any, b: Any) -> Tensor:
    """Quotient a / b, broadcast. Gradients: g / b and -g a / b².

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 5.0], device="cpu"), ow.tensor([2.0, 4.0], device="cpu")
        >>> ow.ops.divide(x, y).tolist()
        [0.5, 1.25]
    """
    a, b, result = _binary("divide", a, b)
    return record(
        result,
        (a, lambda g, _: sum_to(divide(g, b), shape_of(a))),
        (b, lambda g, _: sum_to(negate(divide(multiply(divide(g, b), a), b)), shape_of(b))),
    )


def negate(x: Tensor) -> Tensor:
    """The value with its sign changed. Gradient: -g.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.negate(ow.tensor([1.0, -2.0], device="cpu")).tolist()
        [-1.0, 2.0]
    """
    return record(apply("negate", "negate", x), (x, lambda g, _: negate(g)))


def mean(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
) -> Tensor:
    """Return the mean over axes, all by default; the arguments are those of `sum`.

    Raises:
        ShapeError: there is nothing to average.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.mean(x, axis=0).tolist()
        [2.0, 4.0]
    """
    axis, keepdims = any_axes(axis, keepdims, dim, keepdim)
    axes = normalize_axes(axis, x.ndim)
    count = math.prod(x.shape[index] for index in axes)
    if count == 0:
        raise ShapeError(f"the mean over axes {axes} of shape {x.shape} has no elements")
    return multiply(sum(x, axes, keepdims), 1.0 / count)


def add_into(target: Tensor, addend: Tensor) -> None:
    """Add to `target` in place; leaves no history."""
    apply_in_place("add", "add", target, addend)


def clone(x: Tensor) -> Tensor:
    """A copy in memory of its own. Gradient: g.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.clone(x).tolist() == x.tolist()
        True
    """
    result = empty(x.shape, x.dtype, x.device)
    write_into(result, x)
    return record(result, (x, lambda g, _: g))


def in_order(x: Tensor) -> Tensor:
    """The tensor if it is contiguous, else a contiguous copy. Gradient: g."""
    return x if x.is_contiguous else clone(x)

"""Functions of each element, and derivatives that are one map function and have derivatives themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd import record
from ..launch import Operand, apply, need_float32
from ..tensor_class import Tensor
from .arithmetic import add, divide, multiply, negate
from .creation import zeros

__all__ = [
    "abs",
    "cos",
    "erf",
    "exp",
    "expm1",
    "log",
    "log1p",
    "map_function",
    "reciprocal",
    "rsqrt",
    "sign",
    "sin",
    "slope",
    "sqrt",
    "sqrt_or_zero_slope",
    "square",
]

Curvature = Callable[[Tensor], Operand]


def map_function(file: str, function: str, x: Tensor, *numbers: float) -> Tensor:
    """A map function of a float32 tensor. Leaves no history.

    Raises:
        UnsupportedError: the tensor is not float32.
    """
    need_float32(function.rstrip("_"), x)
    return apply(file, function, x, *numbers)


def slope(
    function: str, g: Operand, at: Tensor, curvature: Curvature | None, *numbers: float, file: str = ""
) -> Tensor:
    """A gradient times a derivative, as the map function ``FUNCTION(g, at, *numbers)``: linear in `g`.

    Args:
        function: its name.
        g: the gradient; 1.0 gives the derivative itself.
        at: the argument of the derivative: the point itself, or a value that was computed from it.
        curvature: its own derivative by `at`, in differentiable operations; None where that is 0.
        numbers: further arguments.
        file: the file of the function, if not that of the function that it is the derivative of.
    """
    result = apply(file or function.removesuffix("_grad"), function, g, at, *numbers)
    edges: list[tuple[Any, Callable[[Tensor, Tensor], Tensor]]]
    edges = [(g, lambda h, _: slope(function, h, at, curvature, *numbers, file=file))]
    if curvature is not None:
        edges.append((at, lambda h, _: multiply(multiply(h, g), curvature(at))))
    return record(result, *edges)


def exp(x: Tensor) -> Tensor:
    """The exponential of each element, within 2 ulp. Gradient: that exponential times g.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.exp(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [1.0, 2.7183]
    """
    return record(map_function("exp", "exp_", x), (x, multiply))


def log(x: Tensor) -> Tensor:
    """The natural logarithm, within 2 ulp: -inf at 0, NaN below. Gradient: g / x.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([1.0, 0.0], device="cpu").log().tolist()
        [0.0, -inf]
    """
    return record(map_function("log", "log_", x), (x, lambda g, _: divide(g, x)))


def log1p(x: Tensor) -> Tensor:
    """log(1 + x), within 4 ulp also where x is small: -inf at -1, NaN below. Gradient: g / (1 + x).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.log1p(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.0, 0.6931]
    """
    return record(map_function("log1p", "log1p_", x), (x, lambda g, _: divide(g, add(x, 1.0))))


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, within 4 ulp also where x is small. Gradient: g exp(x).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.expm1(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.0, 1.7183]
    """
    return record(map_function("expm1", "expm1_", x), (x, lambda g, _: multiply(g, exp(x))))


def sqrt(x: Tensor) -> Tensor:
    """The square root; NaN below 0. Gradient: g / (2 root), so infinite at 0, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.sqrt(ow.tensor([4.0, 2.0], device="cpu")).tolist()]
        [2.0, 1.4142]
    """
    return record(map_function("sqrt", "sqrt_", x), (x, lambda g, y: slope("sqrt_grad", g, y, _curvature_of_sqrt)))


def _curvature_of_sqrt(root: Tensor) -> Tensor:
    return divide(-0.5, square(root))


def sqrt_or_zero_slope(x: Tensor) -> Tensor:
    """The square root, with the gradient 0 where x is 0."""
    return record(
        map_function("sqrt", "sqrt_", x),
        (x, lambda g, y: slope("sqrt_grad_or_zero", g, y, _curvature_or_zero, file="sqrt")),
    )


def _curvature_or_zero(root: Tensor) -> Tensor:
    inverse = slope("sqrt_grad_or_zero", 1.0, root, _curvature_or_zero, file="sqrt")
    return multiply(square(inverse), -2.0)


def rsqrt(x: Tensor) -> Tensor:
    """One over the square root. Gradient: -g / (2 x sqrt(x)).

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.rsqrt(ow.tensor([4.0, 0.25], device="cpu")).tolist()
        [0.5, 2.0]
    """
    return reciprocal(sqrt(x))


def reciprocal(x: Tensor) -> Tensor:
    """1 / x. Gradient: -g / x².

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.reciprocal(ow.tensor([2.0, 4.0], device="cpu")).tolist()
        [0.5, 0.25]
    """
    return record(
        map_function("reciprocal", "reciprocal", x),
        (x, lambda g, y: slope("reciprocal_grad", g, y, lambda at: multiply(at, -2.0))),
    )


def square(x: Tensor) -> Tensor:
    """x². Gradient: 2 g x.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.square(ow.tensor([-1.5, 2.0], device="cpu")).tolist()
        [2.25, 4.0]
    """
    return record(
        map_function("square", "square", x),
        (x, lambda g, _: slope("square_grad", g, x, lambda _: 2.0)),
    )


def abs(x: Tensor) -> Tensor:
    """The magnitude. Gradient: g sign(x), which is 0 at 0.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.abs(ow.tensor([-1.5, 2.0], device="cpu")).tolist()
        [1.5, 2.0]
    """
    return record(map_function("abs", "abs_", x), (x, lambda g, _: slope("abs_grad", g, x, None)))


def sign(x: Tensor) -> Tensor:
    """1, 0 or -1; 0 for NaN, as in torch. Gradient: 0.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.sign(ow.tensor([-2.0, 0.0, 3.0], device="cpu")).tolist()
        [-1.0, 0.0, 1.0]
    """
    return record(map_function("sign", "sign_", x), (x, lambda g, _: zeros(g.shape, g.device)))


def sin(x: Tensor) -> Tensor:
    """The sine, within 4 ulp for every argument; NaN at infinity. Gradient: g cos(x).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.sin(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.0, 0.8415]
    """
    return record(map_function("sin", "sin_", x), (x, lambda g, _: slope("sin_grad", g, x, lambda at: negate(sin(at)))))


def cos(x: Tensor) -> Tensor:
    """The cosine, within 4 ulp for every argument; NaN at infinity. Gradient: -g sin(x).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.cos(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [1.0, 0.5403]
    """
    return record(map_function("cos", "cos_", x), (x, lambda g, _: slope("cos_grad", g, x, lambda at: negate(cos(at)))))


def erf(x: Tensor) -> Tensor:
    """The error function. Gradient: g 2 / sqrt(pi) exp(-x²).

    Source: the tail of Shepherd and Laframboise (1981); see ``shaders/lib/error_function.wgsl``.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.erf(ow.tensor([0.0, 0.5], device="cpu")).tolist()]
        [0.0, 0.5205]
    """
    return record(map_function("erf", "erf", x), (x, lambda g, _: slope("erf_grad", g, x, _curvature_of_erf)))


def _curvature_of_erf(x: Tensor) -> Tensor:
    return multiply(multiply(x, -2.0), slope("erf_grad", 1.0, x, _curvature_of_erf))

"""Activation functions."""

from __future__ import annotations

import math

from ..autograd import record
from ..tensor_class import Tensor
from .arithmetic import add, multiply, subtract
from .compare import less_equal, where
from .unary import exp, map_function, slope, square

__all__ = ["gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]

_ONE_OVER_ROOT_TWO_PI = 1 / math.sqrt(2 * math.pi)
_TWICE_ROOT = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def relu(x: Tensor) -> Tensor:
    """The larger of x and 0; NaN stays NaN. The gradient at 0 is 0, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.relu(ow.tensor([-1.0, 2.0], device="cpu")).tolist()
        [0.0, 2.0]
    """
    return record(map_function("relu", "relu", x), (x, lambda g, _: slope("relu_grad", g, x, None)))


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """X above 0, `negative_slope` times x elsewhere. The gradient at 0 is `negative_slope` times g, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.leaky_relu(ow.tensor([-2.0, 3.0], device="cpu"), 0.5).tolist()
        [-1.0, 3.0]
    """
    return record(
        map_function("leaky_relu", "leaky_relu", x, negative_slope),
        (x, lambda g, _: slope("leaky_relu_grad", g, x, None, negative_slope)),
    )


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent, within 4 ulp. Gradient: g (1 - tanh²), to full accuracy also where tanh is near 1.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.tanh(ow.tensor([0.0, 0.5], device="cpu")).tolist()]
        [0.0, 0.4621]
    """
    return record(map_function("tanh", "tanh_", x), (x, lambda g, _: slope("tanh_grad", g, x, _curvature_of_tanh)))


def _curvature_of_tanh(x: Tensor) -> Tensor:
    return multiply(multiply(tanh(x), -2.0), slope("tanh_grad", 1.0, x, _curvature_of_tanh))


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). Gradient: g s (1 - s), to full accuracy also where s is near 1.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([0.0, 100.0], device="cpu").sigmoid().tolist()
        [0.5, 1.0]
    """
    return record(
        map_function("sigmoid", "sigmoid", x), (x, lambda g, _: slope("sigmoid_grad", g, x, _curvature_of_sigmoid))
    )


def _curvature_of_sigmoid(x: Tensor) -> Tensor:
    """S' (1 - 2s), and 1 - 2s is -tanh(x / 2)."""
    return multiply(slope("sigmoid_grad", 1.0, x, _curvature_of_sigmoid), tanh(multiply(x, -0.5)))


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above `threshold`. Gradient: g sigmoid(beta x).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.softplus(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.6931, 1.3133]
    """

    def curvature(at: Tensor) -> Tensor:
        scaled = multiply(at, beta)
        bend = multiply(slope("sigmoid_grad", 1.0, scaled, _curvature_of_sigmoid), beta)
        return where(less_equal(scaled, threshold), bend, 0.0)

    return record(
        map_function("softplus", "softplus", x, beta, threshold),
        (x, lambda g, _: slope("softplus_grad", g, x, curvature, beta, threshold)),
    )


def silu(x: Tensor) -> Tensor:
    """X sigmoid(x), also called swish. NaN at -infinity, as in torch.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.silu(ow.tensor([-1.0, 1.0], device="cpu")).tolist()]
        [-0.2689, 0.7311]
    """
    return record(map_function("silu", "silu", x), (x, lambda g, _: slope("silu_grad", g, x, _curvature_of_silu)))


def _curvature_of_silu(x: Tensor) -> Tensor:
    """S' (2 + x (1 - 2s)), and 1 - 2s is -tanh(x / 2)."""
    bend = subtract(2.0, multiply(x, tanh(multiply(x, 0.5))))
    return multiply(slope("sigmoid_grad", 1.0, x, _curvature_of_sigmoid), bend)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """X Φ(x), where Φ is the distribution function of the standard normal. NaN at -infinity, as in torch.

    Args:
        x: float32.
        approximate: "none", or "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))) / 2.

    Raises:
        ValueError: there is no such approximation.

    Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 6) for value in ow.tensor([-1.0, 1.0], device="cpu").gelu().tolist()]
        [-0.158655, 0.841345]
    """
    if approximate not in _CURVATURES:
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    function, curvature = _CURVATURES[approximate]
    return record(map_function(function, function, x), (x, lambda g, _: slope(f"{function}_grad", g, x, curvature)))


def _curvature_of_gelu(x: Tensor) -> Tensor:
    """φ(x) (2 - x²), where φ is the density of the standard normal."""
    density = multiply(exp(multiply(square(x), -0.5)), _ONE_OVER_ROOT_TWO_PI)
    return multiply(density, subtract(2.0, square(x)))


def _curvature_of_gelu_tanh(x: Tensor) -> Tensor:
    """With s = sigmoid(v) and v = 2u: s' (2 v' + x v'' + x v'² (1 - 2s)), and 1 - 2s is -tanh(v / 2)."""
    squared = square(x)
    v = multiply(x, add(multiply(squared, _TWICE_ROOT * _CUBIC), _TWICE_ROOT))
    v1 = add(multiply(squared, 3 * _TWICE_ROOT * _CUBIC), _TWICE_ROOT)
    v2 = multiply(x, 6 * _TWICE_ROOT * _CUBIC)
    bend = multiply(x, subtract(v2, multiply(square(v1), tanh(multiply(v, 0.5)))))
    return multiply(slope("sigmoid_grad", 1.0, v, _curvature_of_sigmoid), add(multiply(v1, 2.0), bend))


_CURVATURES = {"none": ("gelu", _curvature_of_gelu), "tanh": ("gelu_tanh", _curvature_of_gelu_tanh)}

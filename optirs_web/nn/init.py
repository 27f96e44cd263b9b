"""Initial values of parameters: torch.nn.init's functions, names and distributions.

Each writes in place and returns what it was given. Random numbers are those of `optirs_web.rand` and `randn`, so
after the same `optirs_web.manual_seed` every device has the same weights: uniform ones to rounding, normal ones to 4
units in the last place.
"""

from __future__ import annotations

import math
from typing import TypeVar

from ..autograd import no_grad
from ..errors import ShapeError
from ..launch import apply, write_into
from ..ops import full, rand, randn, transpose
from ..tensors import Parameter, Tensor
from .buffers import Buffer

__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_T = TypeVar("_T", bound=Tensor)

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor of the standard deviation of weights before a nonlinearity.

    Args:
        nonlinearity: "linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu", ...
        param: the negative slope of "leaky_relu", 0.01 by default.

    Raises:
        ValueError: it is none of these.

    Example:
        >>> import optirs_web as ow
        >>> round(ow.nn.init.calculate_gain("leaky_relu", 0.2), 4)
        1.3868
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"nonlinearity must be one of {', '.join([*_GAINS, 'leaky_relu'])}, not '{nonlinearity}'")
    return _GAINS[nonlinearity]


def fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Return the inputs of each output of a weight (out, in, *window), and the outputs of each input.

    Raises:
        ShapeError: it has fewer than two axes.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"fan in and fan out need two axes or more, not the shape {tensor.shape}")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _write(target: _T, values: Tensor) -> _T:
    if isinstance(target, (Buffer, Parameter)):
        target.assign(values)
    else:
        write_into(target, values)
    return target


def uniform_(tensor: _T, a: float = 0.0, b: float = 1.0) -> _T:
    """Fill a tensor with uniform numbers in [a, b).

    Example:
        >>> import optirs_web as ow
        >>> w = ow.nn.init.uniform_(ow.Parameter(ow.zeros((3, 2), device="cpu")), -1.0, 1.0)
        >>> all(-1.0 <= value < 1.0 for row in w.tolist() for value in row)
        True
    """
    with no_grad():
        return _write(tensor, rand(tensor.shape, tensor.device) * (b - a) + a)


def normal_(tensor: _T, mean: float = 0.0, std: float = 1.0) -> _T:
    """Fill a tensor with normal numbers.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.zeros((100, 100), device="cpu"))
        >>> ow.nn.init.normal_(w, std=0.1) is w
        True
        >>> 0.09 < w.std().item() < 0.11
        True
    """
    with no_grad():
        return _write(tensor, randn(tensor.shape, tensor.device) * std + mean)


def trunc_normal_(tensor: _T, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> _T:
    """Fill a tensor with normal numbers truncated to [a, b], by the inverse of the distribution function.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.nn.init.trunc_normal_(ow.Parameter(ow.zeros((100, 100), device="cpu")), a=-1.0, b=1.0)
        >>> -1.0 <= w.min().item() and w.max().item() <= 1.0
        True
    """

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = (2.0 * below((bound - mean) / std) - 1.0 for bound in (a, b))
    with no_grad():
        uniform = rand(tensor.shape, tensor.device) * (high - low) + low
        spread = std * math.sqrt(2.0)
        return _write(tensor, apply("initial_values", "truncated_normal", uniform, mean, spread, a, b))


def constant_(tensor: _T, val: float) -> _T:
    """Fill a tensor with one value.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.init.constant_(ow.Parameter(ow.zeros((2, 3), device="cpu")), 0.5).tolist()
        [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    """
    return _write(tensor, full(tensor.shape, val, tensor.device, tensor.dtype))


def zeros_(tensor: _T) -> _T:
    """Fill a tensor with zeros.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.ones((2, 3), device="cpu"))
        >>> ow.nn.init.zeros_(w).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return constant_(tensor, 0)


def ones_(tensor: _T) -> _T:
    """Fill a tensor with ones.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.init.ones_(ow.Parameter(ow.zeros((2, 3), device="cpu"))).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return constant_(tensor, 1)


def eye_(tensor: _T) -> _T:
    """Fill a matrix with the identity; further columns or rows are zeros.

    Raises:
        ShapeError: it is no matrix.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.init.eye_(ow.Parameter(ow.zeros((2, 3), device="cpu"))).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ needs a matrix, not the shape {tensor.shape}")
    values = apply("initial_values", "eye", 0, tensor.shape[1], device=tensor.device, shape=tensor.shape)
    return _write(tensor, values)


def xavier_uniform_(tensor: _T, gain: float = 1.0) -> _T:
    """Fill a weight with uniform numbers in ± gain √(6 / (fan in + fan out)) (Glorot and Bengio 2010).

    Raises:
        ShapeError: it has fewer than two axes.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.zeros((100, 300), device="cpu"))
        >>> ow.nn.init.xavier_uniform_(w) is w
        True
        >>> w.abs().max().item() <= (6 / 400) ** 0.5
        True
    """
    bound = gain * math.sqrt(6.0 / sum(fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: _T, gain: float = 1.0) -> _T:
    """Fill a weight with normal numbers of deviation gain √(2 / (fan in + fan out)) (Glorot and Bengio 2010).

    Raises:
        ShapeError: it has fewer than two axes.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.zeros((100, 300), device="cpu"))
        >>> ow.nn.init.xavier_normal_(w) is w
        True
        >>> 0.9 < w.std().item() / (2 / 400) ** 0.5 < 1.1
        True
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fan_in_and_fan_out(tensor))))


def _kaiming_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    fans = {"fan_in": fan_in, "fan_out": fan_out}
    if mode not in fans:
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not '{mode}'")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans[mode], 1))


def kaiming_uniform_(tensor: _T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> _T:
    """Fill a weight with uniform numbers in ± gain √(3 / fan) (He et al. 2015, arXiv:1502.01852).

    Args:
        tensor: a weight (out, in, *window).
        a: the negative slope of the leaky relu that follows.
        mode: "fan_in" keeps the variance of the forward pass, "fan_out" that of the backward pass.
        nonlinearity: what `calculate_gain` takes.

    Raises:
        ShapeError: it has fewer than two axes.
        ValueError: another mode or nonlinearity.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.zeros((100, 300), device="cpu"))
        >>> ow.nn.init.kaiming_uniform_(w, nonlinearity="relu") is w
        True
        >>> w.abs().max().item() <= (6 / 300) ** 0.5
        True
    """
    bound = math.sqrt(3.0) * _kaiming_deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: _T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> _T:
    """Fill a weight with normal numbers of deviation gain / √fan (He et al. 2015). See `kaiming_uniform_`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter(ow.zeros((100, 300), device="cpu"))
        >>> ow.nn.init.kaiming_normal_(w, nonlinearity="relu") is w
        True
        >>> 0.9 < w.std().item() / (2 / 300) ** 0.5 < 1.1
        True
    """
    return normal_(tensor, 0.0, _kaiming_deviation(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: _T, gain: float = 1.0) -> _T:
    """Fill a weight, as a matrix (rows, all other axes), with orthonormal rows or columns (Saxe et al. 2014).

    It is the orthogonal factor of a normal matrix, which has the uniform distribution of the one that torch takes from
    its QR decomposition. It is computed on the device by iterations of Newton and Schulz: first Jordan's polynomial
    (2024), which raises small singular values fast, then the cubic one, which brings all of them to 1.

    Raises:
        ShapeError: it has fewer than two axes.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.nn.init.orthogonal_(ow.Parameter(ow.zeros((3, 5), device="cpu")))
        >>> round((w @ w.T).sum().item(), 3), round(w.square().sum().item(), 3)
        (3.0, 3.0)
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_ needs two axes or more, not the shape {tensor.shape}")
    rows, columns = tensor.shape[0], tensor.size // max(tensor.shape[0], 1)
    if not tensor.size:
        return tensor
    with no_grad():
        x = randn((rows, columns), tensor.device) * (1.0 / (math.sqrt(rows) + math.sqrt(columns)))
        x = x if rows <= columns else transpose(x, 0, 1)
        for a, b, c in [_LIFTING] * 14 + [_SETTLING] * 8:
            square = x @ transpose(x, 0, 1)
            x = x * a + (square * b + (square @ square) * c if c else square * b) @ x
        x = (x if rows <= columns else transpose(x, 0, 1)) * gain
        return _write(tensor, x.reshape(tensor.shape))


_LIFTING = (3.4445, -4.7750, 2.0315)
_SETTLING = (1.5, -0.5, 0.0)

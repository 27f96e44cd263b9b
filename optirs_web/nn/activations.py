"""Activation functions as modules."""

from __future__ import annotations

from ..tensors import Tensor
from . import functional as F
from .module import Module

__all__ = ["GELU", "LeakyReLU", "LogSoftmax", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh"]


class ReLU(Module):
    """The larger of x and 0.

    Args:
        inplace: accepted as torch does; tensors are not changed in place.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.ReLU()(ow.tensor([-2.0, 3.0], device="cpu")).tolist()
        [0.0, 3.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.relu(input)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class LeakyReLU(Module):
    """x above 0, `negative_slope` times x elsewhere.

    Args:
        negative_slope: the factor of negative elements.
        inplace: accepted as torch does; tensors are not changed in place.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.LeakyReLU(0.5)(ow.tensor([-2.0, 3.0], device="cpu")).tolist()
        [-1.0, 3.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + ", inplace=True" * self.inplace


class GELU(Module):
    """x Φ(x), with the distribution function Φ of the standard normal.

    Args:
        approximate: "none", or "tanh" for the approximation by tanh.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.GELU()(ow.tensor([-1.0, 1.0], device="cpu")).tolist()]
        [-0.1587, 0.8413]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate='{self.approximate}'"


class SiLU(ReLU):
    """x times the sigmoid of x, also called swish.

    Args:
        inplace: accepted as torch does; tensors are not changed in place.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.SiLU()(ow.tensor([-1.0, 1.0], device="cpu")).tolist()]
        [-0.2689, 0.7311]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.silu(input)


class Tanh(Module):
    """The hyperbolic tangent.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.Tanh()(ow.tensor([0.0, 0.5], device="cpu")).tolist()]
        [0.0, 0.4621]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.Sigmoid()(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.5, 0.7311]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.sigmoid(input)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta, and x itself where beta x is above `threshold`.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.Softplus()(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.6931, 1.3133]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function to each element of a tensor of any shape."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along an axis.

    Args:
        dim: the axis; the last one by default.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.Softmax()(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [0.2689, 0.7311]
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function along the axis of a tensor of any shape."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of the softmax along an axis.

    Args:
        dim: the axis; the last one by default.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.nn.LogSoftmax()(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [-1.3133, -0.3133]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Apply the function along the axis of a tensor of any shape."""
        return F.log_softmax(input, self.dim)

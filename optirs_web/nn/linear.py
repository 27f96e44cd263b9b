"""Linear layers, and the layers without parameters Identity and Flatten."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError, quoted
from ..ops import reshape, zeros
from ..runtime.device import Device
from ..tensors import Parameter, Tensor, as_shape
from . import functional as F, init
from .module import Module

__all__ = ["Flatten", "Identity", "Linear"]


class Linear(Module):
    """y = x Wᵀ + b.

    Args:
        in_features: the length of the last axis of x.
        out_features: that of y.
        bias: whether there is a b.
        device: what `optirs_web.device` takes.

    Raises:
        ShapeError: a length is negative, or not an int.

    Attributes:
        weight: (out_features, in_features), uniform in ±1/√in_features at first.
        bias: (out_features,), from the same distribution, or None.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Linear(3, 5, device="cpu")(ow.ones((7, 2, 3), device="cpu")).shape
        (7, 2, 5)
    """

    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: str | Device | None = None
    ) -> None:
        super().__init__()
        try:
            as_shape((in_features, out_features))
        except ShapeError:
            raise ShapeError(
                "Linear needs in_features and out_features that are ints from 0, "
                f"not {quoted(in_features)} and {quoted(out_features)}"
            ) from None
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(zeros((out_features, in_features), device))
        self.bias = Parameter(zeros(out_features, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values for weight and bias."""
        reset_weight_and_bias(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        result: Tensor = F.linear(input, self.weight, self.bias)
        return result

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def reset_weight_and_bias(weight: Parameter, bias: Parameter | None) -> None:
    """Draw weight and bias as torch does for linear layers and convolutions: uniform in ±1/√fan_in."""
    if weight.size:
        init.kaiming_uniform_(weight, a=math.sqrt(5.0))
    if bias is not None:
        fan_in, _ = init.fan_in_and_fan_out(weight)
        bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(bias, -bound, bound)


class Identity(Module):
    """Return the input unchanged. Arguments are ignored.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Identity()(ow.tensor([1.0, 2.0], device="cpu")).tolist()
        [1.0, 2.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


class Flatten(Module):
    """Merge the axes from `start_dim` to `end_dim` into one.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Flatten()(ow.ones((2, 3, 4), device="cpu")).shape
        (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return a view with the axes merged."""
        shape = input.shape or (1,)
        first, last = (axis % len(shape) for axis in (self.start_dim, self.end_dim))
        return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"

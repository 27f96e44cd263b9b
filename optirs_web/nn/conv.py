"""Convolutions of images."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import ShapeError, UnsupportedError
from ..ops import zeros
from ..ops.convolution import Padding
from ..ops.windows import pair
from ..runtime.device import Device
from ..tensors import Parameter, Tensor
from . import functional as F
from .linear import reset_weight_and_bias
from .module import Module
from .pooling import Size

__all__ = ["Conv2d"]


class Conv2d(Module):
    """The cross-correlation of images (n, in_channels, height, width) with a weight, as torch.nn.Conv2d.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: of the window: height and width, or one int for both.
        stride: steps from one window to the next.
        padding: zeros on each side; "valid" is none, "same" keeps height and width (with a stride of 1).
        dilation: steps from one element of the window to the next.
        groups: number of groups that the channels are split into, each with outputs of its own.
        bias: whether there is one.
        padding_mode: "zeros"; there is no other yet.
        device: what `optirs_web.device` takes.

    Attributes:
        weight: (out_channels, in_channels / groups, height, width), uniform in ±1/√fan_in at first.
        bias: (out_channels,), from the same distribution, or None.

    Raises:
        ShapeError: `groups` does not divide the channels, or a size is no int or pair.
        UnsupportedError: another `padding_mode`.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.Conv2d(3, 8, 3, padding=1, device="cpu")(ow.ones((2, 3, 5, 5), device="cpu")).shape
        (2, 8, 5, 5)
    """

    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | Literal["same", "valid"] = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | Device | None = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(f"{groups} groups do not divide {in_channels} and {out_channels} channels")
        if padding_mode != "zeros":
            raise UnsupportedError(f"padding_mode '{padding_mode}' is not supported; only 'zeros' is")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = pair(kernel_size, "kernel_size", 1)
        self.stride, self.dilation = pair(stride, "stride", 1), pair(dilation, "dilation", 1)
        self.padding: Padding = padding if isinstance(padding, str) else pair(padding, "padding", 0)
        self.weight = Parameter(zeros((out_channels, in_channels // groups, *self.kernel_size), device))
        self.bias = Parameter(zeros(out_channels, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values for weight and bias."""
        reset_weight_and_bias(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve images (n, in_channels, height, width), or one image without the first axis."""
        return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        others: dict[str, tuple[Any, Any]] = {
            "padding": (self.padding, (0, 0)),
            "dilation": (self.dilation, (1, 1)),
            "groups": (self.groups, 1),
            "bias": (self.bias is not None, True),
        }
        return text + "".join(f", {name}={value}" for name, (value, usual) in others.items() if value != usual)

"""Pooling: the largest or the mean value of each window of an image."""

from __future__ import annotations

from collections.abc import Sequence

from ..tensors import Tensor
from . import functional as F
from .module import Module

__all__ = ["AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d"]

Size = int | Sequence[int]
"""One int for height and width, or two."""


def _shown(**sizes: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


class MaxPool2d(Module):
    """The largest value of each window, as torch.nn.MaxPool2d.

    Args:
        kernel_size: of the window: height and width, or one int for both.
        stride: steps from one window to the next; the size of the window by default.
        padding: on each side, by -infinity.
        dilation: steps from one element of the window to the next.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.MaxPool2d(2)(ow.ones((1, 3, 4, 6), device="cpu")).shape
        (1, 3, 2, 3)
    """

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation

    def forward(self, input: Tensor) -> Tensor:
        """Pool images (n, channels, height, width), or one image (channels, height, width)."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        sizes = _shown(kernel_size=self.kernel_size, stride=self.stride, padding=self.padding, dilation=self.dilation)
        return f"{sizes}, ceil_mode=False"


class AvgPool2d(Module):
    """The mean value of each window, as torch.nn.AvgPool2d.

    Args:
        kernel_size: of the window: height and width, or one int for both.
        stride: steps from one window to the next; the size of the window by default.
        padding: zeros on each side.
        count_include_pad: these zeros count in the mean.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.AvgPool2d(2)(ow.ones((1, 3, 4, 6), device="cpu")).shape
        (1, 3, 2, 3)
    """

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, *, count_include_pad: bool = True
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.count_include_pad = padding, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Pool images (n, channels, height, width), or one image (channels, height, width)."""
        return F.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, count_include_pad=self.count_include_pad
        )

    def extra_repr(self) -> str:
        return _shown(kernel_size=self.kernel_size, stride=self.stride, padding=self.padding)


class AdaptiveAvgPool2d(Module):
    """The mean values of `output_size` windows that divide an image evenly, as torch.nn.AdaptiveAvgPool2d.

    Args:
        output_size: windows along height and width, or one int for both.

    Raises:
        ShapeError: at a call, if they do not divide the image.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.AdaptiveAvgPool2d(1)(ow.ones((1, 3, 4, 6), device="cpu")).shape
        (1, 3, 1, 1)
    """

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Pool images (n, channels, height, width), or one image (channels, height, width)."""
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"

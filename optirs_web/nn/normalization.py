"""Normalization: layer norm over the last axes, batch norm over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShapeError
from ..launch import apply_in_place
from ..ops import astype, ones, reciprocal, zeros
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor
from . import functional as F, init
from .buffers import Buffer
from .module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "LayerNorm"]


class LayerNorm(Module):
    """(x - mean) / √(variance + eps) · weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).

    Args:
        normalized_shape: the last axes, or the length of the last one.
        eps: added to the variance, which is the mean of the squares.
        elementwise_affine: whether there are weight and bias.
        bias: whether there is a bias, where there is a weight.
        device: what `optirs_web.device` takes.

    Attributes:
        weight: of the normalized shape, ones at first; or None.
        bias: likewise, zeros at first; or None.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.LayerNorm(4, device="cpu")(ow.ones((2, 3, 4), device="cpu")).shape
        (2, 3, 4)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | Device | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.weight = Parameter(ones(shape, device)) if elementwise_affine else None
        self.bias = Parameter(zeros(shape, device)) if elementwise_affine and bias else None

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (..., *normalized_shape) over its last axes."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


def _reset(weight: Parameter | None, bias: Parameter | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class _BatchNorm(Module):
    """The base class of batch norms of any number of axes."""

    may_be_missing = frozenset({"num_batches_tracked"})  # as in torch: early ones have none
    ranks: tuple[int, ...] = ()

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Buffer | None
    running_var: Buffer | None
    num_batches_tracked: Buffer | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | Device | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter(ones(num_features, device)) if affine else None
        self.bias = Parameter(zeros(num_features, device)) if affine and bias else None
        is_tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device) if is_tracked else None)
        self.register_buffer("running_var", ones(num_features, device) if is_tracked else None)
        self.register_buffer("num_batches_tracked", zeros((), device, "int32") if is_tracked else None)

    def reset_running_stats(self) -> None:
        """Set the running mean to zeros, the running variance to ones, and the number of batches to 0."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                init.constant_(buffer, value)

    def reset_parameters(self) -> None:
        """Set the weight to ones, the bias to zeros, and the running values to their initial ones."""
        self.reset_running_stats()
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize each channel of (n, channels, ...).

        Raises:
            ShapeError: another number of axes or channels.
        """
        if input.ndim not in self.ranks or input.shape[1] != self.num_features:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__} of {self.num_features} channels needs {ranks} axes, (n, channels, ...), "
                f"not the shape {input.shape}"
            )
        result = F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            self._share_of_batch() if self.training else 0.0,
            self.eps,
        )
        if self.training:
            for buffer in self.buffers():
                buffer.note_change()
        return result

    def _share_of_batch(self) -> Any:
        """Count the batch, and return its share in the running values."""
        count = self.num_batches_tracked
        if count is None:
            return 0.0
        apply_in_place("count", "next_count", count)
        return reciprocal(astype(count, FLOAT32)) if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch norm of (n, channels) or (n, channels, length). For its arguments see `BatchNorm2d`.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.BatchNorm1d(4, device="cpu")(ow.ones((2, 4), device="cpu")).shape
        (2, 4)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x - mean) / √(variance + eps) · weight + bias, per channel (Ioffe and Szegedy 2015, arXiv:1502.03167).

    In training mean and variance are those of the batch, and update the running ones; in evaluation they are the
    running ones, where there are such.

    Args:
        num_features: the channels.
        eps: added to the variance.
        momentum: the share of the batch in the running values; None makes these the mean over all batches.
        affine: whether there are weight and bias.
        track_running_stats: whether there are running values.
        device: what `optirs_web.device` takes.
        bias: whether there is a bias, where there is a weight.

    Attributes:
        weight: (num_features,), ones at first; or None.
        bias: (num_features,), zeros at first; or None.
        running_mean: (num_features,), a buffer, or None.
        running_var: likewise, unbiased: divided by n - 1.
        num_batches_tracked: how many batches there were, an int32 buffer without axes, or None.

    Raises:
        ShapeError: at a call, if the input has another number of axes or channels.

    Example:
        >>> import optirs_web as ow
        >>> ow.nn.BatchNorm2d(3, device="cpu")(ow.ones((2, 3, 5, 5), device="cpu")).shape
        (2, 3, 5, 5)
    """

    ranks = (4,)

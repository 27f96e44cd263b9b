"""Losses as modules."""

from __future__ import annotations

from typing import Any

from ..tensors import Tensor
from . import functional as F
from .module import Module

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss", "NLLLoss"]


class _Loss(Module):
    """A loss of an input and a target."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss):
    """The square of the difference.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 3.0], device="cpu"), ow.tensor([1.5, 0.0], device="cpu")
        >>> ow.nn.MSELoss()(x, y).item()
        4.625
    """

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """The absolute value of the difference.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 3.0], device="cpu"), ow.tensor([1.5, 0.0], device="cpu")
        >>> ow.nn.L1Loss()(x, y).item()
        1.75
    """

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return F.l1_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """-log softmax(logits)[target], as torch.nn.CrossEntropyLoss.

    Args:
        weight: of each class; a buffer, so that it goes into the state dict and moves with `to`.
        ignore_index: a class number that counts for nothing.
        reduction: "mean" (by weight), "sum", or "none" for a loss of each row.
        label_smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).

    Example:
        >>> import optirs_web as ow
        >>> logits = ow.tensor([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> round(ow.nn.CrossEntropyLoss()(logits, [0, 1]).item(), 6)
        0.126928
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of logits (rows, classes, ...) and class numbers (rows, ...)."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """-input[target], where the input holds logarithms of probabilities; see `CrossEntropyLoss`.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[0.0, 1.0], [2.0, 0.0]], device="cpu")
        >>> round(ow.nn.NLLLoss()(ow.ops.log_softmax(x), [1, 0]).item(), 4)
        0.2201
    """

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of log-probabilities (rows, classes, ...) and class numbers (rows, ...)."""
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """-(y log p + (1 - y) log(1 - p)) of probabilities p; logarithms end at -100, as in torch.

    Args:
        weight: of each element; broadcast.
        reduction: "mean", "sum", or "none" for a loss of each element.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([0.8, 0.3], device="cpu"), ow.tensor([1.0, 0.0], device="cpu")
        >>> round(ow.nn.BCELoss()(x, y).item(), 4)
        0.2899
    """

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """The binary cross-entropy of the sigmoid of the input.

    Args:
        weight: of each element; broadcast.
        reduction: "mean", "sum", or "none" for a loss of each element.
        pos_weight: of the term with y; broadcast.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([2.0, -1.0], device="cpu"), ow.tensor([1.0, 0.0], device="cpu")
        >>> round(ow.nn.BCEWithLogitsLoss()(x, y).item(), 4)
        0.2201
    """

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """Return the loss of an input and a target of one shape."""
        return F.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )

"""Losses over rows of classes: cross-entropy and the negative log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..autograd import record
from ..debugging import check_indices
from ..errors import ShapeError, UnsupportedError
from ..launch import apply, contiguous, need_float32, need_one_device
from ..limits import fits, in_parts
from ..runtime.dtypes import FLOAT32, INT32
from ..tensor_class import Tensor, empty, tensor
from .arithmetic import add, divide, multiply, negate, subtract
from .composed import record_composed
from .loss_reduction import check_reduction
from .reduce import broadcast_to, sum
from .row_kernels import SUM_OF_TWO, cross_entropy_form, launch_rows, launch_sums
from .shape import permute, reshape
from .softmaxes import log_softmax, softmax

__all__ = ["cross_entropy", "nll_loss"]


def cross_entropy(
    logits: Tensor,
    target: Any,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(logits)[target], as torch.nn.functional.cross_entropy.

    With classes as targets a row is one dispatch forward and one backward, for which two numbers of each row are kept.
    Gradient: g (softmax(logits) - 1 at the target).

    Args:
        logits: (n, classes, ...) or (classes,), float32.
        target: (n, ...) or (), int32 class numbers; or probabilities, float32, of the shape of the logits. A tensor or
            anything `tensor` takes. A number that is no class makes loss and gradients NaN; in a block of
            `optirs_web.debug` it is an error.
        weight: (classes,), of each class; has no gradient.
        ignore_index: rows with this target count for nothing.
        reduction: "mean" (by the weights of the targets; with probabilities by the number of rows), "sum" or "none".
        label_smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).

    Raises:
        ShapeError: the shapes do not fit, or, in a block of `optirs_web.debug`, a target is no class.
        UnsupportedError: the target is neither of int32 nor of probabilities, or another tensor not float32.
        ValueError: there is no such reduction, or the smoothing is not from 0 to 1.

    Example:
        >>> import optirs_web as ow
        >>> logits = ow.tensor([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> round(ow.cross_entropy(logits, [0, 1]).item(), 6)
        0.126928
    """
    if not isinstance(target, Tensor):
        target = tensor(target, device=logits.device)
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be from 0 to 1, not {label_smoothing}")
    need_float32("cross_entropy", logits, *([] if weight is None else [weight]))
    need_one_device("cross_entropy", logits, target, *([] if weight is None else [weight]))
    if target.dtype is FLOAT32 and target.shape == logits.shape and logits.size:
        return _loss_of_probabilities(logits, target, weight, reduction, label_smoothing)
    rows, labels, shape = _as_rows("cross_entropy", logits, target, weight)
    check_indices("cross_entropy", target, rows.shape[1], ignored=ignore_index, what="classes")
    call = _Call(labels, weight, ignore_index, label_smoothing)
    if FLOAT32.nbytes(rows.shape[1]) > rows.device.capabilities.max_binding_bytes:  # no kernel can be shown a row
        target_shares = call._replace(smoothing=0.0).shares(rows)
        return _loss_of_shares(log_softmax(rows), call.shares(rows), target_shares, reduction, shape)
    return _loss_of_classes(rows, call, reduction, shape)


def nll_loss(
    log_probs: Tensor, target: Any, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """-log_probs[target], as torch.nn.functional.nll_loss; see `cross_entropy`. Gradient: -g at the target.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[0.0, 1.0], [2.0, 0.0]], device="cpu")
        >>> round(ow.ops.nll_loss(ow.ops.log_softmax(x), [1, 0]).item(), 4)
        0.2201
    """
    if not isinstance(target, Tensor):
        target = tensor(target, device=log_probs.device)
    check_reduction(reduction)
    need_float32("nll_loss", log_probs, *([] if weight is None else [weight]))
    need_one_device("nll_loss", log_probs, target, *([] if weight is None else [weight]))
    rows, labels, shape = _as_rows("nll_loss", log_probs, target, weight)
    check_indices("nll_loss", target, rows.shape[1], ignored=ignore_index, what="classes")
    call = _Call(labels, weight, ignore_index, 0.0)
    shares = call.shares(rows)
    return _loss_of_shares(rows, shares, shares, reduction, shape)


class _Call(NamedTuple):
    """The arguments of a loss over rows: the class numbers, their weights, the number ignored, and the smoothing."""

    labels: Tensor  # (n,)
    weight: Tensor | None
    ignored: int
    smoothing: float

    def numbers_of(self, rows: Tensor) -> tuple[Any, ...]:
        """Return the last arguments of the map functions."""
        column = reshape(self.labels, (-1, 1))
        weight = 1.0 if self.weight is None else self.weight.detach()
        return 0, column, weight, rows.shape[1], self.ignored, self.smoothing

    def shares(self, rows: Tensor) -> Tensor:
        """Return the target shares (n, classes), weighted and smoothed. Leaves no history."""
        return apply("cross_entropy", "share_of_column", *self.numbers_of(rows), shape=rows.shape)


def _as_rows(
    name: str, logits: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return the logits as (n, classes), the targets as (n,), and the shape of the losses."""
    if target.dtype is not INT32:
        raise UnsupportedError(f"{name} needs int32 class numbers, not {target.dtype}")
    shape = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else ()
    classes = logits.shape[min(1, logits.ndim - 1)] if logits.ndim else 0
    if not logits.size or target.shape != shape or (weight is not None and weight.shape != (classes,)):
        and_weight = "" if weight is None else f" and weights {weight.shape}"
        raise ShapeError(
            f"{name} needs (n, classes, ...), (n, ...) and (classes,), not {logits.shape}, {target.shape}{and_weight}"
        )
    return reshape(_classes_last(logits), (-1, classes)), reshape(target, (-1,)), shape


def _classes_last(x: Tensor) -> Tensor:
    return permute(x, (0, *range(2, x.ndim), 1)) if x.ndim > 2 else x


def _loss_of_shares(
    log_probs: Tensor, shares: Tensor, target_shares: Tensor, reduction: str, shape: tuple[int, ...]
) -> Tensor:
    """Return the loss of rows of log-probabilities; the mean divides by the sum of `target_shares`."""
    terms = record(
        apply("cross_entropy", "nll_term", log_probs, shares),
        (log_probs, lambda g, _: negate(multiply(g, shares))),
    )
    if reduction == "none":
        return reshape(sum(terms, -1), shape)
    return sum(terms) if reduction == "sum" else divide(sum(terms), sum(target_shares))


# Classes as targets.


def _loss_of_classes(rows: Tensor, call: _Call, reduction: str, shape: tuple[int, ...]) -> Tensor:
    n, classes = rows.shape
    form = cross_entropy_form(call.weight is not None, call.smoothing != 0)
    weights = [] if call.weight is None else [call.weight]
    numbers = (call.ignored, call.smoothing)[: len(form.numbers)]
    results = [empty((n,), FLOAT32, rows.device) for _ in form.writes]

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        launch_rows(form, results, [*operands, *weights], (results[0].size, classes, 1), numbers)

    in_parts(results, [contiguous(rows.detach()), call.labels.detach()], 1, run)
    log_sum, losses, weight_of_rows, *_ = results
    shares = results[-1]  # the weight, without smoothing

    def gradient(g: Tensor) -> Tensor:
        return _gradient(g, rows, reshape(log_sum, (n, 1)), reshape(shares, (n, 1)), call)

    if reduction == "none":
        return reshape(record(losses, (rows, lambda g, _: gradient(reshape(g, (n, 1))))), shape)
    if reduction == "sum":
        return record(sum(losses), (rows, lambda g, _: gradient(broadcast_to(g, (n, 1)))))
    total, weight = (empty((), FLOAT32, rows.device) for _ in range(2))
    if fits(losses.view):
        launch_sums(SUM_OF_TWO, [total, weight], [losses, weight_of_rows], (1, n, 1))
    else:
        total, weight = sum(losses), sum(weight_of_rows)
    return record(divide(total, weight), (rows, lambda g, _: gradient(broadcast_to(divide(g, weight), (n, 1)))))


def _gradient(g: Tensor, rows: Tensor, log_sum: Tensor, shares: Tensor, call: _Call) -> Tensor:
    """Return the gradient of each row, g (shares softmax - share), for g and what is known of each row, (n, 1)."""
    result = apply("cross_entropy", "cross_entropy_grad", g, rows, log_sum, shares, *call.numbers_of(rows))

    def formula(g: Tensor, rows: Tensor) -> Tensor:
        return multiply(g, subtract(multiply(shares, softmax(rows)), call.shares(rows)))

    return record_composed(result, formula, g, rows)


# Probabilities as targets.


def _loss_of_probabilities(
    logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    rows, shares = _classes_last(logits), _classes_last(target)
    if smoothing:
        shares = add(multiply(shares, 1.0 - smoothing), smoothing / rows.shape[-1])
    if weight is not None:
        shares = multiply(shares, weight.detach())
    losses = negate(sum(multiply(shares, log_softmax(rows)), -1))
    if reduction == "none":
        return losses
    return multiply(sum(losses), 1.0 / losses.size) if reduction == "mean" else sum(losses)

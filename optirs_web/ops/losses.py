"""Losses over pairs of elements, and their reductions."""

from __future__ import annotations

from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..launch import apply, broadcast_shapes, need_float32
from ..tensor_class import Tensor, tensor
from .activations import sigmoid
from .arithmetic import add, divide, mean, multiply, negate, subtract
from .bounds import maximum, minimum
from .compare import greater, where
from .creation import full
from .loss_reduction import check_reduction
from .reduce import sum, sum_to
from .unary import abs, exp, log, log1p

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "reduced",
    "smooth_l1_loss",
]

_LOWEST_LOG = -100.0
_SMALLEST_VARIANCE = 1e-12


def reduced(values: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or the values themselves.

    Raises:
        ValueError: it is none of "mean", "sum" and "none".
    """
    if reduction == "mean":
        return mean(values)
    if reduction == "sum":
        return sum(values)
    check_reduction(reduction)
    return values


def _pair(name: str, input: Tensor, target: Any) -> Tensor:
    """Return the target as a float32 tensor on the device of the input, after checking that they broadcast."""
    if not isinstance(target, Tensor):
        target = tensor(target, device=input.device, dtype="float32")
    need_float32(name, input, target)
    broadcast_shapes(input.shape, target.shape)
    result: Tensor = target
    return result


def mse_loss(input: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """(input - target)², broadcast, as torch.nn.functional.mse_loss. Gradients: 2 g (input - target), and minus that.

    Args:
        input: float32, of any shape.
        target: float32; a tensor or anything `tensor` takes.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes cannot be broadcast.
        UnsupportedError: a tensor is not float32.
        ValueError: there is no such reduction.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import mse_loss
        >>> mse_loss(ow.tensor([1.0, 3.0], device="cpu"), [0.0, 0.0]).item()
        5.0
    """
    difference = subtract(input, _pair("mse_loss", input, target))
    return reduced(multiply(difference, difference), reduction)


def l1_loss(input: Tensor, target: Any, reduction: str = "mean") -> Tensor:
    """|input - target|, as torch.nn.functional.l1_loss. The gradient is 0 where they are equal. See `mse_loss`.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 3.0], device="cpu"), ow.tensor([1.5, 0.0], device="cpu")
        >>> ow.ops.l1_loss(x, y).item()
        1.75
    """
    return reduced(abs(subtract(input, _pair("l1_loss", input, target))), reduction)


def huber_loss(input: Tensor, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """With d = |input - target|: d² / 2 up to `delta`, then delta (d - delta / 2) (Huber 1964). See `mse_loss`.

    Raises:
        ValueError: delta is not positive.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 3.0], device="cpu"), ow.tensor([1.5, 0.0], device="cpu")
        >>> ow.ops.huber_loss(x, y).item()
        1.3125
    """
    if not delta > 0:
        raise ValueError(f"huber_loss needs a positive delta, not {delta}")
    distance = abs(subtract(input, _pair("huber_loss", input, target)))
    near = minimum(distance, delta)
    return reduced(multiply(near, subtract(distance, multiply(near, 0.5))), reduction)


def smooth_l1_loss(input: Tensor, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """The Huber loss divided by its `delta`, here `beta`; with beta 0 the distance itself (Girshick 2015).

    Raises:
        ValueError: beta is negative.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([1.0, 3.0], device="cpu"), ow.tensor([1.5, 0.0], device="cpu")
        >>> ow.ops.smooth_l1_loss(x, y).item()
        1.3125
    """
    if beta == 0:
        return l1_loss(input, target, reduction)
    return multiply(huber_loss(input, target, reduction, beta), 1.0 / beta)


def binary_cross_entropy(input: Tensor, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-(t log x + (1 - t) log(1 - x)), as torch.nn.functional.binary_cross_entropy.

    As in torch a logarithm counts as -100 at least, and the gradient g (x - t) / (x (1 - x)) divides by 1e-12 at
    least: so both are finite at 0 and 1. An input out of [0, 1] gives NaN, where torch raises.

    Args:
        input: probabilities x, float32.
        target: probabilities t, of the same shape.
        weight: of each element, broadcast; has no gradient.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.
        UnsupportedError: a tensor is not float32.
        ValueError: there is no such reduction.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([0.8, 0.3], device="cpu"), ow.tensor([1.0, 0.0], device="cpu")
        >>> round(ow.ops.binary_cross_entropy(x, y).item(), 4)
        0.2899
    """
    target = _pair("binary_cross_entropy", input, target)
    _need_equal("binary_cross_entropy", input, target)
    losses = record(
        apply("binary_cross_entropy", "binary_cross_entropy", input, target),
        (input, lambda g, _: multiply(g, _slope(input, target))),
        (target, lambda g, _: multiply(g, subtract(_clipped(log1p(negate(input))), _clipped(log(input))))),
    )
    return reduced(_weighted(losses, weight), reduction)


def _slope(x: Tensor, t: Tensor) -> Tensor:
    variance = multiply(x, subtract(1.0, x))
    return divide(subtract(x, t), maximum(variance, _SMALLEST_VARIANCE))


def _clipped(logarithm: Tensor) -> Tensor:
    return maximum(logarithm, _LOWEST_LOG)


def _need_equal(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ShapeError(f"{name} needs an input and a target of one shape, not {input.shape} and {target.shape}")


def _weighted(losses: Tensor, weight: Any) -> Tensor:
    if weight is None:
        return losses
    factor = weight if isinstance(weight, Tensor) else tensor(weight, device=losses.device, dtype="float32")
    return multiply(losses, factor.detach())


def binary_cross_entropy_with_logits(
    input: Tensor, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """The binary cross-entropy of sigmoid(input), as torch.nn.functional.binary_cross_entropy_with_logits.

    That is (1 - t) x + c log(1 + exp(-x)) with c = 1 + (pos_weight - 1) t, which neither overflows nor cancels.
    Gradients: g (1 - t - c sigmoid(-x)) and, for the target, g ((pos_weight - 1) log(1 + exp(-x)) - x).

    Args:
        input: logits x, float32.
        target: probabilities t, of the same shape.
        weight: of each element, broadcast; has no gradient.
        reduction: "mean", "sum" or "none".
        pos_weight: factor of the positive part of a loss, broadcast; has no gradient.

    Raises:
        ShapeError: the shapes differ.
        UnsupportedError: a tensor is not float32.
        ValueError: there is no such reduction.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.ops import binary_cross_entropy_with_logits
        >>> binary_cross_entropy_with_logits(ow.tensor([200.0, -200.0], device="cpu"), [0.0, 0.0]).item()
        100.0
    """
    target = _pair("binary_cross_entropy_with_logits", input, target)
    _need_equal("binary_cross_entropy_with_logits", input, target)
    added: Tensor | float = 0.0
    if pos_weight is not None:
        factor = pos_weight if isinstance(pos_weight, Tensor) else tensor(pos_weight, input.device, "float32")
        added = subtract(factor.detach(), 1.0)
    return reduced(_weighted(_with_logits(input, target, added), weight), reduction)


def _with_logits(x: Tensor, t: Tensor, added: Tensor | float) -> Tensor:
    """Return the losses for pos_weight = 1 + added."""

    def input_gradient(g: Tensor, _: Tensor) -> Tensor:
        factor = add(1.0, multiply(added, t)) if isinstance(added, Tensor) else 1.0
        return sum_to(multiply(g, subtract(subtract(1.0, t), multiply(factor, sigmoid(negate(x))))), x.shape)

    def target_gradient(g: Tensor, _: Tensor) -> Tensor:
        if not isinstance(added, Tensor):
            return negate(multiply(g, x))
        softplus = _with_logits(x, full(t.shape, 1.0, t.device), 0.0)  # log(1 + exp(-x))
        return sum_to(multiply(g, subtract(multiply(added, softplus), x)), t.shape)

    return record(apply("binary_cross_entropy", "with_logits", x, t, added), (x, input_gradient), (t, target_gradient))


def kl_div(input: Tensor, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The divergence t (log t - x) of log-probabilities x, as torch.nn.functional.kl_div; 0 where t is 0.

    Args:
        input: log-probabilities x, float32.
        target: probabilities t, or their logarithms if `log_target` is set.
        reduction: "mean" (over all elements), "batchmean" (the sum over the length of the first axis, which is the
            divergence), "sum" or "none".
        log_target: `target` holds logarithms of probabilities.

    Raises:
        ShapeError: the shapes cannot be broadcast.
        UnsupportedError: a tensor is not float32.
        ValueError: there is no such reduction.

    Example:
        >>> import optirs_web as ow
        >>> x, y = ow.tensor([0.5, 0.5], device="cpu"), ow.tensor([0.25, 0.75], device="cpu")
        >>> round(ow.ops.kl_div(x.log(), y, reduction="sum").item(), 4)
        0.1308
    """
    target = _pair("kl_div", input, target)
    if log_target:
        losses = multiply(exp(target), subtract(target, input))
    else:
        has_share = greater(target, 0.0)
        entropy = where(has_share, multiply(target, log(where(has_share, target, 1.0))), 0.0)
        losses = subtract(entropy, multiply(target, input))
    if reduction == "batchmean":
        return multiply(sum(losses), 1.0 / losses.shape[0])
    return reduced(losses, reduction)

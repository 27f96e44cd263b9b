"""Logarithmic softmax and cross-entropy."""

from __future__ import annotations

from typing import Any

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..runtime.dtypes import FLOAT32, INT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty, tensor
from .arithmetic import exp, multiply, subtract
from .creation import arange
from .launch import apply, need_float32
from .reduce import normalize_axes, sum
from .shape import permute, reshape

__all__ = ["cross_entropy", "log_softmax"]


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Logarithm of the softmax along an axis: x - log(sum(exp(x))). Gradient: g - softmax(x) sum(g).

    Raises:
        ShapeError: there is no such axis.
        UnsupportedError: the tensor is not float32.
    """
    need_float32("log_softmax", x)
    (axis,) = normalize_axes(axis, x.ndim)
    if axis != x.ndim - 1:
        order = [*(one for one in range(x.ndim) if one != axis), axis]
        back = [order.index(one) for one in range(x.ndim)]
        return permute(log_softmax(permute(x, order)), back)
    result = empty(x.shape, FLOAT32, x.device)
    columns = x.shape[-1]
    rows = x.size // columns if columns else 0
    x.device.dispatch(cooperative("log_softmax"), [x.view, result.view], rows, (rows, columns))
    value = result.detach()
    return record(result, (x, lambda g: subtract(g, multiply(exp(value), sum(g, -1, keepdims=True)))))


def cross_entropy(logits: Tensor, target: Any) -> Tensor:
    """The mean of -log softmax(logits)[target] over the rows, as torch.nn.functional.cross_entropy.

    Args:
        logits: (rows, classes), float32.
        target: (rows,), int32 class numbers; a tensor or anything `tensor` takes. A number that is no
            class makes loss and gradients NaN (it cannot be refused without reading it back).

    Raises:
        ShapeError: the shapes do not fit.
        UnsupportedError: the target is not of integers.

    Example:
        >>> import optirs_web as ow
        >>> logits = ow.tensor([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> round(ow.cross_entropy(logits, [0, 1]).item(), 6)
        0.126928
    """
    if not isinstance(target, Tensor):
        target = tensor(target, device=logits.device)
    if target.dtype is not INT32:
        raise UnsupportedError(f"cross_entropy needs int32 class numbers, not {target.dtype}")
    if logits.ndim != 2 or target.shape != logits.shape[:1] or logits.size == 0:
        raise ShapeError(f"cross_entropy needs (rows, classes) and (rows,), not {logits.shape} and {target.shape}")
    rows, classes = logits.shape
    per_row = reshape(target, (rows, 1))
    columns = arange(classes, logits.device)
    log_probs = log_softmax(logits)
    terms = record(
        apply("cross_entropy", "nll_term", log_probs, per_row, columns, classes),
        (log_probs, lambda g: apply("cross_entropy", "nll_term_grad", g, per_row, columns, classes)),
    )
    return multiply(sum(terms), 1.0 / rows)

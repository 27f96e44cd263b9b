"""Softmax and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..autograd import record
from ..errors import ShapeError
from ..kernel import Kernel
from ..launch import Shape, need_float32
from ..limits import in_parts
from ..runtime.dtypes import FLOAT32
from ..tensor_class import Tensor, empty
from .arithmetic import divide, multiply, subtract
from .composed import record_composed
from .reduce import normalize_axes, one_axis, sum
from .row_kernels import LOG_SOFTMAX, LOG_SOFTMAX_GRAD, SOFTMAX, SOFTMAX_GRAD, launch_rows
from .unary import exp, log

__all__ = ["log_softmax", "softmax"]


def softmax(x: Tensor, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, the last by default.

    Gradient: y (g - sum(g y)). A row with NaN or infinity, or of -infinity alone, is NaN, as in torch; other elements
    of -infinity are 0.

    Raises:
        ShapeError: there is no such axis, or it is not one.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> ow.zeros((1, 4), device="cpu").softmax().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    return _recorded("softmax", x, one_axis(axis, dim, -1), is_log=False)


def log_softmax(x: Tensor, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """Logarithm of the softmax along an axis, the last by default: x - log(sum(exp(x))).

    Gradient: g - softmax(x) sum(g). A row with NaN or infinity, or of -infinity alone, is NaN, as in torch; other
    elements of -infinity stay.

    Raises:
        ShapeError: there is no such axis, or it is not one.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.log_softmax(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [-1.3133, -0.3133]
    """
    return _recorded("log_softmax", x, one_axis(axis, dim, -1), is_log=True)


def _recorded(name: str, x: Tensor, axis: int, *, is_log: bool) -> Tensor:
    need_float32(name, x)
    axes = normalize_axes(axis, x.ndim)
    if len(axes) != 1:
        raise ShapeError(f"{name} takes one axis, not {axis}")
    along = axes[0]
    return record(_softmax(x, along, is_log=is_log), (x, lambda g, y: _gradient(g, y, along, is_log=is_log)))


def _gradient(g: Tensor, y: Tensor, along: int, *, is_log: bool) -> Tensor:
    """Return the gradient, from that of the result and from the result."""

    def formula(g: Tensor, y: Tensor) -> Tensor:
        if is_log:
            return subtract(g, multiply(exp(y), sum(g, along, keepdims=True)))
        return multiply(y, subtract(g, sum(multiply(g, y), along, keepdims=True)))

    shape = _three_axes(y, along)
    if not _fits(y, shape) or not y.size:
        return formula(g, y)
    result = empty(y.shape, FLOAT32, y.device)
    _launch(LOG_SOFTMAX_GRAD if is_log else SOFTMAX_GRAD, result, [g.detach(), y.detach()], shape)
    return record_composed(result, formula, g, y)


def _softmax(x: Tensor, along: int, *, is_log: bool) -> Tensor:
    shape = _three_axes(x, along)
    if not _fits(x, shape):
        return _by_operations(x.detach(), along, is_log=is_log)
    result = empty(x.shape, FLOAT32, x.device)
    if x.size:
        _launch(LOG_SOFTMAX if is_log else SOFTMAX, result, [x], shape)
    return result


def _three_axes(x: Tensor, along: int) -> Shape:
    return math.prod(x.shape[:along]), x.shape[along], math.prod(x.shape[along + 1 :])


def _fits(x: Tensor, shape: Shape) -> bool:
    """Return whether what is reduced together fits a binding."""
    return FLOAT32.nbytes(shape[1] * shape[2]) <= x.device.capabilities.max_binding_bytes


def _launch(kernel: Kernel, result: Tensor, operands: Sequence[Tensor], shape: Shape) -> None:
    target, *sources = (Tensor(tensor.view, shape, tensor.dtype) for tensor in (result, *operands))
    in_parts([target], sources, 1, lambda results, parts: launch_rows(kernel, results, parts, results[0].shape))


def _by_operations(x: Tensor, along: int, *, is_log: bool) -> Tensor:
    """Return the softmax where what it reduces together does not fit a binding, by other operations."""
    from .compare import isfinite, where  # which few tensors need
    from .extremum import max

    largest = max(x, along, keepdims=True)
    below = subtract(x, where(isfinite(largest), largest, math.nan))
    power = exp(below)
    total = sum(power, along, keepdims=True)
    return subtract(below, log(total)) if is_log else divide(power, total)

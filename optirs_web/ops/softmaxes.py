"""Softmax and its logarithm."""

from __future__ import annotations

import math

from ..autograd import record
from ..runtime.dtypes import FLOAT32
from ..tensors import Tensor, empty
from .arithmetic import divide, multiply, subtract
from .launch import need_float32
from .limits import in_parts
from .reduce import normalize_axes, one_axis, sum
from .row_kernels import LOG_SOFTMAX, SOFTMAX, launch_rows
from .unary import exp, log

__all__ = ["log_softmax", "softmax"]


def softmax(x: Tensor, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, the last by default.

    Gradient: y (g - sum(g y)). A row with NaN or infinity, or of -infinity alone, is NaN, as in torch; other elements
    of -infinity are 0.

    Raises:
        ShapeError: there is no such axis.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> ow.zeros((1, 4), device="cpu").softmax().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    need_float32("softmax", x)
    along = normalize_axes(one_axis(axis, dim, -1), x.ndim)[0]
    return record(
        _softmax(x, along, is_log=False),
        (x, lambda g, y: multiply(y, subtract(g, sum(multiply(g, y), along, keepdims=True)))),
    )


def log_softmax(x: Tensor, axis: int | None = None, *, dim: int | None = None) -> Tensor:
    """Logarithm of the softmax along an axis, the last by default: x - log(sum(exp(x))).

    Gradient: g - softmax(x) sum(g). A row with NaN or infinity, or of -infinity alone, is NaN, as in torch; other
    elements of -infinity stay.

    Raises:
        ShapeError: there is no such axis.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> [round(value, 4) for value in ow.ops.log_softmax(ow.tensor([0.0, 1.0], device="cpu")).tolist()]
        [-1.3133, -0.3133]
    """
    need_float32("log_softmax", x)
    along = normalize_axes(one_axis(axis, dim, -1), x.ndim)[0]
    return record(
        _softmax(x, along, is_log=True),
        (x, lambda g, y: subtract(g, multiply(exp(y), sum(g, along, keepdims=True)))),
    )


def _softmax(x: Tensor, along: int, *, is_log: bool) -> Tensor:
    shape = math.prod(x.shape[:along]), x.shape[along], math.prod(x.shape[along + 1 :])
    if FLOAT32.nbytes(shape[1] * shape[2]) > x.device.capabilities.max_binding_bytes:
        return _by_operations(x.detach(), along, is_log=is_log)
    result = empty(x.shape, FLOAT32, x.device)
    if x.size:
        target, source = (Tensor(tensor.view, shape, tensor.dtype) for tensor in (result, x))
        form = LOG_SOFTMAX if is_log else SOFTMAX
        in_parts(
            [target], [source], 1, lambda results, operands: launch_rows(form, results, operands, results[0].shape)
        )
    return result


def _by_operations(x: Tensor, along: int, *, is_log: bool) -> Tensor:
    """Return the softmax where what it reduces together does not fit a binding, by other operations."""
    from .compare import isfinite, where  # which few tensors need
    from .extremum import max

    largest = max(x, along, keepdims=True)
    below = subtract(x, where(isfinite(largest), largest, math.nan))
    power = exp(below)
    total = sum(power, along, keepdims=True)
    return subtract(below, log(total)) if is_log else divide(power, total)

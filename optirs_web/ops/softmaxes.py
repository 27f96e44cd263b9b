"""Softmax and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..autograd import record
from ..runtime.dtypes import FLOAT32
from ..tensors import Tensor, empty
from .arithmetic import divide, multiply, subtract
from .launch import need_float32, row_kernel
from .limits import in_parts
from .reduce import normalize_axes, one_axis, sum
from .shape import permute
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
    last = x.ndim - 1
    along = normalize_axes(one_axis(axis, dim, -1), x.ndim)[0]
    if along != last:
        return _moved(softmax, x, along)
    return record(
        _over_rows(x, is_log=False),
        (x, lambda g, y: multiply(y, subtract(g, sum(multiply(g, y), -1, keepdims=True)))),
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
    last = x.ndim - 1
    along = normalize_axes(one_axis(axis, dim, -1), x.ndim)[0]
    if along != last:
        return _moved(log_softmax, x, along)
    return record(
        _over_rows(x, is_log=True),
        (x, lambda g, y: subtract(g, multiply(exp(y), sum(g, -1, keepdims=True)))),
    )


def _moved(function: Callable[[Tensor], Tensor], x: Tensor, along: int) -> Tensor:
    """Apply a function of the last axis along another axis."""
    order = [*(index for index in range(x.ndim) if index != along), along]
    back = [order.index(index) for index in range(x.ndim)]
    return permute(function(permute(x, order)), back)


def _over_rows(x: Tensor, *, is_log: bool) -> Tensor:
    columns = x.shape[-1]
    if FLOAT32.nbytes(columns) > x.device.capabilities.max_binding_bytes:
        return _of_long_rows(x.detach(), is_log=is_log)
    result = empty(x.shape, FLOAT32, x.device)

    def run(results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        rows = results[0].shape[0]
        kernel, rows_per_workgroup = row_kernel(x.device, "softmax", columns, rows)
        views = [operands[0].view, results[0].view]
        x.device.dispatch(
            kernel, views, -(-rows // rows_per_workgroup), (rows, columns, int(is_log), rows_per_workgroup)
        )

    if x.size:
        target, source = (Tensor(tensor.view, (x.size // columns, columns), tensor.dtype) for tensor in (result, x))
        in_parts([target], [source], 1, run)
    return result


def _of_long_rows(x: Tensor, *, is_log: bool) -> Tensor:
    """Return the softmax of rows that do not fit a binding, by other operations."""
    from .compare import isfinite, where  # which few tensors need
    from .extremum import max

    largest = max(x, -1, keepdims=True)
    below = subtract(x, where(isfinite(largest), largest, math.nan))
    power = exp(below)
    total = sum(power, -1, keepdims=True)
    return subtract(below, log(total)) if is_log else divide(power, total)

"""Sums over axes and broadcasting, each the gradient of the other, and what all reductions over axes share."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ..autograd import record
from ..errors import ShapeError
from ..launch import broadcast_shapes, broadcast_strides, contiguous, need_float32
from ..limits import compute_part, fits, narrowed, part_along
from ..runtime.dtypes import FLOAT32
from ..tensor_class import Tensor, empty
from .creation import full
from .row_kernels import SUM, launch_sums
from .shape import permute, reshape, strided_view

__all__ = [
    "any_axes",
    "as_three_axes",
    "broadcast_to",
    "normalize_axes",
    "one_axis",
    "reduce_into",
    "reduced_shapes",
    "sum",
    "sum_into",
    "sum_to",
]

Axes = int | Sequence[int] | None

_COLUMN_PARTS = 16
"""Parts of an axis that are reduced at once, where two of its elements are more than fits a binding."""


def normalize_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return axes as numbers from 0, sorted.

    Raises:
        ShapeError: there is no such axis, or it is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    axes = [operator.index(index) for index in (axis if isinstance(axis, Iterable) else (axis,))]
    if any(not -rank <= index < rank for index in axes):
        raise ShapeError(f"axis {axis} is out of range for a tensor with {rank} axes")
    normalized = sorted(index % rank for index in axes)
    if len(set(normalized)) < len(normalized):
        raise ShapeError(f"an axis occurs twice in {axis}")
    return tuple(normalized)


def any_axes(axis: Axes, keepdims: bool, dim: Axes, keepdim: bool | None) -> tuple[Axes, bool]:
    """Return the axes and whether they are kept, from the arguments that NumPy and torch name differently.

    Raises:
        TypeError: `axis` and `dim` are both passed.
    """
    if axis is not None and dim is not None:
        raise TypeError("axis and dim are the same: pass one")
    return (axis if dim is None else dim), (keepdims if keepdim is None else keepdim)


def one_axis(axis: int | None, dim: int | None, otherwise: int) -> int:
    """Return the axis from NumPy's argument `axis` or torch's `dim`; `otherwise` if both are None.

    Raises:
        TypeError: neither is None.
    """
    if axis is not None and dim is not None:
        raise TypeError("axis and dim are the same: pass one")
    return otherwise if axis is None and dim is None else axis if dim is None else dim  # type: ignore[return-value]


def reduced_shapes(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape with these axes of length 1, and the shape of the result."""
    kept = tuple(1 if index in axes else size for index, size in enumerate(x.shape))
    return kept, kept if keepdims else tuple(size for index, size in enumerate(x.shape) if index not in axes)


def as_three_axes(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, tuple[int, int, int]]:
    """Return a view in which the axes are adjacent, and its sizes before, along and after these. No history."""
    flat, first_axis, last_axis = x.detach(), axes[0], axes[-1]
    if axes != tuple(range(first_axis, last_axis + 1)):
        others = [index for index in range(x.ndim) if index not in axes]
        flat, first_axis, last_axis = permute(flat, (*others, *axes)), len(others), x.ndim - 1
    return flat, (
        math.prod(flat.shape[:first_axis]),
        math.prod(flat.shape[first_axis : last_axis + 1]),
        math.prod(flat.shape[last_axis + 1 :]),
    )


def _sum_axes(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the sum over axes, without history: a matrix whose elements, in order, are those of the result.

    Groups of adjacent axes of a contiguous tensor are summed one after another, since making all of them adjacent would
    copy the tensor; the group with the most elements comes first.
    """
    if axes[-1] - axes[0] < len(axes) or not x.is_contiguous:
        flat, lengths = as_three_axes(x, axes)
        return _sum_axis(flat, *lengths)
    long = [axis for axis, length in enumerate(x.shape) if length != 1]
    x = reshape(x.detach(), [x.shape[axis] for axis in long])
    groups = _adjacent([number for number, axis in enumerate(long) if axis in axes])
    if not groups:
        return _sum_axis(x, x.size, 1, 1)
    groups.sort(key=lambda group: math.prod(x.shape[axis] for axis in group), reverse=True)
    for group in groups:
        flat, lengths = as_three_axes(x, group)
        kept, _ = reduced_shapes(x, group, keepdims=True)
        x = Tensor(_sum_axis(flat, *lengths).view, kept, FLOAT32)
    return x


def _adjacent(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the axes, which ascend, in groups of adjacent ones."""
    runs = groupby(enumerate(axes), lambda pair: pair[1] - pair[0])
    return [tuple(axis for _, axis in run) for _, run in runs]


def _sum_axis(x: Tensor, outer: int, length: int, inner: int) -> Tensor:
    """Return the sum over the middle one of three axes."""
    result, values = empty((outer, inner), FLOAT32, x.device), Tensor(x.view, (outer, length, inner), x.dtype)
    if fits(values.view):
        sum_into(result, values)
    else:
        reduce_into(result, values, sum_into)
    return result


def reduce_into(
    result: Tensor,
    x: Tensor,
    reduce: Callable[[Tensor, Tensor], None],
    join: Callable[[Tensor, Sequence[Tensor]], None] | None = None,
) -> None:
    """Reduce the middle axis of (outer, length, inner) to (outer, inner), in parts that fit bindings.

    Args:
        result: contiguous.
        x: any strided view.
        reduce: reduces a contiguous x that fits a binding; called with the result and x.
        join: makes the result of the parts of a long axis; by default the results of the parts are reduced.
    """
    outer, length, inner = x.shape
    most = (x.device.capabilities.max_binding_bytes - x.device.capabilities.offset_alignment) // x.dtype.itemsize

    def reduction_of(axis: int, start: int, count: int) -> Callable[[Tensor], None]:
        return lambda target: reduce_into(target, part_along(x, axis, start, count), reduce, join)

    if x.size <= most:
        reduce(result, contiguous(narrowed(x)))
    elif outer > 1 or 2 * inner > most:
        axis, count = (0, most // (length * inner)) if outer > 1 else (2, most // _COLUMN_PARTS)
        count = max(1, count)
        for start in range(0, x.shape[axis], count):
            compute_part(result, min(axis, 1), start, count, reduction_of(axis, start, count))
    else:
        count = most // inner
        if join is not None:
            join(result, [part_along(x, 1, start, count) for start in range(0, length, count)])
            return
        part_results = empty((-(-length // count), inner), result.dtype, x.device)
        for number, start in enumerate(range(0, length, count)):
            compute_part(part_results, 0, number, 1, reduction_of(1, start, count))
        reduce_into(result, Tensor(part_results.view, (1, *part_results.shape), result.dtype), reduce)


def sum_into(result: Tensor, x: Tensor) -> None:
    """Enqueue the sum over the middle axis of three, of contiguous elements that fit a binding."""
    launch_sums(SUM, [result], [x], x.shape)


def sum(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
) -> Tensor:
    """The sum over axes (all by default). Gradient: g, broadcast.

    Args:
        x: float32.
        axis: one, several, or None for all.
        keepdims: leave the axes in place, with length 1.
        dim: as `axis`.
        keepdim: as `keepdims`.

    Raises:
        ShapeError: there is no such axis, or it is named twice.
        UnsupportedError: the tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.sum(x, axis=0).tolist(), ow.ops.sum(x).item()
        ([4.0, 8.0], 12.0)
    """
    need_float32("sum", x)
    axis, keepdims = any_axes(axis, keepdims, dim, keepdim)
    axes = normalize_axes(axis, x.ndim)
    kept, shape = reduced_shapes(x, axes, keepdims)
    if x.size == 0:
        result = full(shape, 0.0, x.device)
    elif axes:
        result = Tensor(_sum_axes(x, axes).view, shape, FLOAT32)
    else:
        result = x.detach()
    whole = x.shape
    return record(result, (x, lambda g, _: broadcast_to(reshape(g, kept), whole)))


def sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of broadcasting `shape` to the shape of `g`: a sum over the axes that were stretched.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.sum_to(x, (1, 2)).tolist()
        [[4.0, 8.0]]
    """
    if g.shape == shape:
        return g
    added = g.ndim - len(shape)
    stretched = [
        index for index in range(g.ndim) if index < added or (shape[index - added] == 1 and g.shape[index] != 1)
    ]
    return reshape(sum(g, stretched, keepdims=True), shape)


def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a view that repeats a tensor along new axes and along axes of length 1.

    Raises:
        ShapeError: the shape does not fit.

    Example:
        >>> import optirs_web as ow
        >>> ow.ops.broadcast_to(ow.ones((1, 2), device="cpu"), (2, 2)).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    if x.shape == shape:
        return x
    if broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"shape {x.shape} cannot be broadcast to {shape}")
    result = strided_view(x, shape, broadcast_strides(x, shape))
    return record(result, (x, lambda g, _: sum_to(g, x.shape)))

"""The largest and the smallest elements along axes, and their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

from ..autograd import record
from ..errors import ShapeError
from ..kernel import Type
from ..launch import apply, write_into
from ..limits import compute_part, fits
from ..runtime.dtypes import FLOAT32, INT32, DType
from ..tensor_class import Tensor, empty
from .arithmetic import divide, multiply
from .compare import astype, equal
from .lookup import elementwise, looked_up
from .reduce import Axes, any_axes, as_three_axes, normalize_axes, reduce_into, reduced_shapes, sum
from .row_kernels import SEGMENT, extremum_form, launch_rows
from .shape import reshape

__all__ = ["argmax", "argmin", "max", "min"]


def max(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
) -> Tensor:
    """The largest element over axes (all by default), of any dtype; NaN if one is NaN.

    As torch.amax and numpy.max: the values alone, where torch's `max(dim)` returns `argmax` too. Gradient: g,
    shared evenly by the elements that equal the largest.

    Raises:
        ShapeError: there is no such axis, it is named twice, or has no elements.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([[1.0, 5.0], [4.0, 2.0]], device="cpu").max(axis=1).tolist()
        [5.0, 4.0]
    """
    return _extreme(x, *any_axes(axis, keepdims, dim, keepdim), is_smallest=False)


def min(
    x: Tensor, axis: Axes = None, keepdims: bool = False, *, dim: Axes = None, keepdim: bool | None = None
) -> Tensor:
    """The smallest element over axes. See `max`.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.min(x, axis=0).tolist()
        [1.0, 2.0]
    """
    return _extreme(x, *any_axes(axis, keepdims, dim, keepdim), is_smallest=True)


def argmax(
    x: Tensor, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
) -> Tensor:
    """The index of the largest element along an axis, or among all, as int32: the first of equal ones.

    A NaN counts as the largest. There is no gradient.

    Raises:
        ShapeError: there is no such axis, or it has no elements.

    Example:
        >>> import optirs_web as ow
        >>> ow.tensor([[1.0, 5.0], [4.0, 2.0]], device="cpu").argmax(axis=1).tolist()
        [1, 0]
    """
    return _position(x, *any_axes(axis, keepdims, dim, keepdim), is_smallest=False)


def argmin(
    x: Tensor, axis: int | None = None, keepdims: bool = False, *, dim: int | None = None, keepdim: bool | None = None
) -> Tensor:
    """The index of the smallest element along an axis. A NaN counts as the smallest. See `argmax`.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[1.0, 2.0], [3.0, 6.0]], device="cpu")
        >>> ow.ops.argmin(x, axis=1).tolist()
        [0, 0]
    """
    return _position(x, *any_axes(axis, keepdims, dim, keepdim), is_smallest=True)


def _extreme(x: Tensor, axis: Axes, keepdims: bool, *, is_smallest: bool) -> Tensor:
    axes = _filled_axes(x, axis)
    kept, shape = reduced_shapes(x, axes, keepdims)
    if not axes or x.size == 0:
        result = Tensor(x.view, shape, x.dtype)
    else:
        result = _search(x, axes, shape, x.dtype, is_smallest=is_smallest, gives_value=True)
    if x.dtype is not FLOAT32:
        return result
    return record(result, (x, lambda g, y: _shared(reshape(g, kept), x, reshape(y, kept), axes)))


def _shared(g: Tensor, x: Tensor, extreme: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the gradient divided evenly among the elements that equal the extreme one."""
    is_extreme = astype(equal(x, extreme), FLOAT32)
    return multiply(divide(g, sum(is_extreme, axes, keepdims=True)), is_extreme)


def _position(x: Tensor, axis: Axes, keepdims: bool, *, is_smallest: bool) -> Tensor:
    axes = _filled_axes(x, axis)
    if len(axes) != 1 and len(axes) != x.ndim:
        raise ShapeError(f"argmax and argmin take one axis or none, not {axes}")
    _, shape = reduced_shapes(x, axes, keepdims)
    if not axes:
        x = reshape(x.detach(), (1,))
        axes = (0,)
    if math.prod(shape) == 0:
        return empty(shape, INT32, x.device)
    return _search(x, axes, shape, INT32, is_smallest=is_smallest, gives_value=False)


def _filled_axes(x: Tensor, axis: Axes) -> tuple[int, ...]:
    axes = normalize_axes(axis, x.ndim)
    if any(x.shape[index] == 0 for index in axes):
        raise ShapeError(f"no maximum or minimum over axes {axes} of shape {x.shape}: there are no elements")
    return axes


def _search(
    x: Tensor, axes: tuple[int, ...], shape: tuple[int, ...], dtype: DType, *, is_smallest: bool, gives_value: bool
) -> Tensor:
    flat, (outer, length, inner) = as_three_axes(x, axes)
    result = empty((outer, inner), dtype, x.device)
    values = Tensor(flat.view, (outer, length, inner), x.dtype)
    find = partial(_search_into, is_smallest=is_smallest, gives_value=gives_value)
    if fits(values.view):
        find(result, values)
    else:
        reduce_into(result, values, find, None if gives_value else partial(_join_positions, is_smallest=is_smallest))
    return Tensor(result.view, shape, dtype)


def _join_positions(result: Tensor, parts: Sequence[Tensor], *, is_smallest: bool) -> None:
    """Write the index of the extreme element of an axis that is cut into parts, from the extreme element of each."""
    _, length, inner = parts[0].shape
    kept = (len(parts), inner)
    largest, positions = empty(kept, parts[0].dtype, result.device), empty(kept, INT32, result.device)
    for target, gives_value in ((largest, True), (positions, False)):
        find = partial(_search_into, is_smallest=is_smallest, gives_value=gives_value)
        for number, part in enumerate(parts):
            compute_part(target, 0, number, 1, partial(reduce_into, x=part, reduce=find))
    part_number = _search(largest, (0,), (1, inner), INT32, is_smallest=is_smallest, gives_value=False)
    position = looked_up(positions, elementwise(part_number, kept, 0), (1, inner), 0)
    write_into(result, apply("indexing", "in_whole", position, part_number, length, dtype=INT32))


def _search_into(result: Tensor, x: Tensor, *, is_smallest: bool, gives_value: bool) -> None:
    """Enqueue the search along the middle axis."""
    (outer, length, inner), type_ = x.shape, cast(Type, x.dtype.wgsl)
    operands = [x]
    while (segments := -(-length // SEGMENT)) > 1:
        found = [empty((outer * segments * inner,), dtype, x.device) for dtype in (x.dtype, INT32)[: 2 - gives_value]]
        form = extremum_form(type_, is_smallest, "value" if gives_value else "both", len(operands) > 1)
        launch_rows(form, found, operands, (outer, length, inner), segment=SEGMENT)
        operands, length = found, segments
    form = extremum_form(type_, is_smallest, "value" if gives_value else "place", len(operands) > 1)
    launch_rows(form, [result], operands, (outer, length, inner))

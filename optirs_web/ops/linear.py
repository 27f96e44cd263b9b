"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..autograd import record
from ..errors import ShapeError
from ..launch import (
    apply_in_place,
    broadcast_shapes,
    contiguous,
    float_type,
    need_float32,
    need_one_device,
    write_into,
)
from ..limits import compute_part, cut, fits, narrowed, part_along
from ..runtime.backend import Capabilities
from ..runtime.dtypes import FLOAT32
from ..runtime.products import (
    LEAST_PART,
    ProductLaunch,
    inner_parts,
    longest_inner_axis,
    longest_side,
    product_launches,
)
from ..runtime.strides import collapse
from ..tensor_class import Tensor, empty, tensor
from .creation import full
from .reduce import broadcast_to, sum_into, sum_to
from .shape import reshape, strided_view, transpose

__all__ = ["matmul"]

_BATCH_AXES = 2

_Launch = tuple[ProductLaunch, tuple[int, ...]]
"""A launch and its parameters."""


class _Layout(NamedTuple):
    """The sizes of products, and the strides of both operands along their rows and columns."""

    rows: int
    columns: int
    inner: int
    a_row: int
    a_inner: int
    b_inner: int
    b_column: int


class _Factor(NamedTuple):
    """An operand of products: where it begins in its memory, of which kind that is, and its strides in a batch."""

    start: int
    kind: str
    outer: int = 0
    batch: int = 0


def matmul(a: Any, b: Any) -> Tensor:
    """The product of matrices, (..., n, k) @ (..., k, m), as NumPy's: the axes before the last two are broadcast.

    A vector on the left is a row and one on the right a column, whose axis the result lacks. Transposed and broadcast
    operands are read in place. Gradients: g bᵀ and aᵀ g, summed over the axes that were broadcast.

    Raises:
        ShapeError: the inner dimensions differ, the others cannot be broadcast, an operand has no axes, or the
            tensors are on different devices.
        UnsupportedError: an operand is not float32.

    Example:
        >>> import optirs_web as ow
        >>> a = ow.ones((5, 2, 3), device="cpu")
        >>> (a @ ow.ones((3, 4), device="cpu")).shape
        (5, 2, 4)
    """
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        device = a.device if isinstance(a, Tensor) else b.device
        a, b = (operand if isinstance(operand, Tensor) else tensor(operand, device, FLOAT32) for operand in (a, b))
    need_float32("matmul", a, b)
    need_one_device("matmul", a, b)
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul needs operands with axes, and got shapes {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2:][0]:
        raise ShapeError(f"matmul of {a.shape} and {b.shape}: {a.shape[-1]} columns meet {b.shape[-2:][0]} rows")
    if len(a.shape) == len(b.shape) == 2:
        return _product(a, b)
    left = a if a.ndim > 1 else reshape(a, (1, a.size))
    right = b if b.ndim > 1 else reshape(b, (b.size, 1))
    result = _product(left, right)
    if a.ndim > 1 and b.ndim > 1:
        return result
    kept = (() if a.ndim == 1 else result.shape[-2:-1]) + (() if b.ndim == 1 else result.shape[-1:])
    return reshape(result, (*result.shape[:-2], *kept))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of operands with two axes or more."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2]) if len(a.shape) + len(b.shape) > 4 else ()
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    shape = (*batch, rows, columns)
    if inner == 0 or 0 in shape:
        result = full(shape, 0.0, a.device, float_type(a, b))
    elif batch and _is_one_matrix(b):
        result = Tensor(_multiplied(_as_rows(a), _only_matrix(b), ()).view, shape, float_type(a, b))
    else:
        result = _multiplied(a, b, batch)
    return record(
        result,
        (a, lambda g, _: sum_to(_product(g, transpose(b, -1, -2)), a.shape)),
        (b, lambda g, _: _gradient_of_right(a, g, b)),
    )


def _is_one_matrix(b: Tensor) -> bool:
    """Return whether all matrices of a batch on the left have one right operand: they are rows of one tall matrix."""
    return math.prod(b.shape[:-2]) == 1


def _only_matrix(b: Tensor) -> Tensor:
    return strided_view(b, b.shape[-2:], b.strided.strides[-2:])


def _as_rows(a: Tensor) -> Tensor:
    return reshape(a.detach(), (-1, a.shape[-1]))


def _gradient_of_right(a: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """aᵀ g; for one matrix on the right the sum over the batch is a part of the product."""
    if len(g.shape) > 2:
        rows = math.prod(a.shape[:-1])  # which -1 cannot say of a matrix without columns
        if not a.size or not _is_one_matrix(b) or rows != math.prod(g.shape[:-1]):
            return sum_to(_product(transpose(a, -1, -2), g), b.shape)
        a, g = reshape(a, (rows, a.shape[-1])), reshape(g, (rows, g.shape[-1]))
    if len(b.shape) == 2 and b.strided.strides == (1, b.shape[0]):  # stored as the transpose of a weight
        return transpose(_product(transpose(g, 0, 1), a), 0, 1)
    product = _product(transpose(a, 0, 1), g)
    return product if product.shape == b.shape else reshape(product, b.shape)


def _multiplied(a: Tensor, b: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Enqueue the products. Leaves no history."""
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    (a_view, a_start, a_strides), (b_view, b_start, b_strides) = a.strided, b.strided
    device = a_view.buffer.device
    result = empty((*batch, rows, columns), float_type(a, b), device)
    views = a_view, b_view, result.strided.view
    if not batch and fits(*views):
        layout = rows, columns, inner, *a_strides, *b_strides
        only = _only_launch(device.capabilities, layout, (a_start, a_view.kind), (b_start, b_view.kind))
        if only is not None:
            launch, parameters = only
            device.dispatch(launch.kernel, views, launch.grid, parameters)
            return result
    left, right = (broadcast_to(operand.detach(), (*batch, *operand.shape[-2:])) for operand in (a, b))
    shape, left_strides, right_strides = (*batch, rows, columns, inner), left.strided.strides, right.strided.strides
    _multiply_into(
        result,
        strided_view(left, shape, (*left_strides[:-1], 0, left_strides[-1])),
        strided_view(right, shape, (*right_strides[:-2], 0, right_strides[-1], right_strides[-2])),
    )
    return result


@lru_cache(4096)
def _only_launch(
    capabilities: Capabilities, layout: tuple[int, ...], a: tuple[int, str], b: tuple[int, str]
) -> _Launch | None:
    """Return the launch of the product of two matrices that fit bindings; None where the product is cut.

    The key has plain tuples of the first values of `_Layout` and `_Factor`, which are made faster than these.
    """
    if _too_long(capabilities, layout[:3]) is not None or _has_parts(capabilities, layout[2]):
        return None
    (launch,) = _launches(capabilities, _Factor(*a), _Factor(*b), _Layout(*layout), (1,))
    return launch


def _too_long(capabilities: Capabilities, sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return the axis of (..., rows, columns, inner) that is too long for a launch, and how long it may be."""
    side = longest_side(capabilities)
    for axis, longest in ((-3, side), (-2, side), (-1, longest_inner_axis(capabilities))):
        if sizes[axis] > longest:
            return axis, longest
    return None


def _has_parts(capabilities: Capabilities, inner: int) -> bool:
    """Return whether the inner axis may be cut to occupy a GPU."""
    return inner >= 2 * LEAST_PART and capabilities.tiles != "software"


def _multiply_into(result: Tensor, a: Tensor, b: Tensor) -> None:
    """Enqueue products in parts; both operands are strided views with the axes (..., rows, columns, inner)."""
    cutting = _cut(result, a, b)
    if cutting is None:
        _dispatch(result, narrowed(a), narrowed(b))
        return
    axis, length = cutting
    starts = range(0, a.shape[axis], length)
    parts = [[part_along(operand, axis, start, length) for operand in (a, b)] for start in starts]
    if axis < result.ndim:
        for start, (left, right) in zip(starts, parts, strict=True):
            compute_part(result, axis, start, length, partial(_multiply_into, a=left, b=right))
        return
    total = result if result.dtype is FLOAT32 else empty(result.shape, FLOAT32, result.device)
    _multiply_into(total, *parts[0])
    for left, right in parts[1:]:
        product = empty(result.shape, FLOAT32, result.device)
        _multiply_into(product, left, right)
        apply_in_place("add", "add", total, product)
    if total is not result:
        write_into(result, total)


def _cut(result: Tensor, a: Tensor, b: Tensor) -> tuple[int, int] | None:
    """Return the axis along which products are to be cut, and the length of the parts; None where they fit."""
    too_long = _too_long(result.device.capabilities, a.shape)
    if too_long is not None:
        axis, longest = too_long
        return a.ndim + axis, longest
    if fits(a.strided.view, b.strided.view, result.view):
        return None
    return cut([a, b, strided_view(result, a.shape, (*result.strided.strides, 0))])


def _dispatch(result: Tensor, a: Tensor, b: Tensor, *, is_part: bool = False) -> None:
    """Enqueue products of operands that fit bindings; `is_part` if they are parts, which are not cut again."""
    *batch, rows, columns, inner = a.shape
    (a_view, a_start, a_strides), (b_view, b_start, b_strides) = a.strided, b.strided
    sizes, strides = collapse(tuple(batch), [a_strides[:-3], b_strides[:-3]])
    if len(sizes) > _BATCH_AXES:
        left = contiguous(strided_view(a, (*batch, rows, inner), (*a_strides[:-2], a_strides[-1])))
        right = contiguous(strided_view(b, (*batch, inner, columns), (*b_strides[:-3], b_strides[-1], b_strides[-2])))
        _multiply_into(
            result,
            strided_view(left, a.shape, (*left.strided.strides[:-1], 0, 1)),
            strided_view(right, a.shape, (*right.strided.strides[:-2], 0, 1, columns)),
        )
        return
    capabilities = result.device.capabilities
    if _has_parts(capabilities, inner) and len(sizes) < _BATCH_AXES and not is_part:
        length = inner_parts(capabilities, rows, columns, inner, math.prod(sizes))
        if length < inner:
            _dispatch_parts(result, a, b, length)
            return
    (a_outer, a_batch), (b_outer, b_batch) = (
        (0,) * (_BATCH_AXES - len(axis_strides)) + tuple(axis_strides) for axis_strides in strides
    )
    layout = _Layout(rows, columns, inner, a_strides[-3], a_strides[-1], b_strides[-1], b_strides[-2])
    factors = _Factor(a_start, a_view.kind, a_outer, a_batch), _Factor(b_start, b_view.kind, b_outer, b_batch)
    for launch, parameters in _launches(capabilities, *factors, layout, sizes):
        result.device.dispatch(launch.kernel, [a_view, b_view, result.view], launch.grid, parameters)


def _launches(
    capabilities: Capabilities, a: _Factor, b: _Factor, layout: _Layout, sizes: Sequence[int]
) -> Iterator[_Launch]:
    """Yield the launches of products for each element of a batch of up to two axes."""
    starts = None if a.kind or b.kind else ((a.start, a.outer, a.batch), (b.start, b.outer, b.batch))
    is_float16 = a.kind == b.kind == "float16"
    for launch in product_launches("matmul", capabilities, layout, math.prod(sizes), starts, is_float16):
        offsets = a.start, b.start, launch.first, sizes[-1], a.outer, a.batch, b.outer, b.batch
        yield launch, (*layout, *offsets)


def _dispatch_parts(result: Tensor, a: Tensor, b: Tensor, length: int) -> None:
    """Enqueue products of parts of the inner axis as a batch, and their sum, with which later operations may fuse."""
    *outer, inner = a.shape
    parts, remainder = divmod(inner, length)
    products = empty((parts + (remainder > 0), *result.shape), FLOAT32, result.device)
    batch = [
        strided_view(x, (parts, *outer, length), (length * x.strided.strides[-1], *x.strided.strides)) for x in (a, b)
    ]
    compute_part(products, 0, 0, parts, partial(_dispatch, a=batch[0], b=batch[1], is_part=True))
    if remainder:
        last = [strided_view(x, (1, *x.shape), (0, *x.strided.strides)) for x in (a, b)]
        last = [part_along(x, a.ndim, parts * length, remainder) for x in last]
        compute_part(products, 0, parts, 1, partial(_dispatch, a=last[0], b=last[1], is_part=True))
    total = result if result.dtype is FLOAT32 else empty(result.shape, FLOAT32, result.device)
    sum_into(total, Tensor(products.view, (1, products.shape[0], result.size), FLOAT32))
    if total is not result:
        write_into(result, total)

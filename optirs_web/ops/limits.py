"""Operations over more memory than a kernel can be shown at once, cut into launches that the limit of a binding allows.

A device shows a kernel at most `max_binding_bytes` of a buffer, from a multiple of `offset_alignment` on. An operation
that needs more is cut along the axis along which its largest operand reaches furthest, again and again, until each part
fits. Parts are the same memory, but for those that begin between two multiples, which are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ..errors import DeviceLimitError
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty

__all__ = ["compute_part", "cut", "fits", "in_parts", "narrowed", "part_along", "reduce_into", "write_rows"]

_THREADS = 256

_BYTES = "bytes of one buffer"

_COLUMN_PARTS = 16
"""Places of an axis that are reduced at once, where two of them are more than a kernel can be shown."""


def fits(*views: View) -> bool:
    """A kernel can be shown each of these whole."""
    return max(view.nbytes for view in views) <= views[0].buffer.device.capabilities.max_binding_bytes


# Strided operands.


def _misalignment(x: Tensor) -> int:
    """Bytes from where a binding may begin to the first element."""
    view, start, _ = x.walk
    return (view.offset + start * x.dtype.itemsize) % x.device.capabilities.offset_alignment


def _shown_bytes(x: Tensor) -> int:
    """Bytes of the binding that shows all elements."""
    reach = sum((size - 1) * stride for size, stride in zip(x.shape, x.walk.strides, strict=True))
    return -(-(_misalignment(x) + (reach + 1) * x.dtype.itemsize) // 4) * 4


def narrowed(x: Tensor) -> Tensor:
    """The tensor with no more memory than its elements reach over, where its memory is more than fits. No history."""
    view, start, strides = x.walk
    if fits(view):
        return x
    before = _misalignment(x)
    offset = view.offset + start * x.dtype.itemsize - before
    shown = View(view.buffer, offset, _shown_bytes(x), view.kind)
    return Tensor(shown, x.shape, x.dtype, strides=strides, start=before // x.dtype.itemsize)


def cut(operands: Sequence[Tensor]) -> tuple[int, int] | None:
    """The axis along which an operation is to be cut, and the length of the parts; None where all operands fit.

    Args:
        operands: as strided views of one shape, which has an axis for each index of the operation; an operand has
            the stride 0 along those that it does not depend on.
    """
    largest = max(operands, key=_shown_bytes)
    if _shown_bytes(largest) <= largest.device.capabilities.max_binding_bytes:
        return None
    reaches = [(size - 1) * stride for size, stride in zip(largest.shape, largest.walk.strides, strict=True)]
    axis = reaches.index(max(reaches))
    return axis, _length_of_parts([largest], operands, axis)


def _length_of_parts(large: Sequence[Tensor], operands: Sequence[Tensor], axis: int) -> int:
    """Return the length of parts along an axis for which the large operands fit; 1 where they do not even then."""
    limits = operands[0].device.capabilities

    def longest(x: Tensor, slack: int) -> int:
        stride = x.walk.strides[axis] * x.dtype.itemsize
        room = limits.max_binding_bytes - slack - (_shown_bytes(x) - (x.shape[axis] - 1) * stride)
        return max(1, room // stride + 1)

    along = [x for x in large if x.walk.strides[axis]]
    strides = [x.walk.strides[axis] * x.dtype.itemsize for x in operands]
    unit = max(limits.offset_alignment // math.gcd(limits.offset_alignment, stride) for stride in strides if stride)
    length = min(longest(x, 0) for x in along)
    if length >= unit:
        return length - length % unit
    length = min(longest(x, limits.offset_alignment) for x in along)  # parts begin between two multiples
    if any(x.dtype.itemsize < 4 and x.walk.strides[axis] % 2 for x in operands):
        length -= length % 2  # and not within words
        if not length:
            device = operands[0].device
            raise DeviceLimitError("part of 16 bits", 2 * max(strides), limits.max_binding_bytes, device.name, _BYTES)
    return length


def part_along(x: Tensor, axis: int, first: int, count: int) -> Tensor:
    """Return `count` places of an axis from `first` on, or fewer at its end: the same memory. Leaves no history."""
    view, start, strides = x.walk
    shape = (*x.shape[:axis], min(count, x.shape[axis] - first), *x.shape[axis + 1 :])
    return Tensor(view, shape, x.dtype, strides=strides, start=start + first * strides[axis])


def compute_part(result: Tensor, axis: int, first: int, count: int, compute: Callable[[Tensor], None]) -> None:
    """Have a part of a contiguous result computed: where it lies, if a kernel can be shown that, or in a copy."""
    shape = (*result.shape[:axis], min(count, result.shape[axis] - first), *result.shape[axis + 1 :])
    rows, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    place = result.view.part(result.dtype.itemsize * first * inner, result.dtype.nbytes(math.prod(shape)))
    if rows == 1 and place.offset % result.device.capabilities.offset_alignment == 0:
        compute(Tensor(place, shape, result.dtype))
        return
    own = empty(shape, result.dtype, result.device)
    compute(own)
    write_rows(own, result, rows, first * inner)


# Reductions.


def reduce_into(
    result: Tensor,
    x: Tensor,
    reduce: Callable[[Tensor, Tensor], None],
    join: Callable[[Tensor, Sequence[Tensor]], None] | None = None,
) -> None:
    """Reduce the middle axis of (outer, length, inner) to (outer, inner), in parts that a kernel can be shown.

    Args:
        result: contiguous.
        x: any strided view.
        reduce: what to do with a contiguous x that a kernel can be shown: the result comes first.
        join: makes the result of the parts of a long axis; by default the results of these are reduced in turn.
    """
    from .launch import contiguous  # which cuts what it copies

    outer, length, inner = x.shape
    most = (x.device.capabilities.max_binding_bytes - x.device.capabilities.offset_alignment) // x.dtype.itemsize

    def of_part(axis: int, first: int, count: int) -> Callable[[Tensor], None]:
        return lambda target: reduce_into(target, part_along(x, axis, first, count), reduce, join)

    if x.size <= most:
        reduce(result, contiguous(narrowed(x)))
    elif outer > 1 or 2 * inner > most:
        axis, count = (0, most // (length * inner)) if outer > 1 else (2, most // _COLUMN_PARTS)
        count = max(1, count)
        for first in range(0, x.shape[axis], count):
            compute_part(result, min(axis, 1), first, count, of_part(axis, first, count))
    else:
        count = most // inner
        if join is not None:
            join(result, [part_along(x, 1, first, count) for first in range(0, length, count)])
            return
        of_parts = empty((-(-length // count), inner), result.dtype, x.device)
        for number, first in enumerate(range(0, length, count)):
            compute_part(of_parts, 0, number, 1, of_part(1, first, count))
        reduce_into(result, Tensor(of_parts.view, (1, *of_parts.shape), result.dtype), reduce)


# Axes that all operands have.


def in_parts(
    results: Sequence[Tensor],
    operands: Sequence[Tensor],
    axes: int,
    compute: Callable[[Sequence[Tensor], Sequence[Tensor]], None],
) -> None:
    """Compute results in parts along their first axes, which do not depend on each other: at once where all fit.

    Args:
        results: contiguous.
        operands: strided views that have these axes too.
        axes: how many there are.
        compute: enqueues the work for parts of all of them.
    """
    every = [*results, *operands]
    if fits(*(x.walk.view for x in every)):
        compute(results, operands)
        return
    axis = next((axis for axis in range(axes) if results[0].shape[axis] > 1), None)
    if axis is None or max(map(_shown_bytes, every)) <= every[0].device.capabilities.max_binding_bytes:
        compute(results, [narrowed(x) for x in operands])
        return
    length = _length_of_parts(every, every, axis)
    for first in range(0, results[0].shape[axis], length):
        parts = [part_along(x, axis, first, length) for x in operands]
        of_parts = partial(in_parts, operands=parts, axes=axes, compute=compute)
        _into_parts(results, (axis, first, length), of_parts)


def _into_parts(
    results: Sequence[Tensor], at: tuple[int, int, int], compute: Callable[[Sequence[Tensor]], None]
) -> None:
    """Have the same part of several results computed."""
    if not results:
        compute([])
        return
    compute_part(results[0], *at, lambda first: _into_parts(results[1:], at, lambda rest: compute([first, *rest])))


def write_rows(part: Tensor, whole: Tensor, rows: int, first: int) -> None:
    """Copy the rows of a part to `first` elements behind the beginning of each row of a whole; both are contiguous."""
    if not part.size:
        return
    device, itemsize = part.device, part.dtype.itemsize
    row, whole_row = part.size // rows, whole.size // rows
    place = whole.view.part(itemsize * first, part.view.nbytes)
    in_words = all(nbytes % 4 == 0 for nbytes in (place.offset, itemsize * row, itemsize * whole_row))
    is_shown = fits(part.view, whole.view)
    if rows == 1 and (place.offset % device.capabilities.offset_alignment == 0 or (in_words and not is_shown)):
        device.copy(part.view, place)  # a recorded program may have the part made there at once
        return
    views = [(part.view, itemsize * row), (whole.view, itemsize * whole_row)]
    count = _rows_at_once(device, rows, views)
    if count == 0 and in_words:  # no rows can be shown, but what is copied needs not be
        for number in range(rows):
            source, target = (view.part(nbytes * number, itemsize * row) for view, nbytes in views)
            device.copy(source, View(target.buffer, target.offset + itemsize * first, target.nbytes, target.kind))
        return
    count = count or rows  # of single 16-bit elements: the dispatch says the limit
    for number in range(0, rows, count):
        part_rows = min(count, rows - number)
        parts = [
            view if count == rows else view.part(nbytes * number, -(-nbytes * part_rows // 4) * 4)  # whole words
            for view, nbytes in views
        ]
        parameters = (part_rows * row, row, whole_row, first)
        device.dispatch(cooperative("join"), parts, -(-part_rows * row // _THREADS), parameters)


def _rows_at_once(device: Device, rows: int, views: Sequence[tuple[View, int]]) -> int:
    """Return the number of rows that fit, where each part begins where a binding may; 0 if none do."""
    if fits(*(view for view, _ in views)):
        return rows
    alignment = device.capabilities.offset_alignment
    unit = max(alignment // math.gcd(alignment, nbytes) for _, nbytes in views)
    count = device.capabilities.max_binding_bytes // max(nbytes for _, nbytes in views)
    return min(rows, count - count % unit)

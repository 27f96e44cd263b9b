"""Operations over more memory than one binding holds, cut into launches that the limit of a binding allows.

A binding is at most `max_binding_bytes` of a buffer, from a multiple of `offset_alignment` on. An operation that needs
more is cut along the axis with the largest extent in its largest operand, repeatedly, until each part fits. Parts are
the same memory, but for those that begin between two multiples, which are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from .errors import DeviceLimitError
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.map_kernels import join
from .tensor_class import Tensor, empty

__all__ = ["compute_part", "cut", "fits", "in_parts", "narrowed", "part_along", "write_rows"]

_BYTES = "bytes of one buffer"


def fits(*views: View) -> bool:
    """Return whether each of the views fits a binding."""
    most = views[0].buffer.device.capabilities.max_binding_bytes
    return max([view.nbytes for view in views]) <= most


# Strided operands.


def _misalignment(x: Tensor) -> int:
    """Return the bytes from the nearest offset at which a binding may begin to the first element."""
    view, start, _ = x.strided
    return (view.offset + start * x.dtype.itemsize) % x.device.capabilities.offset_alignment


def _shown_bytes(x: Tensor) -> int:
    """Return the bytes of the smallest binding that holds all elements."""
    reach = sum((size - 1) * stride for size, stride in zip(x.shape, x.strided.strides, strict=True))
    return -(-(_misalignment(x) + (reach + 1) * x.dtype.itemsize) // 4) * 4


def narrowed(x: Tensor) -> Tensor:
    """Return the tensor over the memory between its first and last element, if its view does not fit. No history."""
    view, start, strides = x.strided
    if fits(view):
        return x
    before = _misalignment(x)
    offset = view.offset + start * x.dtype.itemsize - before
    shown = View(view.buffer, offset, _shown_bytes(x), view.kind)
    return Tensor(shown, x.shape, x.dtype, strides=strides, start=before // x.dtype.itemsize)


def cut(operands: Sequence[Tensor]) -> tuple[int, int] | None:
    """Return the axis along which an operation is to be cut, and the length of the parts; None where all operands fit.

    Args:
        operands: as strided views of one shape, which has an axis for each index of the operation; an operand has
            the stride 0 along those that it does not depend on.
    """
    largest = max(operands, key=_shown_bytes)
    if _shown_bytes(largest) <= largest.device.capabilities.max_binding_bytes:
        return None
    reaches = [(size - 1) * stride for size, stride in zip(largest.shape, largest.strided.strides, strict=True)]
    axis = reaches.index(max(reaches))
    return axis, _length_of_parts([largest], operands, axis)


def _length_of_parts(large: Sequence[Tensor], operands: Sequence[Tensor], axis: int) -> int:
    """Return the length of parts along an axis for which the large operands fit; 1 if none does."""
    limits = operands[0].device.capabilities

    def longest(x: Tensor, slack: int) -> int:
        stride = x.strided.strides[axis] * x.dtype.itemsize
        room = limits.max_binding_bytes - slack - (_shown_bytes(x) - (x.shape[axis] - 1) * stride)
        return max(1, room // stride + 1)

    along = [x for x in large if x.strided.strides[axis]]
    strides = [x.strided.strides[axis] * x.dtype.itemsize for x in operands]
    unit = max(limits.offset_alignment // math.gcd(limits.offset_alignment, stride) for stride in strides if stride)
    length = min(longest(x, 0) for x in along)
    if length >= unit:
        return length - length % unit
    length = min(longest(x, limits.offset_alignment) for x in along)  # parts begin between two multiples
    if any(x.dtype.itemsize < 4 and x.strided.strides[axis] % 2 for x in operands):
        length -= length % 2  # and not within words
        if not length:
            device = operands[0].device
            raise DeviceLimitError("part of 16 bits", 2 * max(strides), limits.max_binding_bytes, device.name, _BYTES)
    return length


def part_along(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    """Return `count` elements of an axis from `start` on, or fewer at its end: the same memory. Leaves no history."""
    view, origin, strides = x.strided
    shape = (*x.shape[:axis], min(count, x.shape[axis] - start), *x.shape[axis + 1 :])
    return Tensor(view, shape, x.dtype, strides=strides, start=origin + start * strides[axis])


def compute_part(result: Tensor, axis: int, start: int, count: int, compute: Callable[[Tensor], None]) -> None:
    """Have a part of a contiguous result computed: in place, if a binding may begin there, or in a copy."""
    shape = (*result.shape[:axis], min(count, result.shape[axis] - start), *result.shape[axis + 1 :])
    rows, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    target = result.view.part(result.dtype.itemsize * start * inner, result.dtype.nbytes(math.prod(shape)))
    if rows == 1 and target.offset % result.device.capabilities.offset_alignment == 0:
        compute(Tensor(target, shape, result.dtype))
        return
    copy = empty(shape, result.dtype, result.device)
    compute(copy)
    write_rows(copy, result, rows, start * inner)


# Axes common to all operands.


def in_parts(
    results: Sequence[Tensor],
    operands: Sequence[Tensor],
    axes: int,
    compute: Callable[[Sequence[Tensor], Sequence[Tensor]], None],
) -> None:
    """Compute results in parts along their first axes, which are independent of each other: at once where all fit.

    Args:
        results: contiguous.
        operands: strided views that have these axes too.
        axes: how many there are.
        compute: enqueues the work for parts of all of them.
    """
    tensors = [*results, *operands]
    if fits(*(x.strided.view for x in tensors)):
        compute(results, operands)
        return
    axis = next((axis for axis in range(axes) if results[0].shape[axis] > 1), None)
    if axis is None or max(map(_shown_bytes, tensors)) <= tensors[0].device.capabilities.max_binding_bytes:
        compute(results, [narrowed(x) for x in operands])
        return
    length = _length_of_parts(tensors, tensors, axis)
    for start in range(0, results[0].shape[axis], length):
        parts = [part_along(x, axis, start, length) for x in operands]
        compute_in_parts = partial(in_parts, operands=parts, axes=axes, compute=compute)
        _into_parts(results, (axis, start, length), compute_in_parts)


def _into_parts(
    results: Sequence[Tensor], at: tuple[int, int, int], compute: Callable[[Sequence[Tensor]], None]
) -> None:
    """Have the same part of several results computed."""
    if not results:
        compute([])
        return
    compute_part(results[0], *at, lambda part: _into_parts(results[1:], at, lambda others: compute([part, *others])))


def write_rows(part: Tensor, whole: Tensor, rows: int, offset: int) -> None:
    """Copy the rows of a part into the rows of a whole, `offset` elements from their beginning; both are contiguous."""
    if not part.size:
        return
    device, itemsize = part.device, part.dtype.itemsize
    row, whole_row = part.size // rows, whole.size // rows
    region = whole.view.part(itemsize * offset, part.view.nbytes)
    in_words = all(nbytes % 4 == 0 for nbytes in (region.offset, itemsize * row, itemsize * whole_row))
    is_shown = fits(part.view, whole.view)
    if rows == 1 and (region.offset % device.capabilities.offset_alignment == 0 or (in_words and not is_shown)):
        device.copy(part.view, region)  # a recorded program may then compute the part in place
        return
    views = [(part.view, itemsize * row), (whole.view, itemsize * whole_row)]
    count = _rows_at_once(device, rows, views)
    if count == 0 and in_words:  # no row fits a binding, but a copy needs none
        for number in range(rows):
            source, target = (view.part(nbytes * number, itemsize * row) for view, nbytes in views)
            device.copy(source, View(target.buffer, target.offset + itemsize * offset, target.nbytes, target.kind))
        return
    count = count or rows  # of single 16-bit elements: the dispatch raises the error
    for number in range(0, rows, count):
        part_rows = min(count, rows - number)
        parts = [
            view if count == rows else view.part(nbytes * number, -(-nbytes * part_rows // 4) * 4)  # whole words
            for view, nbytes in views
        ]
        kernel = join(part.dtype.copied_as, 2, is_strided=False)
        parameters = (part_rows * row, part_rows, row, offset, whole_row, 1)
        device.dispatch(kernel, parts, -(-part_rows * row // kernel.elements_per_workgroup), parameters)


def _rows_at_once(device: Device, rows: int, views: Sequence[tuple[View, int]]) -> int:
    """Return the number of rows that fit bindings, with each part at an allowed offset; 0 if none do."""
    if fits(*(view for view, _ in views)):
        return rows
    alignment = device.capabilities.offset_alignment
    unit = max(alignment // math.gcd(alignment, nbytes) for _, nbytes in views)
    count = device.capabilities.max_binding_bytes // max(nbytes for _, nbytes in views)
    return min(rows, count - count % unit)

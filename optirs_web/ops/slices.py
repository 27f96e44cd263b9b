"""Slices of a tensor along its axes as strided views, and the reverse: a part written into a tensor of a constant."""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..launch import Shape, contiguous, launch_map, write_into
from ..limits import compute_part, fits, narrowed, part_along
from ..lower.maps import SpanForm
from ..runtime.dtypes import FLOAT32, DType
from ..runtime.map_kernels import place
from ..tensor_class import Tensor, empty
from .creation import full
from .shape import strided_view

__all__ = ["Index", "Parts", "Pick", "bits_of", "parsed", "part_of", "put_part", "whole_axis"]


class Pick(NamedTuple):
    """A slice of one axis: `length` elements from `start` on, in steps of `step`. An int does not keep the axis."""

    start: int
    step: int
    length: int
    is_kept: bool = True


Parts = tuple[Pick | None, ...]
"""The slice of each axis; None for a new axis."""


class Index(NamedTuple):
    """An index in brackets, parsed.

    Attributes:
        parts: the slice of each axis.
        backward: the axes of the result that are reversed.
        array: where an axis is indexed by an array, that axis of the result, and the array.
    """

    parts: Parts
    backward: tuple[int, ...]
    array: tuple[int, Any] | None


def whole_axis(size: int) -> Pick:
    """Return the slice that is all of an axis."""
    return Pick(0, 1, size)


def parsed(index: Any, shape: Shape) -> Index:
    """Return an index in brackets as a slice of each axis, the reversed axes, and the array index.

    Raises:
        ShapeError: there is no such element or axis, or there are two ellipses.
        UnsupportedError: bools; two arrays; an array and an int with something between them.
    """
    items = _in_full(index if isinstance(index, tuple) else (index,), shape)
    parts: list[Pick | None] = []
    backward: list[int] = []
    array: tuple[int, Any] | None = None
    axis = result_axis = 0
    for item in items:
        if item is None:
            parts.append(None)
        elif isinstance(item, slice):
            pick, is_backward = _of_slice(item, shape[axis])
            parts.append(pick)
            backward += [result_axis] * is_backward
        elif _is_int(item):
            parts.append(_of_int(operator.index(item), shape, axis))
        elif array is None:
            array = (result_axis, item)
            parts.append(whole_axis(shape[axis]))
        else:
            raise UnsupportedError("only one axis can be indexed by an array; `gather` takes an index for each element")
        axis += item is not None
        result_axis += not _is_int(item)
    return Index(tuple(parts), tuple(backward), array)


def _is_int(item: Any) -> bool:
    """Return whether an item is an int, or an integer of another library."""
    return hasattr(item, "__index__") and getattr(item, "shape", ()) == () and not isinstance(item, Tensor)


def _in_full(items: tuple[Any, ...], shape: Shape) -> list[Any]:
    """Return the items with the ellipsis and missing axes filled in: one for each axis, and None for new ones."""
    for item in items:
        if isinstance(item, bool) or (_is_int(item) and str(getattr(item, "dtype", "")).endswith("bool")):
            raise UnsupportedError("a bool is not an index: use `where` for a mask, None for a new axis")
    dots = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise ShapeError("an index may have only one ellipsis")
    missing = len(shape) - sum(item is not None and item is not Ellipsis for item in items)
    if missing < 0:
        raise ShapeError(f"{len(shape) - missing} indices for a tensor of shape {shape}")
    at = dots[0] if dots else len(items)
    full_items = [*items[:at], *(slice(None),) * missing, *items[at + 1 :]]
    chosen = [number for number, item in enumerate(full_items) if item is not None and not isinstance(item, slice)]
    is_torn = bool(chosen) and chosen[-1] - chosen[0] >= len(chosen)
    if is_torn and not all(_is_int(full_items[number]) for number in chosen):
        raise UnsupportedError("an array and an int are not adjacent in an index; use two steps, one for each")
    return full_items


def _of_slice(item: slice, size: int) -> tuple[Pick, bool]:
    """Return the elements of a slice in ascending order, and whether its step is negative."""
    try:
        start, stop, step = item.indices(size)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{item} is not a slice of an axis of {size}: {error}") from None
    count = len(range(start, stop, step))
    lowest = start if step > 0 else start + (count - 1) * step
    return (Pick(lowest, abs(step), count) if count else Pick(0, 1, 0)), step < 0 and count > 1


def _of_int(index: int, shape: Shape, axis: int) -> Pick:
    size = shape[axis]
    if not -size <= index < size:
        raise ShapeError(f"index {index} is out of range for axis {axis} of shape {shape}")
    return Pick(index % size, 1, 1, is_kept=False)


def part_of(x: Tensor, parts: Parts) -> Tensor:
    """Return a strided view of the same memory. Gradient: g where the part was taken, and zeros."""
    picks = iter(zip((pick for pick in parts if pick is not None), x.strided.strides, strict=True))
    shape: list[int] = []
    strides: list[int] = []
    start = x.strided.start
    for part in parts:
        pick, stride = (Pick(0, 1, 1), 0) if part is None else next(picks)
        start += pick.start * stride
        if pick.is_kept:
            shape.append(pick.length)
            strides.append(pick.step * stride)
    result = strided_view(x, tuple(shape), tuple(strides), start if math.prod(shape) else x.strided.start)
    return record(result, (x, lambda g, _: put_part(g, parts, x.shape)))


def bits_of(value: float, dtype: DType) -> int:
    """Return the bits of a number of that type as an unsigned integer.

    Raises:
        OverflowError: it does not fit.
    """
    is_integer = dtype.format != "f" and float(value).is_integer()
    number = int(value) if is_integer else float(value)
    code = "I" if dtype.format == "?" else dtype.format
    try:
        return int.from_bytes(struct.pack(f"<{code}", number), "little")
    except struct.error as error:
        raise OverflowError(f"{value!r} does not fit {dtype}") from error


class _PartAxis(NamedTuple):
    """An axis of the whole: its size, the slice of it that is the part, and the part's stride."""

    size: int
    pick: Pick
    stride: int

    @property
    def is_whole(self) -> bool:
        """Return whether the slice is all of it."""
        return self.pick.length == self.size

    def with_inner(self, inner: _PartAxis) -> _PartAxis | None:
        """Return this axis and the next one, which is taken whole, as one; None where the part has no one stride."""
        size, (start, step, length, _) = inner.size, self.pick
        is_one = length == 1
        if not (is_one or (step == 1 and self.stride == inner.stride * size)):
            return None
        return _PartAxis(self.size * size, Pick(start * size, 1, length * size), inner.stride)


def put_part(part: Tensor, parts: Parts, shape: Shape, fill: float = 0.0) -> Tensor:
    """Return a tensor of `fill` with a part written where `part_of` would take it from. Gradient: that part of g."""
    strides = iter(part.strided.strides)
    axes: list[_PartAxis] = []
    picks = []
    for pick in parts:
        stride = next(strides) if pick is None or pick.is_kept else 0
        if pick is not None:
            axes.append(_PartAxis(shape[len(axes)], pick, stride))
            picks.append(pick)
    is_shown = (
        fits(part.strided.view) and FLOAT32.nbytes(math.prod(shape)) <= part.device.capabilities.max_binding_bytes
    )
    if all(axis.is_whole for axis in axes):
        result = contiguous(strided_view(part.detach(), shape, tuple(axis.stride for axis in axes)))
    elif is_shown:
        result = _put(part, _merged(axes), shape, fill)
    else:
        result = _put_by_axes(part, picks, shape, fill)
    return record(result, (part, lambda g, _: part_of(g, parts)))


def _merged(axes: Sequence[_PartAxis]) -> list[_PartAxis]:
    """Drop axes of length 1, and merge those that are taken whole with the one before, where that is possible."""
    merged: list[_PartAxis] = []
    for axis in axes:
        if axis.is_whole and axis.size == 1:
            continue
        joined = merged[-1].with_inner(axis) if merged and axis.is_whole else None
        if joined is None:
            merged.append(axis)
        else:
            merged[-1] = joined
    return merged


def _put(part: Tensor, axes: Sequence[_PartAxis], shape: Shape, fill: float) -> Tensor:
    """Return a tensor of `fill` with the part in it, by one dispatch. Leaves no history."""
    if not part.size:  # a binding is never empty
        return full(shape, fill, part.device, part.dtype)
    result = empty(shape, part.dtype, part.device)
    _put_into(result, part, axes, fill)
    return result


def _put_into(result: Tensor, part: Tensor, axes: Sequence[_PartAxis], fill: float) -> None:
    """Enqueue the kernel that writes the part and `fill`."""
    bits = bits_of(fill, part.dtype)
    if part.dtype.itemsize < 4:
        fill = bits
    elif part.dtype.format != "f":
        fill = int(fill)
    sizes, strides, words, spans = [], [], list[int](), list[SpanForm]()
    for number, (size, (begin, step, length, _), stride) in enumerate(axes):
        is_whole = length == size
        sizes.append(size)
        strides.append(stride if is_whole else 0)
        if not is_whole:
            extent = (length - 1) * step + 1
            spans.append(SpanForm((number,), is_spaced=extent > length))
            words += [begin, extent, stride, *([step] if extent > length else [])]
    kernel = place(part.dtype.copied_as, len(axes), tuple(spans))
    view, start, _ = part.strided
    parameters = (result.size, *sizes, start, *strides, *words, fill)
    part.device.dispatch(kernel, [view, result.view], -(-result.size // kernel.elements_per_workgroup), parameters)


def _put_by_axes(part: Tensor, picks: Sequence[Pick], shape: Shape, fill: float) -> Tensor:
    """Return a tensor of `fill` with the part in it, by a pass for each axis. Leaves no history.

    For memory that does not fit a binding.
    """
    if not part.size:
        return full(shape, fill, part.device, part.dtype)
    current = part.detach()
    sizes = [pick.length for pick in picks]
    for axis, pick in enumerate(picks):
        if pick.length != shape[axis]:
            before, after = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
            flat = Tensor(current.view, (before, pick.length, after), current.dtype)
            sizes[axis] = shape[axis]
            current = empty(tuple(sizes), part.dtype, part.device)
            _put_along(Tensor(current.view, (before, shape[axis], after), part.dtype), flat, pick, fill)
    return Tensor(current.view, shape, part.dtype)


def _put_along(whole: Tensor, part: Tensor, pick: Pick, fill: float) -> None:
    """Write (before, count, after) into a slice of the middle axis of a whole, in parts. Leaves no history."""
    (before, size, after), most = whole.shape, part.device.capabilities.max_binding_bytes
    most -= part.device.capabilities.offset_alignment  # a part may begin between two multiples
    if whole.dtype.nbytes(size * after) <= most and part.dtype.nbytes(pick.length * after) <= most:
        length = most // whole.dtype.nbytes(max(size, pick.length) * after)
        for start in range(0, before, length):
            rows = contiguous(narrowed(part_along(part, 0, start, length)))
            compute_part(whole, 0, start, length, partial(_put_rows, part=rows, pick=pick, fill=fill))
        return
    length = max(1, most // whole.dtype.nbytes(after))
    for row, start in itertools.product(range(before), range(0, size, length)):
        ends = start, min(start + length, size)
        begin, end = (min(max(0, -(-(at - pick.start) // pick.step)), pick.length) for at in ends)
        rows = part_along(part_along(part, 0, row, 1), 1, begin, end - begin)
        part_pick = Pick(pick.start + begin * pick.step - start, pick.step, rows.shape[1])
        target = Tensor(whole.view, (before * size, after), whole.dtype)
        part_length = min(length, size - start)
        compute = partial(_put_rows, part=rows, pick=part_pick, fill=fill)
        compute_part(target, 0, row * size + start, part_length, compute)


def _put_rows(whole: Tensor, part: Tensor, pick: Pick, fill: float) -> None:
    """Write (before, count, after) into a whole that fits a binding, or that is all of the part."""
    before, count, after = part.shape
    size = whole.size // max(1, before * after)
    if (pick.start, count) == (0, size):  # all of it
        write_into(Tensor(whole.view, part.shape, part.dtype), part)
    elif count:
        axes = [
            _PartAxis(before, whole_axis(before), count * after),
            _PartAxis(size, pick, after),
            _PartAxis(after, whole_axis(after), 1),
        ]
        _put_into(whole, contiguous(narrowed(part)), axes, fill)
    else:
        number = fill if whole.dtype.format == "f" else int(fill)
        launch_map("identity", f"identity_{whole.dtype.wgsl}", [number], [], whole.shape, whole)

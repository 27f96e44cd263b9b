"""Parts of a tensor along its axes: a walk over the whole, and the way back, a part put into a whole."""

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
from ..runtime.dtypes import FLOAT32, DType
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty
from .creation import full
from .launch import Shape, contiguous, launch_map, write_into
from .limits import compute_part, fits, narrowed, part_along
from .shape import walk_over

__all__ = ["Index", "Parts", "Pick", "bits_of", "parsed", "part_of", "place", "whole_axis"]

_AXES = 4  # of place.wgsl
_THREADS = 256


class Pick(NamedTuple):
    """What is taken of an axis: `length` elements from `start` on, in steps of `step`. Not kept is that of an int."""

    start: int
    step: int
    length: int
    is_kept: bool = True


Parts = tuple[Pick | None, ...]
"""What is taken of each axis; None for a new one."""


class Index(NamedTuple):
    """What stands in brackets.

    Attributes:
        parts: what is taken of each axis.
        backward: the axes of the result that run backwards.
        array: where an axis is indexed by an array, that axis of the result, and the array.
    """

    parts: Parts
    backward: tuple[int, ...]
    array: tuple[int, Any] | None


def whole_axis(size: int) -> Pick:
    """All of an axis."""
    return Pick(0, 1, size)


def parsed(index: Any, shape: Shape) -> Index:
    """What an index asks for.

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
    """An int, or a number of another library."""
    return hasattr(item, "__index__") and getattr(item, "shape", ()) == () and not isinstance(item, Tensor)


def _in_full(items: tuple[Any, ...], shape: Shape) -> list[Any]:
    """An item for each axis, besides the new ones."""
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
    every = [*items[:at], *(slice(None),) * missing, *items[at + 1 :]]
    chosen = [number for number, item in enumerate(every) if item is not None and not isinstance(item, slice)]
    is_torn = bool(chosen) and chosen[-1] - chosen[0] >= len(chosen)
    if is_torn and not all(_is_int(every[number]) for number in chosen):
        raise UnsupportedError("an array and an int are not adjacent in an index; use two steps, one for each")
    return every


def _of_slice(item: slice, size: int) -> tuple[Pick, bool]:
    """What a slice takes, from its lowest element on, and whether it runs backwards."""
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
    """Another walk over the same memory. Gradient: g, put where it was taken, and zeros."""
    picks = iter(zip((one for one in parts if one is not None), x.walk.strides, strict=True))
    shape: list[int] = []
    strides: list[int] = []
    start = x.walk.start
    for part in parts:
        pick, stride = (Pick(0, 1, 1), 0) if part is None else next(picks)
        start += pick.start * stride
        if pick.is_kept:
            shape.append(pick.length)
            strides.append(pick.step * stride)
    result = walk_over(x, tuple(shape), tuple(strides), start if math.prod(shape) else x.walk.start)
    return record(result, (x, lambda g, _: place(g, parts, x.shape)))


def bits_of(value: float, dtype: DType) -> int:
    """The word that stands for a number.

    Raises:
        OverflowError: it does not fit.
    """
    number: float = float(value) if dtype.format == "f" else operator.index(value)  # type: ignore[arg-type]
    code = "I" if dtype.format == "?" else dtype.format
    try:
        return int.from_bytes(struct.pack(f"<{code}", number), "little")
    except struct.error as error:
        raise OverflowError(f"{value!r} does not fit {dtype}") from error


class _Placed(NamedTuple):
    """An axis of the whole, what of it the part is, and the part's stride."""

    size: int
    pick: Pick
    stride: int


_NO_AXIS = _Placed(1, whole_axis(1), 0)


def place(part: Tensor, parts: Parts, shape: Shape, fill: float = 0.0) -> Tensor:
    """A tensor of `fill` with a part put where `part_of` takes it from. Gradient: that part of g."""
    strides = iter(part.walk.strides)
    axes: list[_Placed] = []
    picks = []
    for one in parts:
        stride = next(strides) if one is None or one.is_kept else 0
        if one is not None:
            axes.append(_Placed(shape[len(axes)], one, stride))
            picks.append(one)
    merged = _merged(axes)
    is_shown = fits(part.walk.view) and FLOAT32.nbytes(math.prod(shape)) <= part.device.capabilities.max_binding_bytes
    if len(merged) > _AXES or not is_shown:
        result = _placed_by_axes(part, picks, shape, fill)
    else:
        result = _put(part, merged, shape, fill)
    return record(result, (part, lambda g, _: part_of(g, parts)))


def _merged(axes: Sequence[_Placed]) -> list[_Placed]:
    """As few axes as possible: those that are taken whole join."""
    merged: list[_Placed] = []
    for one in axes:
        is_whole = one.pick[:3] == (0, 1, one.size)
        if is_whole and one.size == 1:
            continue
        last = merged[-1] if merged else _NO_AXIS
        if merged and is_whole and last.pick[:3] == (0, 1, last.size) and last.stride == one.stride * one.size:
            size = last.size * one.size
            merged[-1] = _Placed(size, whole_axis(size), one.stride)
        else:
            merged.append(one)
    return merged


def _put(part: Tensor, axes: Sequence[_Placed], shape: Shape, fill: float) -> Tensor:
    """A whole with the part in it. Leaves no history."""
    if not part.size:  # a kernel is shown no empty buffer
        return full(shape, fill, part.device, part.dtype)
    result = empty(shape, part.dtype, part.device)
    _put_into(result, part, axes, fill)
    return result


def _put_into(result: Tensor, part: Tensor, axes: Sequence[_Placed], fill: float) -> None:
    """Enqueue the kernel."""
    word = bits_of(fill, part.dtype)
    four = [*(_NO_AXIS,) * (_AXES - len(axes)), *axes]
    view, first, _ = part.walk
    part.device.dispatch(
        cooperative("place", AXES=max(1, len(axes)), STEPS=max([1, *[one.pick.step for one in axes]]) > 1),
        [view, result.view],
        -(-result.size // _THREADS),
        (
            result.size,
            *(one.size for one in four[1:]),
            *(one.pick.start for one in four),
            *(one.pick.step for one in four),
            *(one.pick.length for one in four),
            *(one.stride for one in four),
            first,
            word,
        ),
    )


def _placed_by_axes(part: Tensor, picks: Sequence[Pick], shape: Shape, fill: float) -> Tensor:
    """One axis after the other: more than the kernel has, or can be shown. Leaves no history."""
    if not part.size:
        return full(shape, fill, part.device, part.dtype)
    found = part.detach()
    sizes = [one.length for one in picks]
    for axis, pick in enumerate(picks):
        if pick[:3] != (0, 1, shape[axis]):
            before, after = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
            flat = Tensor(found.view, (before, pick.length, after), found.dtype)
            sizes[axis] = shape[axis]
            found = empty(tuple(sizes), part.dtype, part.device)
            _put_along(Tensor(found.view, (before, shape[axis], after), part.dtype), flat, pick, fill)
    return Tensor(found.view, shape, part.dtype)


def _put_along(whole: Tensor, part: Tensor, pick: Pick, fill: float) -> None:
    """Put (before, count, after) where it belongs along the middle axis of a whole, in parts. Leaves no history."""
    (before, size, after), most = whole.shape, part.device.capabilities.max_binding_bytes
    most -= part.device.capabilities.offset_alignment  # a part may begin between two multiples
    if whole.dtype.nbytes(size * after) <= most and part.dtype.nbytes(pick.length * after) <= most:
        length = most // whole.dtype.nbytes(max(size, pick.length) * after)
        for first in range(0, before, length):
            some = contiguous(narrowed(part_along(part, 0, first, length)))
            compute_part(whole, 0, first, length, partial(_put_rows, part=some, pick=pick, fill=fill))
        return
    length = max(1, most // whole.dtype.nbytes(after))
    for row, first in itertools.product(range(before), range(0, size, length)):
        ends = first, min(first + length, size)
        begin, end = (min(max(0, -(-(at - pick.start) // pick.step)), pick.length) for at in ends)
        some = part_along(part_along(part, 0, row, 1), 1, begin, end - begin)
        its_pick = Pick(pick.start + begin * pick.step - first, pick.step, some.shape[1])
        target = Tensor(whole.view, (before * size, after), whole.dtype)
        length_here = min(length, size - first)
        compute = partial(_put_rows, part=some, pick=its_pick, fill=fill)
        compute_part(target, 0, row * size + first, length_here, compute)


def _put_rows(whole: Tensor, part: Tensor, pick: Pick, fill: float) -> None:
    """Put (before, count, after) into a whole that a kernel can be shown, or that is all of the part."""
    before, count, after = part.shape
    size = whole.size // max(1, before * after)
    if (pick.start, count) == (0, size):  # all of it
        write_into(Tensor(whole.view, part.shape, part.dtype), part)
    elif count:
        axes = [
            _Placed(before, whole_axis(before), count * after),
            _Placed(size, pick, after),
            _Placed(after, whole_axis(after), 1),
        ]
        _put_into(whole, contiguous(narrowed(part)), axes, fill)
    else:
        number = fill if whole.dtype.format == "f" else int(fill)
        launch_map("identity", f"identity_{whole.dtype.wgsl}", [number], [], whole.shape, whole)

"""Replaces sums of tensors that are zero but for a slice, as gradients of slices are, by concatenations of slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .buffer import Buffer, View
from .launches import Launch, Recorded
from .map_kernels import elementwise
from .mapped import Shape, StridedView, mapped, refined, spread
from .strides import row_major_strides
from .uses import Uses

__all__ = ["concatenated"]


class _Placed(NamedTuple):
    """A slice, one of equal parts of an axis, written into zeros by a map.

    Attributes:
        shape: the shape of the result.
        axis: the axis that is sliced.
        at: the index along that axis.
        part: the slice's values, as a strided view of the result's shape with a stride of 0 along the axis.
    """

    shape: Shape
    axis: int
    at: int
    part: StridedView


def concatenated(
    recorded: Sequence[Recorded], is_temporary: Callable[[Buffer], bool], allocate: Callable[[int], Buffer]
) -> list[Recorded]:
    """Return the commands, with sums of slices that make up a tensor replaced by launches that concatenate them.

    The launches that write the slices into zeros stay, though nothing reads their results any more.

    Args:
        recorded: launches and copies, in order.
        is_temporary: returns True for a buffer that only these commands read.
        allocate: returns a buffer of that many bytes, for intermediate results.
    """
    uses = Uses(recorded)
    result: list[list[Recorded]] = [[command] for command in recorded]
    done: set[int] = set()
    for at in reversed(range(len(recorded))):
        if at in done or not _is_sum(recorded[at]):
            continue
        leaves = _leaves(recorded, at, uses, is_temporary, done)
        slices = [_slice_of(recorded[leaf]) for leaf in leaves]
        whole = _whole(slices)
        if whole:
            sources = [_without_copy(placed, recorded, at, uses) for placed in whole]
            result[at] = _concatenation(recorded[at], whole, sources, allocate)
    return [command for several in result for command in several]


def _is_sum(command: Recorded) -> bool:
    """Return True for an elementwise addition of two contiguous tensors."""
    return isinstance(command, Launch) and command.kernel is elementwise("add", "add", ("tensor", "tensor"), 0)


def _leaves(
    recorded: Sequence[Recorded], at: int, uses: Uses, is_temporary: Callable[[Buffer], bool], done: set[int]
) -> list[int]:
    """Return the indices of the commands that compute the summands; empty if a partial sum has another reader."""
    leaves: list[int] = []
    for view in recorded[at].reads:
        first = uses.writer(view, before=at)
        if first is None or {*uses.readers[view.buffer]} - {first} != {at} or not is_temporary(view.buffer):
            return []
        if _is_sum(recorded[first]):
            done.add(first)
            leaves += _leaves(recorded, first, uses, is_temporary, done) or [first]
        else:
            leaves.append(first)
    return leaves


def _slice_of(command: Recorded) -> _Placed | None:
    """Return the slice that a map writes into zeros; None unless that is one of equal parts of an axis."""
    expression = mapped(command) if isinstance(command, Launch) else None
    spans = expression.tensors[0].spans if expression is not None and len(expression.tensors) == 1 else ()
    if expression is None or len(expression.parts) != 1 or len(spans) != 1 or expression.scalars[0][1]:
        return None
    ((steps, start, length, stride, spacing),) = spans
    axes = [axis for axis, step in enumerate(steps) if step]
    if len(axes) != 1 or spacing > 1 or start % length or expression.dims[axes[0]] % length:
        return None
    (tensor,), (axis,), dims = expression.tensors, axes, expression.dims
    shape = (*dims[:axis], dims[axis] // length, length, *dims[axis + 1 :])
    strides = (*tensor.strides[:axis], 0, stride, *tensor.strides[axis + 1 :])
    return _Placed(shape, axis, start // length, StridedView(tensor.view, "f32", tensor.start, strides))


def _whole(slices: Sequence[_Placed | None]) -> list[_Placed]:
    """Return the slices in order, over one shape; an empty list unless they cover each index of their axis once."""
    known = _of_common_shape([placed for placed in slices if placed is not None])
    if len(known) < len(slices) or len({(placed.shape, placed.axis) for placed in known}) != 1:
        return []
    known.sort(key=lambda placed: placed.at)
    return known if [placed.at for placed in known] == [*range(known[0].shape[known[0].axis])] else []


def _of_common_shape(slices: Sequence[_Placed]) -> list[_Placed]:
    """Return the slices over the coarsest shape that refines the shapes of all, without those that do not fit it."""
    shape: Shape | None = slices[0].shape if slices else None
    for placed in slices:
        shape = refined(shape, placed.shape) if shape is not None else None
    resized = [_over(placed, shape) for placed in slices] if shape is not None else []
    return [placed for placed in resized if placed is not None]


def _over(placed: _Placed, finer: Shape) -> _Placed | None:
    """Return the slice over a finer shape; None where that divides the sliced axis."""
    before, length = math.prod(placed.shape[: placed.axis]), placed.shape[placed.axis]
    for axis, size in enumerate(finer):
        if math.prod(finer[:axis]) == before and size == length:
            part = placed.part._replace(strides=spread(placed.part.strides, placed.shape, finer))
            return _Placed(finer, axis, placed.at, part)
    return None


def _without_copy(placed: _Placed, recorded: Sequence[Recorded], at: int, uses: Uses) -> tuple[Shape, StridedView]:
    """Return the shape and strided view that read a slice, or its source where the slice is a reordering copy."""
    before, after = placed.shape[: placed.axis], placed.shape[placed.axis + 1 :]
    others = (*before, *after)
    part = placed.part
    first = uses.writer(part.view, before=at)
    copy = recorded[first] if first is not None else None
    expression = mapped(copy) if isinstance(copy, Launch) and copy.kernel.name == "identity_f32" else None
    strides = (*part.strides[: placed.axis], *part.strides[placed.axis + 1 :])
    is_contiguous = part.start == 0 and all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(others, strides, row_major_strides(others), strict=True)
    )
    finer = refined(others, expression.dims) if expression is not None and is_contiguous else None
    if finer is None or expression is None or not expression.tensors or first is None:
        return placed.shape, part
    source = expression.tensors[0]
    split = next((number for number in range(len(finer) + 1) if math.prod(finer[:number]) == math.prod(before)), None)
    if split is None or any(first < writer < at for writer in uses.writers[source.view.buffer]):
        return placed.shape, part
    strides = spread(source.strides, expression.dims, finer)
    dims = (*finer[:split], placed.shape[placed.axis], *finer[split:])
    return dims, source._replace(strides=_standing(strides, split))


def _standing(strides: Shape, axis: int) -> Shape:
    return (*strides[:axis], 0, *strides[axis:])


def _concatenation(
    added: Recorded,
    slices: Sequence[_Placed],
    sources: Sequence[tuple[Shape, StridedView]],
    allocate: Callable[[int], Buffer],
) -> list[Recorded]:
    """Return the launches that write the concatenation in place of the sum; each appends a slice."""
    assert isinstance(added, Launch)
    shape, axis = slices[0].shape, slices[0].axis
    dims = sources[0][0]
    parts = [part for _, part in sources]
    if any(part_dims != dims for part_dims, _ in sources):
        dims, parts = shape, [placed.part for placed in slices]
    kernel = elementwise("joined", "before", ("tensor", "tensor", "scalar", "scalar"), len(dims))
    launches: list[Recorded] = []
    joined = parts[0]
    inner = math.prod(shape[axis + 1 :])
    for end, part in enumerate(parts[1:], 1):
        is_last = end == len(parts) - 1
        target = added.views[-1] if is_last else View.whole(allocate(added.views[-1].nbytes))
        starts, strides = (joined.start, part.start), (*joined.strides, *part.strides)
        parameters = (math.prod(dims), *dims, *starts, *strides, inner * shape[axis], inner * end)
        launches.append(Launch(kernel, (joined.view, part.view, target), added.grid, parameters))
        joined = StridedView(target, "f32", 0, row_major_strides(dims))
    return launches

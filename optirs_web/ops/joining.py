"""Tensors joined along an axis, split, and surrounded by a constant."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..launch import contiguous, need_one_device
from ..limits import fits, write_rows
from ..runtime.map_kernels import join
from ..runtime.strides import collapse
from ..tensor_class import Tensor, empty
from .reduce import normalize_axes
from .slices import Pick, part_of, put_part, whole_axis

__all__ = ["chunk", "concat", "pad", "split", "stack"]


def _between(shape: Sequence[int], axis: int, start: int, count: int) -> tuple[Pick, ...]:
    """Return the picks of `count` elements of one axis, from `start` on, and of the whole of each other axis."""
    return tuple(Pick(start, 1, count) if number == axis else whole_axis(size) for number, size in enumerate(shape))


def concat(tensors: Iterable[Tensor], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """The tensors one after the other along an axis that they have, as `numpy.concatenate`.

    Each is copied once. Gradients: the parts of g, which are strided views of it.

    Args:
        tensors: one or more of one dtype, whose shapes differ along the axis only.
        axis: along which they are joined.
        dim: as `axis`, the name that torch uses.

    Raises:
        ShapeError: there are none, their shapes do not fit, there is no such axis, or they are on different devices.
        UnsupportedError: one is no tensor, or their dtypes differ.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> a, b = ow.ones((2, 1), device="cpu"), ow.zeros((2, 2), device="cpu")
        >>> ops.concat([a, b], axis=1).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    operands = _checked("concat", tensors)
    (axis,) = normalize_axes(axis if dim is None else dim, operands[0].ndim)
    other_sizes = [(*operand.shape[:axis], *operand.shape[axis + 1 :]) for operand in operands]
    if any(operand.ndim != operands[0].ndim for operand in operands) or len(set(other_sizes)) > 1:
        shapes = ", ".join(str(operand.shape) for operand in operands)
        raise ShapeError(f"concat along axis {axis} needs shapes that differ there only, not {shapes}")
    lengths = [operand.shape[axis] for operand in operands]
    starts = [0, *accumulate(lengths)]
    before, after = operands[0].shape[:axis], operands[0].shape[axis + 1 :]
    result = empty((*before, starts[-1], *after), operands[0].dtype, operands[0].device)
    inner = math.prod(after)
    for operand, start in zip(operands, starts, strict=False):
        if operand.is_contiguous or not fits(operand.strided.view, result.view):
            write_rows(contiguous(operand), result, math.prod(before), start * inner)
        else:
            _write_strided(operand, result, start * inner)
    shape = result.shape
    edges = [
        (operand, _part_rule(_between(shape, axis, *bounds)))
        for operand, *bounds in zip(operands, starts, lengths, strict=False)
    ]
    return record(result, *edges)


def _write_strided(part: Tensor, whole: Tensor, offset: int) -> None:
    """Copy a part to where it belongs in a whole, which is contiguous, from an element on."""
    view, start, strides = part.strided
    sizes, steps = collapse(part.shape, [strides, whole.strided.strides])
    kernel = join(part.dtype.copied_as, len(sizes), is_strided=True)
    parameters = (part.size, *sizes, start, offset, *steps[0], *steps[1])
    whole.device.dispatch(kernel, [view, whole.view], -(-part.size // kernel.elements_per_workgroup), parameters)


def _part_rule(parts: tuple[Pick, ...]) -> Any:
    return lambda g, _: part_of(g, parts)


def _checked(operation: str, tensors: Iterable[Any]) -> list[Tensor]:
    operands = list(tensors)
    if not operands:
        raise ShapeError(f"{operation} needs at least one tensor")
    for operand in operands:
        if not isinstance(operand, Tensor) or operand.dtype is not operands[0].dtype:
            raise UnsupportedError(f"{operation} needs tensors of one dtype, not {operands[0]!r} and {operand!r}")
    need_one_device(operation, *operands)
    return operands


def stack(tensors: Iterable[Tensor], axis: int = 0, *, dim: int | None = None) -> Tensor:
    """The tensors one after the other along a new axis, as `numpy.stack`. Gradients: the parts of g.

    Args:
        tensors: one or more of one dtype and one shape.
        axis: the position of the new axis in the result.
        dim: as `axis`, the name that torch uses.

    Raises:
        ShapeError: there are none, their shapes differ, there is no such axis, or they are on different devices.
        UnsupportedError: one is no tensor, or their dtypes differ.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.stack([ow.ones((2,), device="cpu"), ow.zeros((2,), device="cpu")], axis=1).tolist()
        [[1.0, 0.0], [1.0, 0.0]]
    """
    operands = _checked("stack", tensors)
    shape = operands[0].shape
    if any(operand.shape != shape for operand in operands):
        raise ShapeError(
            f"stack needs tensors of one shape, not {', '.join(str(operand.shape) for operand in operands)}"
        )
    (axis,) = normalize_axes(axis if dim is None else dim, len(shape) + 1)
    wholes = [whole_axis(size) for size in shape]
    return concat([part_of(operand, (*wholes[:axis], None, *wholes[axis:])) for operand in operands], axis)


def split(x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Parts of the tensor along an axis, in order, as `numpy.split`. No copies. Gradient: g there, and zeros.

    Args:
        x: of any dtype.
        indices_or_sections: the number of equal parts, or the indices where it is cut. (torch's `split` takes lengths.)
        axis: along which.

    Raises:
        ShapeError: the axis has no such number of equal parts, the indices are not ascending, or there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x = ow.tensor([1.0, 2.0, 3.0, 4.0], device="cpu")
        >>> [part.tolist() for part in ops.split(x, 2)], [part.tolist() for part in ops.split(x, [1])]
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0, 3.0, 4.0]])
    """
    (axis,) = normalize_axes(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(indices_or_sections, Iterable):
        cuts = [operator.index(cut) for cut in indices_or_sections]
    else:
        parts = operator.index(indices_or_sections)
        if parts < 1 or size % parts:
            raise ShapeError(f"axis {axis} of shape {x.shape} has no {parts} equal parts; see `chunk`")
        cuts = [size // parts * number for number in range(1, parts)]
    edges = [0, *cuts, size]
    if sorted(edges) != edges:
        raise ShapeError(f"{x.shape} cannot be split along axis {axis} at {cuts}: indices from 0 to {size} in order")
    return [part_of(x, _between(x.shape, axis, start, end - start)) for start, end in pairwise(edges)]


def chunk(x: Tensor, chunks: int, axis: int = 0) -> list[Tensor]:
    """Parts of the tensor along an axis, as torch's: at most `chunks`, of equal length but for the last.

    Raises:
        ShapeError: the number is not positive, or there is no such axis.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> [part.shape for part in ops.chunk(ow.ones((5, 2), device="cpu"), 2)]
        [(3, 2), (2, 2)]
    """
    (axis,) = normalize_axes(axis, x.ndim)
    if operator.index(chunks) <= 0:
        raise ShapeError(f"a tensor can be split into 1 part or more, not {chunks}")
    length = max(1, -(-x.shape[axis] // chunks))
    return split(x, range(length, x.shape[axis], length), axis)


def pad(x: Tensor, pad_width: Any, constant: float = 0.0) -> Tensor:
    """The tensor with a constant before and after its elements along each axis, as `numpy.pad`. Gradient: g without it.

    Args:
        x: of any dtype.
        pad_width: elements added: (before, after) for each axis; one such pair for all axes; or one number for all.
            (`nn.functional.pad` takes torch's order, which begins with the last axis.)
        constant: the value of the elements added.

    Raises:
        ShapeError: it is no number, pair or pair for each axis, or one is negative (cut with `x[...]`).
        OverflowError: the constant does not fit the dtype.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.pad(ow.ones((2,), device="cpu"), (1, 2)).tolist()
        [0.0, 1.0, 1.0, 0.0, 0.0]
    """
    widths = _widths(pad_width, x.ndim)
    parts = tuple(Pick(before, 1, size) for (before, _), size in zip(widths, x.shape, strict=True))
    shape = tuple(before + size + after for (before, after), size in zip(widths, x.shape, strict=True))
    return put_part(x, parts, shape, constant)


def _widths(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    try:
        if not isinstance(pad_width, Iterable):
            widths = [(operator.index(pad_width),) * 2] * rank
        else:
            items = list(pad_width)
            if not any(isinstance(item, Iterable) for item in items):
                items = [items] * rank
            elif len(items) == 1:
                items *= rank
            widths = [(operator.index(before), operator.index(after)) for before, after in items]
    except (TypeError, ValueError):
        raise ShapeError(
            f"pad_width must be a number, (before, after), or such a pair for each axis; not {pad_width}"
        ) from None
    if len(widths) != rank or any(count < 0 for width in widths for count in width):
        raise ShapeError(f"{pad_width} does not surround the {rank} axes: (before, after) from 0 on for each")
    return widths

"""Elements copied by index along an axis, and the reverse, sums by index in a fixed order."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from ..autograd import record
from ..launch import Shape, apply, apply_in_place, contiguous, write_into
from ..limits import compute_part, cut, fits, narrowed, part_along
from ..runtime.dtypes import BOOL, FLOAT32, INT32
from ..runtime.kernels import cooperative
from ..runtime.map_kernels import gather
from ..tensor_class import Tensor, empty
from .creation import full
from .reduce import broadcast_to
from .shape import permute, reshape, strided_view

__all__ = ["Lookup", "along", "elementwise", "looked_up", "spread"]

_THREADS = 256
_NAN_OF_WORDS = {"float16": 0x7E00, "bfloat16": 0x7FC0}
_AT_ONCE = 4096
"""Entries that an invocation of scatter.wgsl goes through."""


class Lookup(NamedTuple):
    """Indices along the middle axis of (outer, length, inner) for each element of (outer, entries, inner).

    Attributes:
        indices: int32, with `strides` along these three axes: 0 along those that an index does not depend on.
        wraps: negative indices count from the end.
    """

    indices: Tensor
    outer: int
    length: int
    inner: int
    entries: int
    strides: tuple[int, int, int]
    wraps: bool

    @property
    def is_shared(self) -> bool:
        """Return whether the indices are the same along the outer and inner axes."""
        return self.strides == (0, 1, 0)

    def spread_indices(self) -> Tensor:
        """The indices with all axes of the entries."""
        return strided_view(self.indices, (self.outer, self.entries, self.inner), self.strides)

    def settled(self) -> Lookup:
        """Return the lookup with indices that count from the beginning."""
        if not self.wraps:
            return self
        return self._replace(indices=apply("indexing", "from_end", self.indices, self.length, dtype=INT32), wraps=False)


def along(index: Tensor, shape: Shape, axis: int, *, wraps: bool) -> Lookup:
    """Return the lookup by a flat `index` along an axis, the same for all elements of the other axes."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return Lookup(contiguous(index), outer, shape[axis], inner, index.size, (0, 1, 0), wraps)


def elementwise(index: Tensor, shape: Shape, axis: int) -> Lookup:
    """Return the lookup by an index for each element; `index` has the shape `shape` but along the axis."""
    outer, inner, count = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), index.shape[axis]
    return Lookup(contiguous(index), outer, shape[axis], inner, count, (count * inner, inner, 1), wraps=True)


def looked_up(x: Tensor, lookup: Lookup, shape: Shape, missing: float) -> Tensor:
    """Return the elements at the indices. `missing` is for an index out of range. Leaves no history."""
    if not x.size:
        return full(shape, missing, x.device, x.dtype)
    x = contiguous(x.detach())
    result = empty(shape, x.dtype, x.device)
    if fits(x.view, lookup.indices.view, result.view):
        _look_up(result, x, lookup, missing)
    else:
        values = Tensor(x.view, (lookup.outer, lookup.length, lookup.inner), x.dtype)
        target = Tensor(result.view, (lookup.outer, lookup.entries, lookup.inner), x.dtype)
        _look_up_into(target, values, lookup.settled().spread_indices(), missing)
    return result


def _look_up(result: Tensor, x: Tensor, lookup: Lookup, missing: float) -> None:
    outer, length, inner = lookup.outer, lookup.length, lookup.inner
    is_word = x.dtype.name in _NAN_OF_WORDS  # which is copied as it is
    kernel = gather(x.dtype.copied_as, 3, wraps=lookup.wraps)
    dims, strides = (outer, lookup.entries, inner), (*lookup.strides, length * inner, 0, 1)
    fill = _NAN_OF_WORDS[x.dtype.name] if is_word and math.isnan(missing) else missing
    numbers = (fill, *([length] if lookup.wraps else []))
    views = [lookup.indices.view, x.view, result.view]
    groups = -(-result.size // kernel.elements_per_workgroup)
    x.device.dispatch(kernel, views, groups, (result.size, *dims, 0, 0, *strides, inner, length, *numbers))


def _look_up_into(result: Tensor, x: Tensor, indices: Tensor, missing: float) -> None:
    """Enqueue the copy in parts, by indices that have all axes of the result and do not count from the end."""
    parts = cut([result, indices])
    x_parts = cut([x])
    if parts is None and x_parts is None:
        x = contiguous(narrowed(x))
        _look_up(result, x, _lookup_in_binding(indices, x.shape), missing)
    elif parts is None and x_parts is not None and x_parts[0] == 1:
        _look_up_in_table_parts(result, x, indices, missing, x_parts[1])
    else:
        axis, length = parts or x_parts or (0, 1)
        for start in range(0, result.shape[axis], length):
            part = x if axis == 1 else part_along(x, axis, start, length)
            part_indices = part_along(indices, axis, start, length)
            compute = partial(_look_up_into, x=part, indices=part_indices, missing=missing)
            compute_part(result, axis, start, length, compute)


def _look_up_in_table_parts(result: Tensor, x: Tensor, indices: Tensor, missing: float, length: int) -> None:
    """Enqueue the copy where a binding holds `length` elements of the axis: one pass for each part of the axis."""
    merged: Tensor | None = None
    compact = _without_repeats(indices)
    for start in range(0, x.shape[1], length):
        positions = apply("indexing", "in_part", compact, start, min(length, x.shape[1] - start), dtype=INT32)
        values = empty(result.shape, x.dtype, x.device)
        _look_up_into(values, part_along(x, 1, start, length), broadcast_to(positions, indices.shape), missing)
        if merged is not None:
            is_there = apply("compare", "less_equal_i32", 0, positions, dtype=BOOL)
            values = apply("where", f"where_{x.dtype.wgsl}", is_there, values, merged, dtype=x.dtype)
        merged = values
    assert merged is not None
    write_into(result, merged)


def _without_repeats(x: Tensor) -> Tensor:
    """Return a tensor with length 1 along the axes whose stride is 0."""
    strides = x.strided.strides
    return strided_view(x, tuple(size if stride else 1 for size, stride in zip(x.shape, strides, strict=True)), strides)


def _lookup_in_binding(indices: Tensor, shape: Shape) -> Lookup:
    """Return the lookup by indices (outer, entries, inner) that fit a binding."""
    compact = _without_repeats(indices)
    is_shared = compact.shape[0] == compact.shape[2] == 1
    compact = contiguous(narrowed(compact if is_shared else indices))
    (outer, length, inner), count = shape, indices.shape[1]
    strides = (0, 1, 0) if is_shared else (count * inner, inner, 1)
    return Lookup(compact, outer, length, inner, count, strides, wraps=False)


def spread(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    """Sum entries by index; those out of range are left out. Gradient: g gathered, 0 for those left out."""
    lookup = lookup.settled()
    if not g.size or not math.prod(shape):
        result = full(shape, 0.0, g.device)
    elif fits(g.strided.view, lookup.indices.view) and FLOAT32.nbytes(math.prod(shape)) <= _limit(g):
        result = _spread(g.detach(), lookup, shape)
    else:
        result = empty(shape, FLOAT32, g.device)
        sums = Tensor(result.view, (lookup.outer, lookup.length, lookup.inner), FLOAT32)
        values = Tensor(contiguous(g.detach()).view, (lookup.outer, lookup.entries, lookup.inner), g.dtype)
        _spread_into(sums, values, lookup.spread_indices())
    g_shape = g.shape

    def rule(v: Tensor, _: Tensor) -> Tensor:
        return record(looked_up(v, lookup, g_shape, 0), (v, lambda w, _: spread(w, lookup, shape)))

    return record(result, (g, rule))


def _limit(x: Tensor) -> int:
    return x.device.capabilities.max_binding_bytes


def _spread(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    if _suits_search(lookup) and FLOAT32.nbytes(math.prod(shape)) <= _limit(g):
        return _searched(contiguous(g), lookup, shape)
    return _sorted(g, lookup, shape)


def _spread_into(result: Tensor, g: Tensor, indices: Tensor) -> None:
    """Enqueue the sums in parts, by indices that have all axes of the entries and do not count from the end."""
    parts = cut([g, indices])
    if parts is None and result.shape[0] > 1 and FLOAT32.nbytes(result.size) > _limit(g):
        parts = 0, max(1, _limit(g) // FLOAT32.nbytes(result.size // result.shape[0]))
    if parts is None:
        g = contiguous(narrowed(g))
        write_into(result, _spread(g, _lookup_in_binding(indices, result.shape), result.shape))
        return
    axis, length = parts
    for start in range(0, g.shape[axis], length):
        part, part_indices = (part_along(operand, axis, start, length) for operand in (g, indices))
        if axis != 1:
            compute_part(result, axis, start, length, partial(_spread_into, g=part, indices=part_indices))
        elif start == 0:
            _spread_into(result, part, part_indices)
        else:
            sums = empty(result.shape, FLOAT32, g.device)
            _spread_into(sums, part, part_indices)
            apply_in_place("add", "add", result, sums)


def _suits_search(lookup: Lookup) -> bool:
    """Return whether a search of all entries for each element is faster than sorting them, as in `SparseRows`."""
    outer, length, inner, count = lookup.outer, lookup.length, lookup.inner, lookup.entries
    entries = count if lookup.is_shared else outer * count * inner
    to_sort = entries * (66 + 11 * entries // 2048) + outer * count * inner
    return outer * length * inner * count <= 4 * to_sort + (1 << 18)


def _searched(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    result = empty(shape, FLOAT32, g.device)
    views = [g.view, lookup.indices.view, result.view]
    fixed = (result.size, lookup.entries, lookup.inner, lookup.length, *lookup.strides)
    for start in range(0, lookup.entries, _AT_ONCE):
        parameters = (*fixed, start, min(start + _AT_ONCE, lookup.entries))
        g.device.dispatch(cooperative("scatter"), views, -(-result.size // _THREADS), parameters)
    return result


def _sorted(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    from ..sparse import SparseRows  # which most programs do without

    outer, length, inner, count = lookup.outer, lookup.length, lookup.inner, lookup.entries
    if lookup.is_shared:
        rows = reshape(permute(reshape(g, (outer, count, inner)), (1, 0, 2)), (count, outer * inner))
        dense = SparseRows(reshape(lookup.indices, (count,)), rows, (length, outer * inner)).to_dense()
        return reshape(permute(reshape(dense, (length, outer, inner)), (1, 0, 2)), shape)
    positions = apply("indexing", "flat_place", lookup.indices, 0, length, count, inner, dtype=INT32)
    flat = SparseRows(reshape(positions, (-1,)), reshape(g, (-1,)), (outer * length * inner,))
    return reshape(flat.to_dense(), shape)

"""Which elements make up others, by index: the copy, and its reverse, sums in a fixed order."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from ..autograd import record
from ..runtime.dtypes import BOOL, FLOAT32, INT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty
from .creation import full
from .launch import Shape, apply, apply_in_place, contiguous, write_into
from .limits import compute_part, cut, fits, narrowed, part_along
from .shape import broadcast_to, permute, reshape, walk_over

__all__ = ["Lookup", "along", "looked_up", "of_each", "spread"]

_THREADS = 256
_AT_ONCE = 4096
"""Entries that an invocation of scatter.wgsl goes through."""


class Lookup(NamedTuple):
    """Which elements of (outer, length, inner) make up (outer, count, inner).

    Attributes:
        indices: int32, with strides along these three axes: 0 where it is the same.
        wraps: negative ones count from the end.
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
        """The same along the outer and inner axes."""
        return self.strides == (0, 1, 0)

    def spread_indices(self) -> Tensor:
        """The indices with all axes of the entries."""
        return walk_over(self.indices, (self.outer, self.entries, self.inner), self.strides)

    def settled(self) -> Lookup:
        """The same places, counted from the beginning."""
        if not self.wraps:
            return self
        return self._replace(indices=apply("indexing", "from_end", self.indices, self.length, dtype=INT32), wraps=False)


def along(index: Tensor, shape: Shape, axis: int, *, wraps: bool) -> Lookup:
    """One index for all elements at a place of an axis."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return Lookup(contiguous(index), outer, shape[axis], inner, index.size, (0, 1, 0), wraps)


def of_each(index: Tensor, shape: Shape, axis: int) -> Lookup:
    """An index for each element; `index` has the other tensor's shape but along the axis."""
    outer, inner, count = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), index.shape[axis]
    return Lookup(contiguous(index), outer, shape[axis], inner, count, (count * inner, inner, 1), wraps=True)


def looked_up(x: Tensor, lookup: Lookup, shape: Shape, missing: int) -> Tensor:
    """Enqueue the copy. `missing` is the word for an index that names nothing. Leaves no history."""
    if not x.size:
        return full(shape, math.nan if missing else 0, x.device, x.dtype)
    x = contiguous(x.detach())
    result = empty(shape, x.dtype, x.device)
    if fits(x.view, lookup.indices.view, result.view):
        _look_up(result, x, lookup, missing)
    else:
        values = Tensor(x.view, (lookup.outer, lookup.length, lookup.inner), x.dtype)
        found = Tensor(result.view, (lookup.outer, lookup.entries, lookup.inner), x.dtype)
        _look_up_into(found, values, lookup.settled().spread_indices(), missing)
    return result


def _look_up(result: Tensor, x: Tensor, lookup: Lookup, missing: int) -> None:
    parameters = (result.size, lookup.entries, lookup.inner, lookup.length, *lookup.strides, int(lookup.wraps), missing)
    views = [x.view, lookup.indices.view, result.view]
    x.device.dispatch(cooperative("gather"), views, -(-result.size // _THREADS), parameters)


def _look_up_into(result: Tensor, x: Tensor, indices: Tensor, missing: int) -> None:
    """Enqueue the copy in parts, by indices that have all axes of the result and do not count from the end."""
    parts = cut([result, indices])
    of_x = cut([x])
    if parts is None and of_x is None:
        x = contiguous(narrowed(x))
        _look_up(result, x, _of_shown(indices, x.shape), missing)
    elif parts is None and of_x is not None and of_x[0] == 1:
        _look_up_in_table_parts(result, x, indices, missing, of_x[1])
    else:
        axis, length = parts or of_x or (0, 1)
        for first in range(0, result.shape[axis], length):
            some = x if axis == 1 else part_along(x, axis, first, length)
            its_indices = part_along(indices, axis, first, length)
            compute = partial(_look_up_into, x=some, indices=its_indices, missing=missing)
            compute_part(result, axis, first, length, compute)


def _look_up_in_table_parts(result: Tensor, x: Tensor, indices: Tensor, missing: int, length: int) -> None:
    """Look in each part of the axis for what is there."""
    found: Tensor | None = None
    own = _without_repeats(indices)
    for first in range(0, x.shape[1], length):
        places = apply("indexing", "in_part", own, first, min(length, x.shape[1] - first), dtype=INT32)
        values = empty(result.shape, x.dtype, x.device)
        _look_up_into(values, part_along(x, 1, first, length), broadcast_to(places, indices.shape), missing)
        if found is not None:
            is_there = apply("compare", "less_equal_i32", 0, places, dtype=BOOL)
            values = apply("where", f"where_{x.dtype.wgsl}", is_there, values, found, dtype=x.dtype)
        found = values
    assert found is not None
    write_into(result, found)


def _without_repeats(x: Tensor) -> Tensor:
    """A tensor with axes of length 1 where it is the same all along."""
    strides = x.walk.strides
    return walk_over(x, tuple(size if stride else 1 for size, stride in zip(x.shape, strides, strict=True)), strides)


def _of_shown(indices: Tensor, shape: Shape) -> Lookup:
    """The lookup by indices over (outer, entries, inner), of which a kernel can be shown all."""
    own = _without_repeats(indices)
    is_shared = own.shape[0] == own.shape[2] == 1
    own = contiguous(narrowed(own if is_shared else indices))
    (outer, length, inner), count = shape, indices.shape[1]
    strides = (0, 1, 0) if is_shared else (count * inner, inner, 1)
    return Lookup(own, outer, length, inner, count, strides, wraps=False)


def spread(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    """Entries added up where the indices say; those that say nothing are left out. Gradient: g gathered, else 0."""
    lookup = lookup.settled()
    if not g.size or not math.prod(shape):
        result = full(shape, 0.0, g.device)
    elif fits(g.walk.view, lookup.indices.view) and FLOAT32.nbytes(math.prod(shape)) <= _limit(g):
        result = _spread(g.detach(), lookup, shape)
    else:
        result = empty(shape, FLOAT32, g.device)
        sums = Tensor(result.view, (lookup.outer, lookup.length, lookup.inner), FLOAT32)
        values = Tensor(contiguous(g.detach()).view, (lookup.outer, lookup.entries, lookup.inner), g.dtype)
        _spread_into(sums, values, lookup.spread_indices())
    given = g.shape

    def rule(v: Tensor, _: Tensor) -> Tensor:
        return record(looked_up(v, lookup, given, 0), (v, lambda w, _: spread(w, lookup, shape)))

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
        write_into(result, _spread(g, _of_shown(indices, result.shape), result.shape))
        return
    axis, length = parts
    for first in range(0, g.shape[axis], length):
        some, its_indices = (part_along(one, axis, first, length) for one in (g, indices))
        if axis != 1:
            compute_part(result, axis, first, length, partial(_spread_into, g=some, indices=its_indices))
        elif first == 0:
            _spread_into(result, some, its_indices)
        else:
            sums = empty(result.shape, FLOAT32, g.device)
            _spread_into(sums, some, its_indices)
            apply_in_place("add", "add", result, sums)


def _suits_search(lookup: Lookup) -> bool:
    """Each element may look through all entries, instead of sorting these; the figures are those of `SparseRows`."""
    outer, length, inner, count = lookup.outer, lookup.length, lookup.inner, lookup.entries
    entries = count if lookup.is_shared else outer * count * inner
    to_sort = entries * (66 + 11 * entries // 2048) + outer * count * inner
    return outer * length * inner * count <= 4 * to_sort + (1 << 18)


def _searched(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    result = empty(shape, FLOAT32, g.device)
    views = [g.view, lookup.indices.view, result.view]
    fixed = (result.size, lookup.entries, lookup.inner, lookup.length, *lookup.strides)
    for first in range(0, lookup.entries, _AT_ONCE):
        parameters = (*fixed, first, min(first + _AT_ONCE, lookup.entries))
        g.device.dispatch(cooperative("scatter"), views, -(-result.size // _THREADS), parameters)
    return result


def _sorted(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    from ..sparse import SparseRows  # which most programs do without

    outer, length, inner, count = lookup.outer, lookup.length, lookup.inner, lookup.entries
    if lookup.is_shared:
        rows = reshape(permute(reshape(g, (outer, count, inner)), (1, 0, 2)), (count, outer * inner))
        dense = SparseRows(reshape(lookup.indices, (count,)), rows, (length, outer * inner)).to_dense()
        return reshape(permute(reshape(dense, (length, outer, inner)), (1, 0, 2)), shape)
    places = apply("indexing", "flat_place", lookup.indices, 0, length, count, inner, dtype=INT32)
    flat = SparseRows(reshape(places, (-1,)), reshape(g, (-1,)), (outer * length * inner,))
    return reshape(flat.to_dense(), shape)

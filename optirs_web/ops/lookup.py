"""Which elements make up others, by index: the copy, and its reverse, sums in a fixed order."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..autograd import record
from ..runtime.dtypes import FLOAT32, INT32
from ..runtime.kernels import cooperative
from ..tensors import Tensor, empty
from .creation import full
from .launch import Shape, apply, contiguous
from .shape import permute, reshape

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
    parameters = (result.size, lookup.entries, lookup.inner, lookup.length, *lookup.strides, int(lookup.wraps), missing)
    views = [x.view, lookup.indices.view, result.view]
    x.device.dispatch(cooperative("gather"), views, -(-result.size // _THREADS), parameters)
    return result


def spread(g: Tensor, lookup: Lookup, shape: Shape) -> Tensor:
    """Entries added up where the indices say; those that say nothing are left out. Gradient: g gathered, else 0."""
    lookup = lookup.settled()
    if not g.size or not math.prod(shape):
        result = full(shape, 0.0, g.device)
    elif _suits_search(lookup):
        result = _searched(contiguous(g.detach()), lookup, shape)
    else:
        result = _sorted(g.detach(), lookup, shape)
    given = g.shape

    def rule(v: Tensor, _: Tensor) -> Tensor:
        return record(looked_up(v, lookup, given, 0), (v, lambda w, _: spread(w, lookup, shape)))

    return record(result, (g, rule))


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
    places = apply("indexing", "flat_place", lookup.indices, length, count, inner, dtype=INT32)
    flat = SparseRows(reshape(places, (-1,)), reshape(g, (-1,)), (outer * length * inner,))
    return reshape(flat.to_dense(), shape)

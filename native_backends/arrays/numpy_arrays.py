"""NumPy as `xp` of the routines: the names of `numpy`, and what it does differently from JAX.

Bindings are bytes of device memory: they are viewed as their type and written in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np

from ...wgsl import rule_shell, shell
from ...wgsl.python_dialects import NUMPY
from . import Parameters, numpy_rows, printed as _printed
from .numpy_codec import codec

__all__ = [
    "all_floats",
    "codec",
    "codes",
    "column_sums",
    "columns",
    "floats",
    "functions_of",
    "into",
    "ints",
    "is_somewhere",
    "masked",
    "may_have_nan",
    "over_entries",
    "over_live",
    "over_pairs",
    "owned",
    "placed",
    "precise",
    "printed",
    "product_less",
    "put",
    "put_at",
    "put_result",
    "rows_at",
    "runs",
    "scattered_sums",
    "segment_sums",
    "strided",
    "total_of",
    "totals",
    "words",
]

Array = np.ndarray[Any, Any]

functions_of = partial(_printed.functions_of, NUMPY)
printed = partial(_printed.printed, NUMPY)


def __getattr__(name: str) -> Any:
    value = globals()[name] = getattr(np, name)  # looked up here the next time
    return value


floats, ints, words = (methodcaller("view", dtype) for dtype in (np.float32, np.int32, np.uint32))
"""Return the bits as float32, int32, uint32."""


def codes(raw: Array, bits: int) -> Array:
    """Return the unsigned integers of 8 or 16 bits that are stored."""
    return raw.view(np.uint8 if bits == 8 else np.uint16)


def precise(array: Array) -> Array:
    """Return the elements as float64, which JAX does not have by default."""
    return array.astype(np.float64)


def into(out: Array, function: Callable[..., Array], *arguments: Any, **options: Any) -> Array:
    """Return what a function of the library computes, written to `out`."""
    return function(*arguments, out=out, **options)


def product_less(left: Array, right: Array, numbers: Array) -> Array:
    """Return left @ rightᵀ less a number for each row of `right`: one product, of matrices with one more column."""
    extended = []
    for matrices, column in (left, np.float32(1)), (right, -numbers):
        matrix = np.empty((*matrices.shape[:-1], matrices.shape[-1] + 1), np.float32)
        matrix[..., :-1] = matrices
        matrix[..., -1] = column
        extended.append(matrix)
    product: Array = extended[0] @ extended[1].swapaxes(-1, -2)
    return product


def masked(array: Array, mask: Array, value: float) -> Array:
    """Write a value where the mask is set, and return the array."""
    if mask.any():
        np.copyto(array, array.dtype.type(value), where=mask)
    return array


def put_result(old: Array, shape: Sequence[int], function: Callable[..., Array], *arguments: Any) -> Array:
    """Write what a function of the library computes, of this shape, to the first elements of a vector; return it."""
    function(*arguments, out=old[: math.prod(shape)].reshape(shape))
    return old


def put(old: Array, values: Array, start: int = 0) -> Array:
    """Write values, of any shape, in place of the elements of a vector from `start` on; return the vector."""
    if not np.may_share_memory(old, values):  # which were then computed there
        old[start : start + values.size].reshape(values.shape)[...] = values
    return old


def strided(
    array: Array, start: int, shape: Sequence[int], strides: Sequence[int], *, broadcast_axes: int = 0
) -> Array:
    """Return a view of a vector; strides are in elements. `broadcast_axes` is for JAX: a stride of 0 is free here."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, size * start, [size * stride for stride in strides])


def put_at(old: Array, indices: Array, values: Array, is_written: Array) -> Array:
    """Write the elements or rows of a vector or table at these indices, (count, ...), where the mask is set."""
    old[indices[is_written]] = values[is_written]
    return old


def placed(target: Array, fill: float, starts: Sequence[int], steps: Sequence[int], values: Array) -> Array:
    """Write values to a target, every so many elements along each axis, and `fill` to all others."""
    if values.shape != target.shape:
        target[...] = fill
    ends = (start + count * step for start, count, step in zip(starts, values.shape, steps, strict=True))
    target[tuple(map(slice, starts, ends, steps))] = values
    return target


def _flat(shape: tuple[int, int, int], indices: Array) -> Array:
    """Return the flat indices of elements of an array of this shape, from their indices along the middle axis."""
    outer, length, inner = shape
    rows: Array = np.arange(outer)[:, None, None] * length + indices
    rows *= inner
    return rows + np.arange(inner)


def scattered_sums(shape: tuple[int, int, int], indices: Array, values: Array) -> Array:
    """Return the sums, float64, of the values with the same index along the middle axis.

    Args:
        shape: (outer, length, inner), of the sums.
        indices: (outer, count, inner), or (1, count, 1). Values whose index is not within the length are left out.
        values: (outer, count, inner).
    """
    flat, is_inside = _flat(shape, indices), (indices >= 0) & (indices < shape[1])
    if not is_inside.all():
        is_inside = np.broadcast_to(is_inside, flat.shape)
        flat, values = flat[is_inside], values[is_inside]
    return np.bincount(flat.ravel(), values.ravel(), minlength=math.prod(shape)).reshape(shape)


def segment_sums(values: Array, is_head: Array, is_counted: Array, sums: Array) -> Array:
    """Write the sums of segments of rows to the rows of `sums` where these segments begin.

    Args:
        values: (count, columns).
        is_head: where a segment begins.
        is_counted: the rows that are in a segment: the first ones.
        sums: (count, columns).
    """
    heads = np.flatnonzero(is_head)
    if heads.size:
        sums[heads] = np.add.reduceat(values[: np.count_nonzero(is_counted)], heads, axis=0, dtype=np.float64)
    return sums


class Entry(NamedTuple):
    """An entry of a table, which belongs to a tensor.

    Attributes:
        number: of the entry.
        row: of the tensor in `tensor_scalars`.
        members: of the entry, the number of the tensor first.
    """

    number: int
    row: Array
    members: Sequence[int]

    def scalar(self, word: int) -> Any:
        """Return a member of the tensor's scalars, as float32."""
        return floats(self.row)[word]

    def array(self, array: Array, member: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """Return a view of a vector that begins where a member says."""
        return strided(array, self.members[member], shape, strides)


def entries(p: Parameters, table: Array, members: int, scalars: Array) -> Iterator[Entry]:
    """Yield the entries, of so many members, whose tensors take part.

    A kernel without a gate has word 0 alone, which says that the tensor is active.
    """
    rows = words(scalars).reshape(-1, p["row_words"])
    gate = p.get("gate_word", 0)
    for number, entry in enumerate(words(table).reshape(-1, members).tolist()):
        row = rows[entry[0]]
        if row[0] == 1 and row[gate] != 0:
            yield Entry(number, row, entry)


def over_entries(
    p: Parameters, table: Array, members: int, scalars: Array, function: Callable[[Entry], Sequence[Array]],
    *targets: tuple[Array, Callable[[Entry], int], Sequence[int]],
) -> tuple[Array, ...]:  # fmt: skip
    """Write the results of a function of each entry whose tensor takes part.

    Args:
        p: parameters of the kernel.
        table: of the entries.
        members: of an entry.
        scalars: of the tensors.
        function: returns an array for each target.
        targets: the vector, the first element of the result in it, and the strides of the result.

    Returns:
        The vectors.
    """
    for entry in entries(p, table, members, scalars):
        for (old, start, strides), values in zip(targets, function(entry), strict=True):
            target = strided(old, start(entry), values.shape, strides)
            if not np.may_share_memory(target, values):  # which were then computed there
                target[...] = values
    return tuple(old for old, _, _ in targets)


def runs(blocks: Array) -> Iterator[tuple[int, int, int]]:
    """Yield the tensor, first element and end of each run of blocks of one tensor."""
    tensor, size = words(blocks).reshape(-1, 2).T
    edges = np.flatnonzero(np.diff(tensor, prepend=tensor[0] + 1, append=tensor[-1] + 1))
    for first, end in itertools.pairwise(edges):
        yield int(tensor[first]), int(first) * shell.BLOCK, int(end - 1) * shell.BLOCK + int(size[end - 1])


def over_live(
    arena: Array, blocks: Array, tensors: Array, function: Callable[[Array], Sequence[Array]]
) -> tuple[Array, bool]:
    """Write the results of a function of the elements of each tensor that has a gradient, as `jax_arrays.over_live`."""
    is_live = words(tensors).reshape(-1, rule_shell.ENTRY_WORDS)[:, 1] & 1
    holds = True
    for tensor, first, end in runs(blocks):
        if is_live[tensor]:
            elements = arena[first:end]
            new, are_met = function(elements)
            if new is not elements:  # which were then computed there
                elements[...] = new
            holds = holds and bool(are_met.all())
    return arena, holds


# Pairs of rows, as those of attention.

_PAIRS = 1 << 16
"""Pairs whose scores are stored at once."""

_CAUSAL_ROWS = 32
"""Rows computed together under a causal mask: with fewer, fewer scores are computed that are hidden."""


class Block(NamedTuple):
    """Pairs that are computed at once: of some products, owned rows and other rows.

    Attributes:
        own: returns the owned rows of (outer, batch, rows, ...).
        other: returns the other rows of (outer, batch, rows, ...).
        pairs: returns the pairs of (outer, batch, rows, others).
        rows: the numbers of the owned rows.
    """

    own: Callable[[Array], Array]
    other: Callable[[Array], Array]
    pairs: Callable[[Array], Array]
    rows: slice

    def without_later(self, scores: Array, *, owns_queries: bool) -> Array:
        """Write -inf to scores, (..., others, owned), of queries with later keys, and return the scores."""
        rows = scores.shape[-1]
        # Pairs are hidden only with others of the same row numbers: the last of those met, or the first.
        corner = scores[..., self.rows, :] if owns_queries else scores[..., :rows, :]
        np.copyto(corner, -np.inf, where=_is_later(rows, owns_queries=owns_queries)[: corner.shape[-2]])
        return scores


@cache
def _is_later(rows: int, *, owns_queries: bool) -> Array:
    """Return a mask, (others, owned), of the pairs of `rows` queries and as many keys where the key is later."""
    is_later = ~np.tri(rows, dtype=bool)
    return np.ascontiguousarray(is_later.T) if owns_queries else is_later


def _blocks(p: Parameters, batch: tuple[int, int]) -> Iterator[Block]:
    rows, others = p["own_rows"], p["other_rows"]
    step = max(1, min(rows, _PAIRS // max(1, others), _CAUSAL_ROWS if p["is_causal"] else rows))
    inner = max(1, min(batch[1], _PAIRS // max(1, step * others)))
    outer = max(1, _PAIRS // max(1, step * others * batch[1])) if inner == batch[1] else 1
    firsts = itertools.product(range(0, batch[0], outer), range(0, batch[1], inner), range(0, rows, step))
    for a, b, first in firsts:
        end, met = min(first + step, rows), slice(0, others)
        if p["is_causal"]:
            met = slice(0, min(others, end)) if p["owns_queries"] else slice(min(first, others), others)
        products, own = (slice(a, a + outer), slice(b, b + inner)), slice(first, end)
        parts = (*products, own), (*products, met), (*products, own, met)
        yield Block(itemgetter(parts[0]), itemgetter(parts[1]), itemgetter(parts[2]), own)


def over_pairs(
    p: Parameters, batch: tuple[int, int], function: Callable[[Block], Sequence[Array]], *targets: Array
) -> Sequence[Array]:
    """Write the results of a function of blocks of pairs, for their owned rows, to targets; return these.

    Args:
        p: parameters of a kernel of attention.
        batch: outer and inner number of products.
        function: returns for each target (outer, batch, rows, ...) of the block.
        targets: (outer, batch, rows, ...).
    """
    for block in _blocks(p, batch):
        for target, values in zip(targets, function(block), strict=True):
            part = block.own(target)
            if not np.may_share_memory(part, values):  # which were then computed there
                part[...] = values
    return targets


def column_sums(tables: Array) -> Array:
    """Return the sums of the columns of contiguous tables, (..., rows, columns), as float32."""
    sums = numpy_rows.column_sums(tables.reshape(-1, *tables.shape[-2:]))
    return sums.reshape(*tables.shape[:-2], -1).astype(np.float32)


def may_have_nan(array: Array) -> bool:
    """Return whether an element is NaN."""
    return bool(np.isnan(array).any())


# Tables of tensors, as those of an optimizer.


columns = attrgetter("T")
"""Return the columns of rows, (rows, width), or the numbers of one, (width,)."""


all_floats = floats
"""Return the bits of columns as float32."""


def rows_at(rows: Array, numbers: Any) -> Array:
    """Return rows of a table, by number."""
    entries: Array = rows[numbers]
    return entries


is_somewhere = np.count_nonzero
"""Return how many elements of a mask are set."""


def owned(value: Any) -> Any:
    """Return a value that stays when what it is a view of is overwritten: functions may pass arguments through."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def total_of(name: str, values: Array, axis: int) -> Array:
    """Return the sums of a member of what was measured along an axis, float64, or the maxima if its name says so."""
    if name.startswith(rule_shell.MAXIMUM):
        maxima: Array = values.max(axis=axis, initial=0)
        return maxima
    sums: Array = values.sum(axis=axis, dtype=np.float64)
    return sums


def totals(names: Sequence[str], partials: Array, entries: Array | None) -> list[Any]:
    """Return the total of each column of partials as float32: of the blocks of each entry, or of all.

    Args:
        names: of the columns, which say whether a total is the largest value, not the sum.
        partials: (blocks, columns).
        entries: the table of tensors.
    """
    if entries is None:
        return [np.float32(total_of(name, column, 0)) for name, column in zip(names, partials.T, strict=True)]
    of_entries = np.empty((len(names), len(entries)), np.float32)
    for number, (first, blocks) in enumerate(entries[:, 2:4].tolist()):
        for name, column, total in zip(names, partials[first : first + blocks].T, of_entries, strict=True):
            total[number] = total_of(name, column, 0)
    return list(of_entries)

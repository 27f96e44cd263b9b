"""JAX as `xp` of the routines: the names of `jax.numpy`, and what it does differently from NumPy.

A buffer is a vector of 32-bit numbers. Functions here take any 32-bit type, and `put` and `put_windows`
give that of what they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...wgsl import rule_shell, shell
from ...wgsl.jax_dialect import JAX
from . import Parameters, printed as _printed

__all__ = [
    "all_floats",
    "as_type",
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
    "put_strided",
    "put_windows",
    "rows_at",
    "scattered_sums",
    "segment_sums",
    "strided",
    "total_of",
    "totals",
    "vecdot",
    "windows",
    "with_part",
    "words",
]


# Indices are int32 whether or not `jax_enable_x64` is set.
arange = partial(jnp.arange, dtype=jnp.int32)

functions_of = partial(_printed.functions_of, JAX)
printed = partial(_printed.printed, JAX)


def __getattr__(name: str) -> Any:
    value = globals()[name] = getattr(jnp, name)  # looked up here the next time
    return value


@cache
def codec() -> Mapping[str, Callable[..., Any]]:
    """Return the functions of ``shaders/lib/storage.wgsl``. Codes are integers of any length that holds them."""
    functions = _printed.codec(JAX)
    return {name: _of_codes(function) if name.startswith("from_") else function for name, function in functions.items()}


def _of_codes(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda codes, *largest: function(codes.astype(jnp.uint32), *largest)


def as_type(array: Array, dtype: Any) -> Array:
    """Return the bits as another type of as many."""
    return array if array.dtype == dtype else lax.bitcast_convert_type(array, dtype)


def floats(array: Array) -> Array:
    """Return the bits as float32."""
    return as_type(array, jnp.float32)


def ints(array: Array) -> Array:
    """Return the bits as int32."""
    return as_type(array, jnp.int32)


def words(array: Array) -> Array:
    """Return the bits as uint32: of 8 or 16-bit elements several in each."""
    count = 4 // array.dtype.itemsize
    return as_type(array if count == 1 else array.reshape(-1, count), jnp.uint32)


def codes(array: Array, bits: int) -> Array:
    """Return the unsigned integers of 8 or 16 bits that words hold, lower ones first."""
    return lax.bitcast_convert_type(array, jnp.uint8 if bits == 8 else jnp.uint16).reshape(-1)


def precise(array: Array) -> Array:
    """Return the elements, which stay float32: NumPy has float64 for what takes it."""
    return array


def into(out: Array, function: Callable[..., Array], *arguments: Any, **options: Any) -> Array:
    """Return what a function of the library computes, with the shape of `out`, where NumPy writes it."""
    return jnp.broadcast_to(function(*arguments, **options), out.shape)


def product_less(left: Array, right: Array, numbers: Array) -> Array:
    """Return left @ rightᵀ less a number for each row of `right`."""
    return left @ right.swapaxes(-1, -2) - numbers[..., None, :]


def masked(array: Array, mask: Array, value: float) -> Array:
    """Return the array with a value where the mask is set."""
    return jnp.where(mask, jnp.asarray(value, array.dtype), array)


def placed(target: Array, fill: float, starts: Sequence[int], steps: Sequence[int], values: Array) -> Array:
    """Return an array shaped like the target: values every so many elements along each axis, `fill` elsewhere."""
    if 0 in values.shape:
        return jnp.full(target.shape, fill, target.dtype)
    edges = [
        (start, size - start - (count - 1) * step - 1, step - 1)
        for start, size, count, step in zip(starts, target.shape, values.shape, steps, strict=True)
    ]
    return lax.pad(values, jnp.asarray(fill, target.dtype), edges)


def scattered_sums(shape: tuple[int, int, int], indices: Array, values: Array) -> Array:
    """Return the sums of the values with the same index along the middle axis.

    Args:
        shape: (outer, length, inner), of the sums.
        indices: (outer, count, inner), or (1, count, 1). Values whose index is not within the length are left out.
        values: (outer, count, inner).
    """
    is_inside = (indices >= 0) & (indices < shape[1])
    values, indices = jnp.where(is_inside, values, 0), jnp.where(is_inside, indices, 0)
    sums = jnp.zeros(shape, values.dtype)
    if indices.shape[::2] == (1, 1):
        return sums.at[:, indices.reshape(-1)].add(values)
    return sums.at[jnp.arange(shape[0])[:, None, None], indices, jnp.arange(shape[2])].add(values)


_SEGMENT = 64
"""Rows that are added up one after the other; their sums are then added up."""


def segment_sums(values: Array, is_head: Array, is_counted: Array, sums: Array) -> Array:
    """Return `sums` with those of segments of rows where these segments begin.

    Args:
        values: (count, columns).
        is_head: where a segment begins.
        is_counted: the rows that are in a segment.
        sums: (count, columns).
    """
    count = values.shape[0]
    numbers = lax.iota(jnp.int32, count)
    head = lax.cummax(jnp.where(is_head, numbers, 0))
    head_in_part = jnp.where(is_counted, jnp.maximum(head, numbers - numbers % _SEGMENT), count)
    of_parts = jnp.zeros_like(values).at[head_in_part].add(values, mode="drop")
    totals = jnp.zeros_like(values).at[head].add(of_parts, mode="drop", indices_are_sorted=True)
    return jnp.where(is_head[:, None], totals, sums)


def put(old: Array, values: Array, start: Any = 0) -> Array:
    """Return a vector with these values, of any shape, in place of its elements from `start` on."""
    flat = as_type(values.reshape(-1), old.dtype)
    if flat.size == old.size:
        return flat
    if not flat.size:
        return old
    at = np.int32(start) if isinstance(start, int) else start  # not of 64 bits where `jax_enable_x64` is set
    return lax.dynamic_update_slice(old, flat, (at,))


def put_result(old: Array, shape: Sequence[int], function: Callable[..., Array], *arguments: Any) -> Array:
    """Return a vector with what a function of the library computes, broadcast to a shape, as its first elements."""
    return put(old, jnp.broadcast_to(function(*arguments), tuple(shape)))


def strided(
    array: Array, start: Any, shape: Sequence[int], strides: Sequence[int], *, broadcast_axes: int = 0
) -> Array:
    """Return an array of the elements of a vector that a strided view of it has.

    Args:
        array: a vector.
        start: the first element; may be traced.
        shape: of the result.
        strides: in elements, not negative.
        broadcast_axes: how many of the first axes become 1 where their stride is 0.
    """
    if broadcast_axes:
        first = zip(shape[:broadcast_axes], strides, strict=False)
        shape = [*(size if stride else min(size, 1) for size, stride in first), *shape[broadcast_axes:]]
    if 0 in shape:
        return jnp.zeros(tuple(shape), array.dtype)
    axes = _moving(shape, strides)
    counts, steps = [shape[axis] for axis in axes], [strides[axis] for axis in axes]
    seen = _part(array, start, _extent(counts, steps))
    if _is_nested(counts, steps):
        seen = _cut(seen, counts, steps)
    else:
        seen = seen[_strided_offsets(counts, steps)]
    seen = seen.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    once = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    return jnp.broadcast_to(seen.reshape(once), tuple(shape))


def _moving(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the axes with a stride, that of the largest stride first."""
    axes = (axis for axis, size in enumerate(shape) if size > 1 and strides[axis])
    return sorted(axes, key=lambda axis: -strides[axis])


def _extent(counts: Sequence[int], steps: Sequence[int]) -> int:
    return 1 + sum((count - 1) * step for count, step in zip(counts, steps, strict=True))


def _is_nested(counts: Sequence[int], steps: Sequence[int]) -> bool:
    """Return whether the elements along later axes end before the next step of an earlier one."""
    return all(step >= _extent(counts[axis + 1 :], steps[axis + 1 :]) for axis, step in enumerate(steps))


def _part(array: Array, start: Any, size: int) -> Array:
    if size == array.size:
        return array
    return array[start : start + size] if isinstance(start, int) else lax.dynamic_slice(array, (start,), (size,))


def _cut(flat: Array, counts: Sequence[int], steps: Sequence[int]) -> Array:
    """Return slices of reshaped slices, one axis after the other."""
    for axis, (count, step) in enumerate(zip(counts, steps, strict=True)):
        extent = _extent(counts[axis + 1 :], steps[axis + 1 :])
        if extent == 1:
            return flat[..., ::step]
        missing = count * step - flat.shape[-1]
        if missing:
            flat = jnp.pad(flat, [(0, 0)] * axis + [(0, missing)])
        flat = flat.reshape(*flat.shape[:-1], count, step)[..., :extent]
    return flat.reshape(tuple(counts))


def _strided_offsets(counts: Sequence[int], steps: Sequence[int]) -> Any:
    return sum(
        (step * jnp.arange(count)).reshape(-1, *[1] * (len(counts) - 1 - axis))
        for axis, (count, step) in enumerate(zip(counts, steps, strict=True))
    )


def with_part(old: Array, start: Any, values: Array, strides: Sequence[int]) -> Array:
    """Return a vector with these values in place of its elements that are strided along their axes, from `start` on.

    Strides are nested: each is at least the extent of the elements along the axes with smaller ones.
    """
    if not values.size:
        return old
    axes = _moving(values.shape, strides)
    counts, steps = [values.shape[axis] for axis in axes], [strides[axis] for axis in axes]
    assert _is_nested(counts, steps)
    values = values.transpose(*(axis for axis in range(values.ndim) if axis not in axes), *axes).reshape(counts)
    new = _replaced(_part(old, start, _extent(counts, steps)), counts, steps, values)
    return lax.dynamic_update_slice(old, new, (start,))


def _replaced(flat: Array, counts: Sequence[int], steps: Sequence[int], values: Array) -> Array:
    """Return arrays (..., extent) with values, (..., *counts), in place of those at these steps along the last axis."""
    if not counts:
        return values[..., None]
    (count, *inner), (step, *inner_steps), outer = counts, steps, flat.shape[:-1]
    extent, missing = _extent(inner, inner_steps), count * step - flat.shape[-1]
    rows = jnp.pad(flat, [(0, 0)] * len(outer) + [(0, missing)]).reshape(*outer, count, step)
    new = _replaced(rows[..., :extent], inner, inner_steps, values)
    return jnp.concatenate([new, rows[..., extent:]], axis=-1).reshape(*outer, -1)[..., : flat.shape[-1]]


# Parts that begin where a table on the device says.


def windows(array: Array, starts: Array, size: int) -> Array:
    """Return (starts, size): elements from each start on. A part that is not within the vector means nothing."""
    return jax.vmap(lambda start: lax.dynamic_slice(array, (start,), (size,)))(starts.astype(jnp.int32))


# XLA makes a scatter to a single index a slice and its update; where the vector is itself a slice, it merges the two as
# if the index were within. So a single index that is left out is 0 instead, and is written with what it holds.


def put_at(old: Array, indices: Array, values: Array, is_written: Array) -> Array:
    """Return a vector or table with other elements or rows, (count, ...), at these indices, where the mask is set."""
    if indices.size > 1:
        return old.at[jnp.where(is_written, indices, old.shape[0])].set(values, mode="drop")
    index = jnp.where(is_written, indices, 0)
    kept = jnp.take(old, index, axis=0, mode="clip")
    return old.at[index].set(jnp.where(is_written[0], values, kept), mode="drop")


def put_windows(old: Array, starts: Array, values: Array, is_active: Array) -> Array:
    """Return a vector with these values, (starts, size), from each start on; parts that are not active are left out."""
    values, left_out = as_type(values, old.dtype), old.size
    if starts.size == 1:
        starts, left_out = jnp.where(is_active, starts, 0), 0
        values = jnp.where(is_active[0], values, windows(old, starts, values.shape[1]))
    offsets = jnp.where(is_active, starts.astype(jnp.int32), left_out)
    rows = lax.ScatterDimensionNumbers((1,), (), (0,))
    return lax.scatter(old, offsets[:, None], values, rows, unique_indices=True, mode="drop")


def put_strided(old: Array, starts: Array, values: Array, strides: Sequence[int], is_active: Array) -> Array:
    """Return a vector with these arrays, (starts, *shape), strided by `strides` from each start on. None overlap."""
    shape = values.shape[1:]
    if 0 in shape:
        return old
    axes = _moving(shape, strides)
    ordered = values.transpose(
        0, *(1 + axis for axis in range(len(shape)) if axis not in axes), *(1 + axis for axis in axes)
    )
    flat = ordered.reshape(values.shape[0], -1)
    counts, steps = [shape[axis] for axis in axes], [strides[axis] for axis in axes]
    if _extent(counts, steps) == math.prod(shape):
        return put_windows(old, starts, flat, is_active)
    offsets = starts.astype(jnp.int32)[:, None] + jnp.asarray(_strided_offsets(counts, steps), jnp.int32).reshape(-1)
    offsets = jnp.where(is_active[:, None], offsets, old.size)
    return old.at[offsets].set(as_type(flat, old.dtype), mode="drop", unique_indices=True)


# Tables of entries, and of blocks.


class Entry(NamedTuple):
    """An entry of a table, which belongs to a tensor; or all of them, with a further axis in front.

    Attributes:
        number: of the entry.
        row: of the tensor in `tensor_scalars`.
        members: of the entry, the number of the tensor first.
    """

    number: Array
    row: Array
    members: tuple[Array, ...]

    def scalar(self, word: int) -> Array:
        """Return a member of the tensor's scalars, as float32."""
        return floats(self.row)[..., word]

    def array(self, array: Array, member: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
        """Return what a vector holds from where a member says, with these strides."""
        if 0 in shape:
            return jnp.zeros(tuple(shape), array.dtype)
        start = self.members[member].astype(jnp.int32)
        return strided(lax.dynamic_slice(array, (start,), (_extent(shape, strides),)), 0, shape, strides)


def _columns(table: Array, count: int) -> Array:
    """Return the members, (count, entries), of a table of entries with so many words."""
    return words(table)[: table.size // count * count].reshape(-1, count).T


def over_entries(
    p: Parameters, table: Array, members: int, scalars: Array, function: Callable[[Entry], Sequence[Array]],
    *targets: tuple[Array, Callable[[Entry], Array], Sequence[int]],
) -> tuple[Array, ...]:  # fmt: skip
    """Return vectors with the results of a function of each entry whose tensor takes part.

    All entries are computed at once, and the results of those that do not take part are left out.

    Args:
        p: parameters of the kernel. Without a gate it has word 0 alone, which says that the tensor is active.
        table: of the entries.
        members: of an entry.
        scalars: of the tensors.
        function: returns an array for each target.
        targets: the vector, the first element of the result in it, and the strides of the result.
    """
    columns = tuple(_columns(table, members))
    rows = _columns(scalars, p["row_words"]).T
    rows = jnp.take(rows, columns[0], axis=0, mode="clip")
    entries = Entry(lax.iota(jnp.uint32, columns[0].size), rows, columns)
    is_active = (rows[:, 0] == 1) & (rows[:, p.get("gate_word", 0)] != 0)
    return tuple(
        put_strided(old, start(entries), values, strides, is_active)
        for (old, start, strides), values in zip(targets, jax.vmap(function)(entries), strict=True)
    )


def over_live(
    arena: Array, blocks: Array, tensors: Array, function: Callable[[Array], Sequence[Array]]
) -> tuple[Array, Array]:
    """Return an arena with the results of a function of the elements of the tensors that have a gradient.

    The function is called with all elements, (blocks, BLOCK), and its results for other tensors are left out.

    Args:
        arena: the elements of all tensors.
        blocks: the table of its blocks.
        tensors: the table of its tensors.
        function: returns the new elements, and for each whether a condition holds.

    Returns:
        The arena, and whether the condition holds for all elements of these tensors.
    """
    tensor = _columns(blocks, 2)[0]
    is_live = (jnp.take(_columns(tensors, rule_shell.ENTRY_WORDS)[1], tensor, mode="clip") & 1)[:, None] != 0
    elements = arena[: tensor.size * shell.BLOCK].reshape(-1, shell.BLOCK)
    new, are_met = function(elements)
    return put(arena, jnp.where(is_live, new, elements)), (are_met | ~is_live).all()


# Pairs of rows, as those of attention.

_PAIRS = 1 << 22
"""Pairs whose scores are stored at once."""


class Block(NamedTuple):
    """Pairs that are computed at once: of all products and other rows, and of some owned rows."""

    first: Any
    row_count: int

    def own(self, array: Array) -> Array:
        """Return the owned rows of (outer, batch, rows, ...)."""
        if self.row_count == array.shape[2]:
            return array
        return lax.dynamic_slice_in_dim(array, self.first, self.row_count, 2)

    def other(self, array: Array) -> Array:
        """Return the other rows of (outer, batch, rows, ...)."""
        return array

    def pairs(self, array: Array) -> Array:
        """Return the pairs of (outer, batch, rows, others)."""
        return self.own(array)

    def without_later(self, scores: Array, *, owns_queries: bool) -> Array:
        """Return scores, (..., others, owned), with -inf for queries with later keys."""
        others, own = jnp.arange(scores.shape[-2])[:, None], self.first + jnp.arange(self.row_count)
        return jnp.where(others > own if owns_queries else others < own, -jnp.inf, scores)


def over_pairs(
    p: Parameters, batch: tuple[int, int], function: Callable[[Block], Sequence[Array]], *targets: Array
) -> Sequence[Array]:
    """Return targets with the results of a function of blocks of pairs, for their owned rows.

    Args:
        p: parameters of a kernel of attention.
        batch: outer and inner number of products.
        function: returns for each target (outer, batch, rows, ...) of the block, or 1 for an axis of the batch.
        targets: (outer, batch, rows, ...).
    """
    rows = p["own_rows"]
    count = max(1, min(rows, _PAIRS // max(1, batch[0] * batch[1] * p["other_rows"])))

    def results(first: Any) -> Sequence[Array]:
        return [jnp.broadcast_to(values, (*batch, *values.shape[2:])) for values in function(Block(first, count))]

    if count == rows:
        return results(0)

    def step(number: Array, targets: Sequence[Array]) -> Sequence[Array]:
        first = jnp.minimum(number * count, rows - count)
        pairs = zip(targets, results(first), strict=True)
        return [lax.dynamic_update_slice_in_dim(target, values, first, 2) for target, values in pairs]

    written: Sequence[Array] = lax.fori_loop(0, -(-rows // count), step, list(targets))
    return written


def column_sums(tables: Array) -> Array:
    """Return the sums of the columns of tables, (..., rows, columns)."""
    return tables.sum(axis=-2)


def vecdot(a: Array, b: Array) -> Array:
    """Return the sums of products along the last axis, in float32 whatever the precision of products is."""
    return (a * b).sum(axis=-1)


def may_have_nan(array: Array) -> bool:
    """Return True: the elements are not known yet."""
    return True


# Tables of tensors, as those of an optimizer.

_MOST_COMPARED = 1 << 20
"""Comparisons of numbers of rows that are sooner made than a gather."""


def columns(rows: Array) -> list[Array]:
    """Return the columns of rows, (rows, width), or the numbers of one, (width,)."""
    return [rows[..., number] for number in range(rows.shape[-1])]


def all_floats(columns: Sequence[Array]) -> list[Array]:
    """Return the bits of columns as float32."""
    return [floats(column) for column in columns]


def rows_at(rows: Any, numbers: Any) -> Any:
    """Return rows of a table, by number; compared with all, as long as that is little: XLA gathers slowly."""
    if isinstance(rows, np.ndarray) and isinstance(numbers, np.ndarray):
        return rows[np.minimum(numbers, len(rows) - 1)]
    if rows.ndim == 1 or rows.shape[0] * numbers.size > _MOST_COMPARED:
        return jnp.take(rows, numbers, axis=0, mode="clip")
    is_row = numbers.reshape(-1, 1, 1) == np.arange(rows.shape[0], dtype=np.uint32).reshape(1, -1, 1)
    return as_type(jnp.where(is_row, words(rows), np.uint32(0)).max(axis=1), rows.dtype)


def is_somewhere(mask: Any) -> bool:
    """Return whether a mask may be set somewhere, as all may here."""
    return True


def owned(value: Any) -> Any:
    """Return a value that stays when what it is a view of is overwritten, as all do here."""
    return value


def total_of(name: str, values: Array, axis: int) -> Array:
    """Return the sums of a member of what was measured along an axis, or the maxima if its name says so.

    Sums are made in pieces: one of many float32 one by one would drift.
    """
    if name.startswith(rule_shell.MAXIMUM):
        return values.max(axis=axis, initial=0)
    while values.shape[axis] > 256:
        size, pieces = values.shape[axis], -(-values.shape[axis] // 128)
        padding = [(0, pieces * 128 - size if number == axis else 0) for number in range(values.ndim)]
        split = (*values.shape[:axis], pieces, 128, *values.shape[axis + 1 :])
        values = jnp.pad(values, padding).reshape(split).sum(axis=axis + 1)
    return values.sum(axis=axis)


def totals(names: Sequence[str], partials: Array, entries: Any) -> list[Array]:
    """Return the total of each column of partials: of the blocks of each entry, or of all.

    Args:
        names: of the columns, which say whether a total is the largest value, not the sum.
        partials: (blocks, columns).
        entries: the table of tensors.
    """
    if isinstance(entries, np.ndarray):
        return _totals_of_known(names, partials, entries)
    if entries is not None:
        number = lax.iota(np.uint32, partials.shape[0])
        first, blocks = entries[:, 2:3, None], entries[:, 3:4, None]
        partials = jnp.where((number[:, None] >= first) & (number[:, None] < first + blocks), partials, np.float32(0))
    return [total_of(name, partials[..., number], partials.ndim - 2) for number, name in enumerate(names)]


def _totals_of_known(names: Sequence[str], partials: Array, entries: np.ndarray[Any, Any]) -> list[Array]:
    """`totals` where it is known which blocks each tensor has: those of as many blocks are one array."""
    order = np.argsort(entries[:, 2], kind="stable")
    first, blocks = entries[order, 2].astype(np.int64), entries[order, 3].astype(np.int64)
    is_next = (blocks[1:] == blocks[:-1]) & (first[1:] == first[:-1] + blocks[:-1])
    begins = np.flatnonzero(np.concatenate([[True], ~is_next]))
    parts = []
    for begin, end in zip(begins, [*begins[1:], order.size], strict=True):
        of_part = partials[first[begin] : first[begin] + (end - begin) * blocks[begin]]
        parts.append(of_part.reshape(end - begin, blocks[begin], len(names)))
    sums = [
        jnp.concatenate([total_of(name, part[:, :, number], 1) for part in parts]) for number, name in enumerate(names)
    ]
    return columns(rows_at(jnp.stack(sums, axis=1), np.argsort(order)))

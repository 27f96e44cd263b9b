"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....kernel import Kernel, Kind
from ....lower.arrays import Reductions, lowered, table_shapes
from ....runtime.form_kernels import FormKernel
from ....runtime.kernels import SourceKernel
from ....wgsl.python_dialects import NUMPY
from ...arrays.numpy_rows import column_maxima, column_sums, of_rows, outer, row_blocks, row_maxima, row_sums
from .library import DTYPES, REPLACEMENTS
from .windows import bind_windows

__all__ = ["bind_form", "replacement_of"]

Array = np.ndarray[Any, Any]

_BEGIN = {rank: np.zeros((1,) * rank, np.uint32) for rank in (2, 3)}
"""The first column of rows that are whole, by number of axes."""
_NARROW = 32
"""Rows next to each other up to which strided ones are copied to be contiguous: NumPy loops over so many elements."""


def _taken(table: Array, columns: Array) -> Array:
    outer, _, *inner = table.shape  # NumPy's take_along_axis does the same, and takes longer over few rows
    axes = [1] * len(inner)
    taken: Array = table[np.arange(outer).reshape(-1, 1, *axes), columns, *(np.arange(count) for count in inner)]
    return taken


def _argmax(table: Array) -> Array:
    columns: Array = np.argmax(table, axis=1, keepdims=True).astype(np.uint32)
    return columns


def _argmin(table: Array) -> Array:
    columns: Array = np.argmin(table, axis=1, keepdims=True).astype(np.uint32)
    return columns


_OF_ROWS = Reductions(
    sum=lambda table: row_sums(table).astype(np.float32)[:, None],
    max=lambda table: row_maxima(table)[:, None],
    argmax=_argmax,
    argmin=_argmin,
    taken=_taken,
    dot=lambda left, right: np.vecdot(left, right)[:, None],
    across=lambda numbers, out: of_rows(numbers[:, 0], out),
    outer=lambda numbers, row, out: outer(numbers[:, 0], row[0], out),
)
_OF_COLUMNS = Reductions(
    sum=lambda tables: column_sums(tables).astype(np.float32)[:, None],
    max=column_maxima,
    argmax=_argmax,
    argmin=_argmin,
    taken=_taken,
    dot=lambda left, right: column_sums(left * right).astype(np.float32)[:, None],
    across=lambda numbers, out: numbers,
    outer=np.multiply,
)


def bind_form(kernel: FormKernel, arrays: Sequence[Array], values: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that runs the kernel over these buffers."""
    if kernel.layout == "windows":
        return bind_windows(kernel.form, arrays, values)
    form, columns, inner = kernel.form, values["columns"], values["inner"]
    numbers = [DTYPES[type_](values[name]) for name, type_ in form.numbers.items()]
    if kernel.layout == "segments":
        return partial(_run_segments, form, arrays, values, numbers)
    space = (values["rows"], columns) if inner == 1 else (values["rows"] // inner, columns, inner)
    shapes = table_shapes(space)
    tables = _tables(form, arrays, shapes)
    by_rows = [False, *(kind != "column" for kind in form.kinds)]
    return partial(_run, form, [_BEGIN[len(space)], *tables], numbers, space, by_rows)


def _run_segments(form: Kernel, arrays: Sequence[Array], values: Mapping[str, Any], numbers: Sequence[Any]) -> None:
    """Reduce segments of rows: those that are whole, then the rest of each row."""
    columns, inner, segment = values["columns"], values["inner"], values["segment"]
    segments, whole = -(-columns // segment), columns // segment
    outer = values["rows"] // (segments * inner)
    shapes = {**table_shapes((outer, columns, inner)), "row": (outer, segments, inner)}
    tables = _tables(form, arrays, shapes)
    for first, end, count in ((0, whole, whole), (whole, segments, 1)):
        if first == end:
            continue
        length = min(segment, columns - first * segment)
        space = (outer * count, length) if inner == 1 else (outer * count, length, inner)
        parts = []
        for table, kind in zip(tables, form.kinds, strict=True):
            if kind == "row":
                part = table[:, first:end]
            else:
                part = table[:, first * segment : first * segment + count * length]
                part = part if kind == "element" else part.repeat(outer, axis=0)
            parts.append(part)
        shaped = [part.reshape(*space[:1], -1, *part.shape[2 : len(space)]) for part in parts]
        begin = np.tile(np.arange(first, end, dtype=np.uint32) * segment, outer).reshape(
            -1, *_BEGIN[len(space)].shape[1:]
        )
        _run(form, [begin, *shaped], numbers, space, [True] * (1 + len(shaped)))
        for part, result, kind in zip(parts, shaped, form.kinds, strict=True):
            if kind == "row" and not np.may_share_memory(part, result):
                part[...] = result.reshape(part.shape)


def _run(
    form: Kernel, tables: Sequence[Array], numbers: Sequence[Any], space: tuple[int, ...], by_rows: Sequence[bool]
) -> None:
    """Compute in blocks of rows that fit a core's cache; at once where nothing is computed for elements.

    Args:
        form: the kernel.
        tables: the column at which each row begins, what the kernel reads and what it writes, with the axes of the
            index space, of length 1 where they lack one.
        numbers: its numbers.
        space: (rows, columns), or (outer, columns, inner) where the rows are along two axes.
        by_rows: for each table, whether it has the first of the axes.
    """
    read_count, columns, inner = 1 + len(form.reads), space[1], math.prod(space[2:])
    compute, memory_count = lowered(form, NUMPY, _OF_ROWS)
    of_elements = [number for number, kind in enumerate(form.kinds[len(form.reads) :]) if kind == "element"]
    keeps_elements = bool(memory_count or of_elements)
    is_copied = keeps_elements and 1 < inner <= _NARROW
    if inner > 1 and not is_copied:
        compute, _ = lowered(form, NUMPY, _OF_COLUMNS)
    memory: list[Array] = []
    for rows in row_blocks(space[0], columns * inner) if keeps_elements else [slice(0, space[0])]:
        parts = [table[rows] if is_own else table for table, is_own in zip(tables, by_rows, strict=True)]
        shape = min(rows.stop, space[0]) - rows.start, *space[1:]
        if is_copied:
            parts = [part.swapaxes(1, 2) for part in parts]
            parts[:read_count] = [_as_rows(part, inner) for part in parts[:read_count]]
            shape = shape[0] * inner, columns
        targets = parts[read_count:]
        memory = memory or [np.empty(shape, np.float32) for _ in range(memory_count + is_copied * len(of_elements))]
        free = [array[: shape[0]] for array in memory]
        outs = [free.pop() if is_copied else targets[number] for number in of_elements]
        results = compute(columns, *parts[:read_count], *numbers, *outs, *free)
        elsewhere = [
            (target, result.copy() if len(outs) > 1 else result)  # it may be in the array of another result
            for target, result in zip(targets, results, strict=True)
            if result is not target
        ]
        for target, result in elsewhere:
            target[...] = result.reshape(target.shape)


def _as_rows(table: Array, inner: int) -> Array:
    """Return (outer, inner, columns) as (outer inner, columns).

    A row for all of `inner` is repeated, unless it is the only one, which broadcasts.
    """
    if table.shape[1] < inner and table.shape[0] > 1:
        table = table.repeat(inner, axis=1)
    return table.reshape(-1, table.shape[2])


def _tables(form: Kernel, arrays: Sequence[Array], shapes: Mapping[Kind, tuple[int, ...]]) -> list[Array]:
    """Return the arrays with the axes of the index space."""
    types = [*(read.type for read in form.reads), *(write.type for write in form.writes)]
    return [
        array.view(DTYPES[type_])[: math.prod(shapes[kind])].reshape(shapes[kind])
        for array, type_, kind in zip(arrays, types, form.kinds, strict=True)
    ]


def replacement_of(kernel: SourceKernel) -> Callable[..., Any]:
    """Return what runs in the place of a kernel's shader; see `library`."""
    if isinstance(kernel, FormKernel):
        return lambda values, *arrays: bind_form(kernel, arrays, values)()
    return REPLACEMENTS[kernel.name]

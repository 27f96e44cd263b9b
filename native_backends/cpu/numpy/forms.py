"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....lower.arrays import Reductions, lowered, table_shapes
from ....runtime.form_kernels import FormKernel
from ....runtime.kernels import SourceKernel
from ....wgsl.python_dialects import NUMPY
from ...arrays.numpy_rows import column_maxima, column_sums, of_rows, outer, row_blocks, row_maxima, row_sums
from .library import REPLACEMENTS

__all__ = ["bind_form", "replacement_of"]

Array = np.ndarray[Any, Any]

_NARROW = 32
"""Rows next to each other up to which strided ones are copied to be contiguous: NumPy loops over so many elements."""

_OF_ROWS = Reductions(
    sum=lambda table: row_sums(table).astype(np.float32)[:, None],
    max=lambda table: row_maxima(table)[:, None],
    dot=lambda left, right: np.vecdot(left, right)[:, None],
    across=lambda numbers, columns, out: of_rows(numbers[:, 0], columns, out),
    outer=lambda numbers, row, out: outer(numbers[:, 0], row[0], out),
)
_OF_COLUMNS = Reductions(
    sum=lambda tables: column_sums(tables).astype(np.float32)[:, None],
    max=column_maxima,
    dot=lambda left, right: column_sums(left * right).astype(np.float32)[:, None],
    across=lambda numbers, columns, out: numbers,
    outer=np.multiply,
)


def bind_form(kernel: FormKernel, arrays: Sequence[Array], values: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that runs the kernel over these buffers, in blocks of rows that fit a core's cache."""
    form, columns, inner = kernel.form, values["columns"], values["inner"]
    space = (values["rows"], columns) if inner == 1 else (values["rows"] // inner, columns, inner)
    shapes = table_shapes(space)
    read, written = form.kinds
    kinds = (*read, *written)
    tables = [_table(array, shapes[kind]) for array, kind in zip(arrays, kinds, strict=True)]
    read_count = len(read)
    of_elements = [number for number, kind in enumerate(written) if kind == "element"]
    numbers = [np.float32(values[name]) for name in form.numbers]
    is_copied = 1 < inner <= _NARROW
    compute, memory_count = lowered(form, NUMPY, _OF_COLUMNS if inner > _NARROW else _OF_ROWS)

    def run() -> None:
        memory: list[Array] = []
        for rows in row_blocks(space[0], columns * inner):
            count = min(rows.stop, space[0]) - rows.start
            parts = [table if kind == "column" else table[rows] for table, kind in zip(tables, kinds, strict=True)]
            shape = count, *space[1:]
            if is_copied:
                parts = [part.swapaxes(1, 2) for part in parts]
                parts[:read_count] = [part.reshape(-1, part.shape[2]) for part in parts[:read_count]]
                shape = count * inner, columns
            targets = parts[read_count:]
            memory = memory or [np.empty(shape, np.float32) for _ in range(memory_count + is_copied * len(of_elements))]
            free = [array[: shape[0]] for array in memory]
            outs = [free.pop() if is_copied else targets[number] for number in of_elements]
            for target, result in zip(
                targets, compute(columns, *parts[:read_count], *numbers, *outs, *free), strict=True
            ):
                if result is not target:
                    target[...] = result.reshape(target.shape)

    return run


def _table(array: Array, shape: tuple[int, ...]) -> Array:
    return array.view(np.float32)[: math.prod(shape)].reshape(shape)


def replacement_of(kernel: SourceKernel) -> Callable[..., Any]:
    """Return what runs in the place of a kernel's shader; see `library`."""
    if isinstance(kernel, FormKernel):
        return lambda values, *arrays: bind_form(kernel, arrays, values)()
    return REPLACEMENTS[kernel.name]

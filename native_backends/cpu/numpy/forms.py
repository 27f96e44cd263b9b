"""Kernels in the form of `optirs_web.kernel` over the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....lower.arrays import Reductions, lowered
from ....runtime.form_kernels import FormKernel
from ....wgsl.python_dialects import NUMPY
from ...arrays.numpy_rows import column_maxima, column_sums, of_rows, row_blocks, row_maxima, row_sums

__all__ = ["bind_form"]

Array = np.ndarray[Any, Any]

_NARROW = 32
"""Rows next to each other up to which strided ones are copied to be contiguous: NumPy loops over so many elements."""

_OF_ROWS = Reductions(
    sum=lambda table: row_sums(table).astype(np.float32)[:, None],
    max=lambda table: row_maxima(table)[:, None],
    across=lambda numbers, columns: of_rows(numbers[:, 0], columns),
)
_OF_COLUMNS = Reductions(
    sum=lambda tables: column_sums(tables).astype(np.float32)[:, None],
    max=column_maxima,
    across=lambda numbers, _: numbers,
)


def bind_form(kernel: FormKernel, arrays: Sequence[Array], values: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that runs the kernel over these buffers, in blocks of rows that fit a core's cache."""
    rows, columns, inner = values["rows"], values["columns"], values["inner"]
    shape = (rows, columns) if inner == 1 else (rows // inner, columns, inner)
    tables = [array.view(np.float32)[: rows * columns].reshape(shape) for array in arrays]
    read_count = len(kernel.form.reads)
    is_copied = 1 < inner <= _NARROW
    compute = lowered(kernel.form, NUMPY, _OF_COLUMNS if inner > _NARROW else _OF_ROWS)

    def run() -> None:
        for block in row_blocks(shape[0], columns * inner):
            blocks = [table[block] for table in tables]
            operands, outs = blocks[:read_count], blocks[read_count:]
            targets = outs
            if is_copied:
                operands = [array.swapaxes(1, 2).reshape(-1, columns) for array in operands]
                targets = [array.swapaxes(1, 2) for array in outs]
                outs = [np.empty((array.size // columns, columns), np.float32) for array in outs]
            for target, out, result in zip(targets, outs, compute(columns, *operands, *outs), strict=True):
                if is_copied or result is not out:
                    target[...] = result.reshape(target.shape)

    return run

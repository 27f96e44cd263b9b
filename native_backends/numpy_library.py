"""Library calls that take the place of cooperative kernels.

Each is called with the kernel's parameters and its bindings as bytes, and writes the bindings that the kernel writes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..wgsl import rule_shell, shell
from . import (
    numpy_attention,
    numpy_indexing,
    numpy_losses,
    numpy_matrices,
    numpy_normalization,
    numpy_reductions,
    numpy_sparse,
    numpy_storage,
    numpy_windows,
)

__all__ = ["REPLACEMENTS", "Array", "Parameters", "runs"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def runs(blocks: Array) -> Iterator[tuple[int, int, int]]:
    """Tensor, first element and end of each run of blocks of one tensor."""
    tensor, size = blocks.view(np.uint32).reshape(-1, 2).T
    edges = np.flatnonzero(np.diff(tensor, prepend=tensor[0] + 1, append=tensor[-1] + 1))
    for first, end in itertools.pairwise(edges):
        yield int(tensor[first]), int(first) * shell.BLOCK, int(end - 1) * shell.BLOCK + int(size[end - 1])


def _floats(raw: Array) -> Array:
    return raw.view(np.float32)


def _matmul(p: Parameters, a: Array, b: Array, c: Array) -> None:
    rows, columns, inner, within = p["rows"], p["columns"], p["inner"], p["batch_inner"]
    a_strides = [p["a_outer_stride"], p["a_batch_stride"], p["a_row_stride"], p["a_inner_stride"]]
    b_strides = [p["b_outer_stride"], p["b_batch_stride"], p["b_inner_stride"], p["b_column_stride"]]
    result = _floats(c)
    batch = (result.size // (rows * columns * within), within)
    left = as_strided(_floats(a)[p["a_start"] :], (*batch, rows, inner), [4 * one for one in a_strides])
    right = as_strided(_floats(b)[p["b_start"] :], (*batch, inner, columns), [4 * one for one in b_strides])
    shape = (*batch, rows, columns)
    np.matmul(left, right, out=result[: math.prod(shape)].reshape(shape))  # halves may have one element more


def _nonfinite(p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> None:
    live = tensors.view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)[:, 1] & 1
    values = _floats(grads)
    for tensor, first, end in runs(blocks):
        if live[tensor] and not np.isfinite(values[first:end]).all():
            found_inf.view(np.uint32)[0] = 1
            return


def _unscale(p: Parameters, grads: Array, blocks: Array, tensors: Array, scaler: Array, found_inf: Array) -> None:
    live = tensors.view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)[:, 1] & 1
    values, state = _floats(grads), _floats(scaler)
    for tensor, first, end in runs(blocks):
        if live[tensor]:
            if not np.isfinite(values[first:end]).all():
                found_inf.view(np.uint32)[0] = 1
                state[1] = 1
            values[first:end] *= np.float32(1) / state[0]


def _update_scale(p: Parameters, scaler: Array) -> None:
    scale, found_inf, tracker = state = _floats(scaler)
    if found_inf:
        state[:] = max(scale * np.float32(p["backoff_factor"]), np.finfo(np.float32).tiny), 0, 0
    elif tracker + 1 == p["growth_interval"]:
        grown = scale * np.float32(p["growth_factor"])
        state[:] = (grown if np.isfinite(grown) else scale), 0, 0
    else:
        state[2] = tracker + 1


REPLACEMENTS: dict[str, Callable[..., None]] = {
    **numpy_indexing.REPLACEMENTS,
    **numpy_attention.REPLACEMENTS,
    **numpy_losses.REPLACEMENTS,
    **numpy_matrices.REPLACEMENTS,
    **numpy_normalization.REPLACEMENTS,
    **numpy_sparse.REPLACEMENTS,
    **numpy_reductions.REPLACEMENTS,
    **numpy_storage.REPLACEMENTS,
    **numpy_windows.REPLACEMENTS,
    "matmul": _matmul,
    "nonfinite": _nonfinite,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

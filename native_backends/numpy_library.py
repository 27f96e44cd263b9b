"""Library calls that take the place of cooperative kernels.

Each is called with the kernel's parameters and its bindings as bytes, and writes the bindings that the kernel writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..runtime.schedules import reduce_on_plateau, run_on_host
from ..wgsl import rule_shell, shell
from . import numpy_matrices, numpy_sparse, numpy_storage

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
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    left = as_strided(_floats(a), (rows, inner), (4 * p["a_row_stride"], 4 * p["a_inner_stride"]))
    right = as_strided(_floats(b), (inner, columns), (4 * p["b_inner_stride"], 4 * p["b_column_stride"]))
    np.matmul(left, right, out=_floats(c)[: rows * columns].reshape(rows, columns))


def _sum(p: Parameters, values: Array, sums: Array) -> None:
    outer, length, inner, chunk = p["outer"], p["length"], p["inner"], p["chunk"]
    chunks = -(-length // chunk)
    table = _floats(values)[: outer * length * inner].reshape(outer, length, inner)
    result = _floats(sums)[: outer * chunks * inner].reshape(outer, chunks, inner)
    result[:] = np.add.reduceat(table, np.arange(0, length, chunk), axis=1, dtype=np.float64)


def _log_softmax(p: Parameters, values: Array, result: Array) -> None:
    shape = (p["rows"], p["columns"])
    table = _floats(values)[: shape[0] * shape[1]].reshape(shape)
    shifted = table - table.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    _floats(result)[: table.size].reshape(shape)[:] = shifted - log_sum


def _nonfinite(p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> None:
    live = tensors.view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)[:, 1] & 1
    values = _floats(grads)
    for tensor, first, end in runs(blocks):
        if live[tensor] and not np.isfinite(values[first:end]).all():
            found_inf.view(np.uint32)[0] = 1
            return


def _schedule(p: Parameters, rows: Array, layers: Array, pieces: Array, hyper: Array) -> None:
    run_on_host(p["stepping"], rows, layers, pieces, _floats(hyper))


def _plateau(p: Parameters, metric: Array, rows: Array, progress: Array, hyper: Array) -> None:
    reduce_on_plateau(p, float(_floats(metric)[0]), rows, _floats(progress), _floats(hyper))


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
    **numpy_matrices.REPLACEMENTS,
    **numpy_sparse.REPLACEMENTS,
    **numpy_storage.REPLACEMENTS,
    "matmul": _matmul,
    "sum": _sum,
    "log_softmax": _log_softmax,
    "nonfinite": _nonfinite,
    "plateau": _plateau,
    "schedule": _schedule,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

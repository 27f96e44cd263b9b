"""Library calls that take the place of cooperative kernels.

Each is called with the kernel's parameters and its bindings as bytes, and writes the bindings that the kernel writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....wgsl import rule_shell, shell
from ...arrays import numpy_arrays
from ...arrays.routines import ROUTINES
from . import (
    losses,
    normalization,
    reductions,
    windows,
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


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    **{name: partial(routine, numpy_arrays) for name, routine in ROUTINES.items()},
    **losses.REPLACEMENTS,
    **normalization.REPLACEMENTS,
    **reductions.REPLACEMENTS,
    **windows.REPLACEMENTS,
    "nonfinite": _nonfinite,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

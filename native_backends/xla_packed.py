"""Kernels over halves of words: what they read is decoded for the call, what they wrote is encoded after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .xla_arrays import as_type, floats, words
from .xla_bindings import Array, element_type
from .xla_maps import codec
from .xla_slots import halves, joined

__all__ = ["packed"]


def packed(
    kernel: Any, values: Mapping[str, Any], arrays: Sequence[Array], lower: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """What the bindings hold afterwards that the kernel writes.

    Args:
        kernel: of `runtime.packed_kernels`.
        values: its parameters.
        arrays: its bindings.
        lower: does so for its base.
    """
    base = kernel.base
    pairs = list(zip(base.bindings, kernel.kinds, strict=True))
    wide = [
        as_type(_wide(words(array), kind, binding.type), element_type(binding.type)) if kind else array
        for (binding, kind), array in zip(pairs, arrays, strict=True)
    ]
    results = lower(base, values, wide)
    kinds = [(binding, kind) for binding, kind in pairs if binding.writes]
    return tuple(
        _narrow(result, kind, binding.type) if kind else result
        for (binding, kind), result in zip(kinds, results, strict=True)
    )


def _wide(packed_words: Array, kind: str, type_: str) -> Array:
    codes = halves(packed_words)
    return codec()[f"from_{kind}"](codes) if type_ == "array<f32>" else codes


def _narrow(values: Array, kind: str, type_: str) -> Array:
    if type_ != "array<f32>":
        return joined(as_type(values, np.uint32))
    return joined(codec()[f"to_{kind}"](floats(values)))

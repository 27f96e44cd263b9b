"""Kernels over packed 16-bit elements, in JAX: decoded for the call, and what was written is encoded after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..arrays import jax_arrays as xp
from ..arrays.storage import narrowed, widened
from .bindings import Array, element_type

__all__ = ["packed"]


def packed(
    kernel: Any, values: Mapping[str, Any], arrays: Sequence[Array], lower: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Return the new contents of the bindings that the kernel writes.

    Args:
        kernel: of `runtime.packed_kernels`.
        values: its parameters.
        arrays: its bindings.
        lower: does so for its base.
    """
    base = kernel.base
    pairs = list(zip(base.bindings, kernel.kinds, strict=True))
    wide = [
        xp.as_type(widened(xp, array, kind, binding.type), element_type(binding.type)) if kind else array
        for (binding, kind), array in zip(pairs, arrays, strict=True)
    ]
    results = lower(base, values, wide)
    kinds = [(binding, kind) for binding, kind in pairs if binding.writes]
    return tuple(
        xp.words(narrowed(xp, result, kind, binding.type)) if kind else result
        for (binding, kind), result in zip(kinds, results, strict=True)
    )

"""The element types of kernels' bindings, and sums and scans over elements."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["DTYPES", "Array", "element_type", "last_marked", "total_of"]

Array = Any
"""A jax.Array, or a tracer of one."""

DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}


def element_type(type_: str) -> Any:
    """Return the NumPy type of a binding's elements, by the WGSL type; uint32 (words) for structs."""
    inner = type_.removeprefix("array<").removesuffix(">")
    inner = inner.partition(",")[0].removeprefix("vec4<").removeprefix("vec2<").removesuffix(">")
    return DTYPES.get(inner, np.uint32)


def total_of(x: Array, axis: int = -1) -> Array:
    """The sum over an axis, in pieces: a sum of many f32 one by one would drift."""
    axis %= x.ndim
    while x.shape[axis] > 256:
        size, pieces = x.shape[axis], -(-x.shape[axis] // 128)
        padding = [(0, pieces * 128 - size if number == axis else 0) for number in range(x.ndim)]
        x = jnp.pad(x, padding).reshape(*x.shape[:axis], pieces, 128, *x.shape[axis + 1 :]).sum(axis=axis + 1)
    return x.sum(axis=axis)


def last_marked(marks: Array) -> Array:
    """Return for each element the number of the last mark up to it, or 0: marks are 1 + a number, or 0 for none."""
    numbers = jnp.where(marks > 0, lax.iota(np.int32, marks.size), 0)
    return jnp.maximum(marks[lax.cummax(numbers)] - 1, 0)

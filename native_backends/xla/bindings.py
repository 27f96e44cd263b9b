"""The element types of kernels' bindings."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DTYPES", "Array", "element_type"]

Array = Any
"""A jax.Array, or a tracer of one."""

DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}


def element_type(type_: str) -> Any:
    """Return the NumPy type of a binding's elements, by the WGSL type; uint32 (words) for structs."""
    inner = type_.removeprefix("array<").removesuffix(">")
    inner = inner.partition(",")[0].removeprefix("vec4<").removeprefix("vec2<").removesuffix(">")
    return DTYPES.get(inner, np.uint32)

"""Library calls that take the place of cooperative kernels.

Each is called with the kernel's parameters and its bindings as bytes, and writes the bindings that the kernel writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays import numpy_arrays
from ...arrays.routines import ROUTINES

__all__ = ["CHUNK", "DTYPES", "MATMUL", "REPLACEMENTS", "Array", "Parameters"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]

CHUNK = 1 << 15
"""Elements handled at once: what is between the operations then stays in the cache."""

DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}
"""NumPy's type by that in WGSL."""

REPLACEMENTS: dict[str, Callable[..., Any]] = {
    name: partial(routine, numpy_arrays) for name, routine in ROUTINES.items()
}

MATMUL = REPLACEMENTS["matmul"]
"""The product, which `bind_kernel` binds to its arrays, not to parameters."""

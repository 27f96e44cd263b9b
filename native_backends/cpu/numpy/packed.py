"""Kernels over packed 16-bit elements, in NumPy: decoded for the call, and what was written is encoded after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.kernels import Kernel
from ...arrays import numpy_arrays as xp
from ...arrays.storage import narrowed, widened

__all__ = ["bind_packed"]

Array = np.ndarray[Any, Any]


def bind_packed(
    kernel: Any, arrays: Sequence[Array], parameters: bytes, bind: Callable[[Kernel, Sequence[Array], bytes], Any]
) -> Callable[[], None]:
    """A call that runs the kernel over these bytes.

    Args:
        kernel: of `runtime.packed_kernels`.
        arrays: the bytes of its bindings.
        parameters: of the launch.
        bind: makes the call of its base. What is decoded lives for the call alone.
    """
    base = kernel.base
    pairs = list(zip(base.bindings, kernel.kinds, strict=True))

    def run() -> None:
        wide: list[Array] = []
        for (binding, kind), raw in zip(pairs, arrays, strict=True):
            if not kind:
                wide.append(raw)
            elif binding.writes and base.overwrites:
                wide.append(np.empty(2 * raw.nbytes, np.uint8))
            else:
                wide.append(widened(xp, raw, kind, binding.type).view(np.uint8))
        bind(base, wide, parameters)()
        for (binding, kind), raw, values in zip(pairs, arrays, wide, strict=True):
            if kind and binding.writes:
                raw.view(np.uint16)[:] = narrowed(xp, values, kind, binding.type)

    return run

"""Kernels over halves of words, in NumPy: what they read is decoded for the call, what they wrote is encoded after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.kernels import Kernel
from .numpy_storage import codec

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
                wide.append(_wide(raw, kind, binding.type).view(np.uint8))
        bind(base, wide, parameters)()
        for (binding, kind), raw, values in zip(pairs, arrays, wide, strict=True):
            if kind and binding.writes:
                raw.view(np.uint16)[:] = _narrow(values, kind, binding.type)

    return run


def _wide(raw: Array, kind: str, type_: str) -> Array:
    if type_ != "array<f32>":
        return raw.view(np.uint16).astype(np.uint32)
    if kind == "float16":
        return raw.view(np.float16).astype(np.float32)
    wide: Array = np.zeros((raw.nbytes // 2, 2), np.uint16)
    wide[:, 1] = raw.view(np.uint16)
    return wide.view(np.float32).ravel()


def _narrow(values: Array, kind: str, type_: str) -> Any:
    if type_ != "array<f32>":
        return values.view(np.uint32)
    if kind == "float16":
        return values.view(np.float32).astype(np.float16).view(np.uint16)
    return codec()["to_bfloat16"](values.view(np.float32))

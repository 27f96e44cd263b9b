"""The kernels that reduce rows, in the form of `optirs_web.kernel`; ``shaders/rows`` has their functions."""

from __future__ import annotations

from ..kernel import Kernel, Online, Part, Read, Write

__all__ = ["LOG_SOFTMAX", "ROW_KERNELS", "SOFTMAX"]

_ROW = (-1,)


def _softmax(*last: str) -> Kernel:
    """Return the kernel whose result is the last of these parts."""
    parts = (
        Part("largest", over=_ROW, combine="max"),
        Part("shifted"),
        Part("power"),
        Part("sum", over=_ROW, online=Online("of_element", "joined")),
        Part("normalizer"),
        *map(Part, last),
    )
    return Kernel(last[-1], ("rows", "softmax"), 2, (Read("x"),), parts, (Write(last[-1], "result"),))


SOFTMAX = _softmax("softmax")
LOG_SOFTMAX = _softmax("log_normalizer", "log_softmax")

ROW_KERNELS = {kernel.name: kernel for kernel in (SOFTMAX, LOG_SOFTMAX)}
"""The row kernels by name."""

"""The kernels that reduce rows, in the form of `optirs_web.kernel`, and their launch."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel import Kernel, Online, Part, Read, Write
from ..runtime.form_kernels import form_kernel
from ..tensors import Tensor
from .launch import row_constants

__all__ = ["LOG_SOFTMAX", "ROW_KERNELS", "SOFTMAX", "launch_rows"]

_ROW = (-1,)
_FILE = ("rows", "softmax")
_X = (Read("x"),)
_NORMALIZED = (
    Part("largest", over=_ROW, combine="max"),
    Part("shifted"),
    Part("power"),
    Part("sum", over=_ROW, online=Online("of_element", "joined")),
    Part("normalizer"),
)

SOFTMAX = Kernel("softmax", _FILE, 2, _X, (*_NORMALIZED, Part("softmax")), (Write("softmax", "result"),))
LOG_SOFTMAX = Kernel(
    "log_softmax",
    _FILE,
    2,
    _X,
    (*_NORMALIZED, Part("log_normalizer"), Part("log_softmax")),
    (Write("log_softmax", "result"),),
)

ROW_KERNELS = {kernel.name: kernel for kernel in (SOFTMAX, LOG_SOFTMAX)}
"""The row kernels by name."""


def launch_rows(kernel: Kernel, results: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
    """Enqueue a kernel that reduces rows along the middle axis of arrays (outer, length, inner), all contiguous.

    Args:
        kernel: its form.
        results: the arrays that it writes, the first of that shape, which is not empty.
        operands: those that it reads.
    """
    outer, length, inner = results[0].shape
    device, rows = results[0].device, outer * inner
    constants, rows_per_workgroup = row_constants(device, length, rows, inner)
    views = [*(x.view for x in operands), *(x.view for x in results)]
    parameters = rows, length, inner, rows_per_workgroup
    device.dispatch(form_kernel(kernel, inner > 1, **constants), views, -(-rows // rows_per_workgroup), parameters)

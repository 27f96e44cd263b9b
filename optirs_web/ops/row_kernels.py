"""The kernels that reduce rows, in the form of `optirs_web.kernel`, and their launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ..kernel import Kernel, Online, Part, Read, Write
from ..runtime.form_kernels import form_kernel
from ..tensors import Tensor
from .launch import Shape, row_constants

__all__ = ["LOG_SOFTMAX", "ROW_KERNELS", "SOFTMAX", "launch_rows", "layer_norm_form", "layer_norm_grad_form"]

_ROW = (-1,)
_COLUMN = (-2,)
_FILE = ("rows", "softmax")
_X = (Read("x"),)
_NORMALIZED = (
    Part("largest", over=_ROW, combine="max"),
    Part("shifted"),
    Part("power"),
    Part("sum", over=_ROW),
    Part("normalizer"),
)
_LARGEST_AND_SUM = Online("no_exponentials", "with_element", {"largest": "share_of_largest", "sum": "share_of_sum"})

SOFTMAX = Kernel(
    "softmax",
    _FILE,
    2,
    _X,
    (*_NORMALIZED, Part("softmax")),
    (Write("softmax", "result"),),
    online=_LARGEST_AND_SUM,
)
LOG_SOFTMAX = Kernel(
    "log_softmax",
    _FILE,
    2,
    _X,
    (*_NORMALIZED, Part("log_normalizer"), Part("log_softmax")),
    (Write("log_softmax", "result"),),
    online=_LARGEST_AND_SUM,
)


@cache
def layer_norm_form(has_weight: bool, has_bias: bool) -> Kernel:
    """Return layer normalization with a weight and a bias or without."""
    weight, bias = Read("weight", over=_COLUMN), Read("bias", over=_COLUMN)
    return Kernel(
        "layer_norm",
        ("rows", "layer_norm"),
        2,
        (Read("x"), *[weight] * has_weight, *[bias] * has_bias),
        (
            Part("total", over=_ROW),
            Part("rounded_mean"),
            Part("deviation"),
            Part("deviations", over=_ROW),
            Part("left"),
            Part("mean"),
            Part("centred_deviation", gives="centred"),
            Part("squares", over=_ROW),
            Part("scale"),
            Part("weighted" if has_weight else "unweighted", gives="factor"),
            Part("normalized"),
            *[Part("moved", gives="normalized")] * has_bias,
        ),
        (Write("mean", "mean"), Write("scale", "scale"), Write("normalized", "result")),
        ("eps",),
        Online(
            "no_moments",
            "with_element",
            {"total": "share_of_total", "deviations": "", "squares": "share_of_squares"},
        ),
    )


@cache
def layer_norm_grad_form(has_weight: bool) -> Kernel:
    """Return the gradient of layer normalization by what is normalized, with a weight or without."""
    weight = Read("weight", over=_COLUMN)
    return Kernel(
        "layer_norm_grad",
        ("rows", "layer_norm"),
        2,
        (Read("grad"), Read("x"), *[weight] * has_weight, Read("mean", over=_ROW), Read("scale", over=_ROW)),
        (
            Part("centred"),
            Part("weighted" if has_weight else "unweighted", gives="factor"),
            Part("scaled"),
            Part("sum", over=_ROW),
            Part("products", over=_ROW),
            Part("slope"),
            Part("offset"),
            Part("input_grad"),
        ),
        (Write("input_grad", "result"),),
    )


ROW_KERNELS = {
    kernel.name: kernel for kernel in (SOFTMAX, LOG_SOFTMAX, layer_norm_form(True, True), layer_norm_grad_form(True))
}
"""The row kernels by name; where there are several of a name, the longest."""


def launch_rows(
    kernel: Kernel,
    results: Sequence[Tensor],
    operands: Sequence[Tensor],
    shape: Shape,
    numbers: Sequence[float] = (),
) -> None:
    """Enqueue a kernel that reduces rows along the middle axis of arrays (outer, length, inner), all contiguous.

    Args:
        kernel: its form.
        results: the arrays that it writes.
        operands: those that it reads.
        shape: of that of elements, which is not empty.
        numbers: what it is given.
    """
    outer, length, inner = shape
    device, rows = results[0].device, outer * inner
    constants, rows_per_workgroup = row_constants(device, length, rows, inner)
    views = [*(x.view for x in operands), *(x.view for x in results)]
    parameters = rows, length, inner, rows_per_workgroup, *numbers
    device.dispatch(form_kernel(kernel, inner > 1, **constants), views, -(-rows // rows_per_workgroup), parameters)

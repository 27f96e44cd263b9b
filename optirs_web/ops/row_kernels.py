"""The kernels that reduce rows, in the form of `optirs_web.kernel`, and their launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from ..kernel import Kernel, Online, Part, Read, Take, Type, Write
from ..launch import Shape, row_constants
from ..lower.shader import Layout
from ..runtime.dtypes import FLOAT32
from ..runtime.form_kernels import form_kernel
from ..tensor_class import Tensor, empty

__all__ = [
    "LAYER_NORM_AFFINE_GRAD",
    "LOG_SOFTMAX",
    "LOG_SOFTMAX_GRAD",
    "SEGMENT",
    "SOFTMAX",
    "SOFTMAX_GRAD",
    "SUM",
    "SUM_OF_TWO",
    "cross_entropy_form",
    "extremum_form",
    "launch_rows",
    "launch_sums",
    "layer_norm_form",
    "layer_norm_grad_form",
    "named_row_kernels",
]

SEGMENT = 4096
"""Elements of a row that one workgroup reduces; a longer row takes another launch over the results of its segments."""

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

_OF_RESULT = (Read("grad"), Read("y"))
SOFTMAX_GRAD = Kernel(
    "softmax_grad",
    _FILE,
    2,
    _OF_RESULT,
    (Part("products", over=_ROW), Part("softmax_grad")),
    (Write("softmax_grad", "result"),),
)
LOG_SOFTMAX_GRAD = Kernel(
    "log_softmax_grad",
    _FILE,
    2,
    _OF_RESULT,
    (Part("total", over=_ROW), Part("log_softmax_grad")),
    (Write("log_softmax_grad", "result"),),
)


_STANDARDIZED = (Part("centred"), Part("standardized"))


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
            Part("mean_correction"),
            Part("mean"),
            Part("centred"),
            Part("squares", over=_ROW),
            Part("scale"),
            Part("weighted" if has_weight else "unweighted", gives="factor"),
            Part("normalized"),
            *[Part("with_bias", gives="normalized")] * has_bias,
        ),
        (Write("mean", "mean"), Write("scale", "scale"), Write("normalized", "result")),
        {"eps": "f32"},
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
            *_STANDARDIZED,
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


@cache
def cross_entropy_form(has_weight: bool, is_smoothed: bool) -> Kernel:
    """Return the cross-entropy with a class for each row, with weights of classes and smoothing or without."""
    weight_of_label: Part | Take = Part("unit_weight", gives="weight_of_label")
    if has_weight:
        weight_of_label = Take("weight_of_label", "class_weight", at="label_column")
    smoothing: tuple[Part, ...] = ()
    if is_smoothed:
        smoothing = (
            Part("weighted_distances" if has_weight else "distances", over=_ROW, gives="distances"),
            Part("sum_of_weights", over=_ROW, gives="weights") if has_weight else Part("size_of_all", gives="weights"),
            Part("smoothed_loss", gives="loss"),
            Part("sum_of_shares", gives="shares"),
        )
    return Kernel(
        "cross_entropy",
        ("rows", "cross_entropy"),
        2,
        (*_X, Read("label", over=_ROW, type="i32"), *[Read("class_weight", over=_COLUMN)] * has_weight),
        (
            Part("largest", over=_ROW, combine="max"),
            Part("shifted"),
            Part("power"),
            Part("sum", over=_ROW),
            Part("log_sum"),
            Part("is_class"),
            Part("is_ignored"),
            Part("label_column"),
            Take("logit", "x", at="label_column"),
            weight_of_label,
            Part("weight"),
            Part("loss"),
            *smoothing,
            Part("log_of_all"),
        ),
        (
            Write("log_of_all", "log_sum"),
            Write("loss", "loss"),
            Write("weight", "weight"),
            *[Write("shares", "shares")] * is_smoothed,  # otherwise it is the weight
        ),
        {"ignored": "i32", **({"smoothing": "f32"} if is_smoothed else {})},
        _LARGEST_AND_SUM,
    )


LAYER_NORM_AFFINE_GRAD = Kernel(
    "layer_norm_affine_grad",
    ("rows", "layer_norm"),
    2,
    (Read("grad"), Read("x"), Read("mean", over=_COLUMN), Read("scale", over=_COLUMN)),
    (*_STANDARDIZED, Part("weight_grad", over=_ROW), Part("bias_grad", over=_ROW)),
    (Write("weight_grad", "weight_grad"), Write("bias_grad", "bias_grad")),
)
"""The gradients of layer normalization by weight and bias: what is reduced here are the columns of the matrix."""

SUM = Kernel("sum", ("rows", "sum"), 2, _X, (Part("sum", over=_ROW),), (Write("sum", "result"),))
SUM_OF_TWO = Kernel(
    "sum_of_two",
    ("rows", "sum"),
    2,
    (*_X, Read("second")),
    (Part("sum", over=_ROW), Part("second_sum", over=_ROW)),
    (Write("sum", "result"), Write("second_sum", "second_result")),
)


_ELEMENTS = {"f32": "float_element", "i32": "integer_element", "u32": "word_element"}


@cache
def extremum_form(type_: Type, is_smallest: bool, gives: Literal["value", "place", "both"], has_places: bool) -> Kernel:
    """Return the search for the first extreme element of each row.

    Args:
        type_: of the elements.
        is_smallest: it is the smallest that is looked for.
        gives: what is written: the element, its column, or both.
        has_places: each element has a number that is written in place of its column.
    """
    place = Take("place_of_found", "place", at="found") if has_places else Part("place_in_row", gives="place_of_found")
    writes = Write("extreme", "result", type_), Write("place_of_found", "place_of_result", "i32")
    return Kernel(
        "extremum",
        ("rows", "extremum"),
        2,
        (Read("x", type=type_), *[Read("place", type="i32")] * has_places),
        (
            Part(_ELEMENTS[type_], over=_ROW, combine="argmin" if is_smallest else "argmax", gives="found"),
            *[Take("extreme", "x", at="found")] * (gives != "place"),
            *[place] * (gives != "value"),
        ),
        {"value": writes[:1], "place": writes[1:], "both": writes}[gives],
    )


def named_row_kernels() -> dict[str, Kernel]:
    """Return the row kernels by name; where there are several of a name, that with everything."""
    kernels = [
        *(SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD),
        *(layer_norm_form(has_weight=True, has_bias=True), layer_norm_grad_form(has_weight=True)),
        *(LAYER_NORM_AFFINE_GRAD, cross_entropy_form(has_weight=True, is_smoothed=True), SUM, SUM_OF_TWO),
        extremum_form("f32", is_smallest=False, gives="both", has_places=False),
    ]
    return {kernel.name: kernel for kernel in kernels}


def launch_rows(
    kernel: Kernel,
    results: Sequence[Tensor],
    operands: Sequence[Tensor],
    shape: Shape,
    numbers: Sequence[float] = (),
    segment: int = 0,
) -> None:
    """Enqueue a kernel that reduces rows along the middle axis of arrays (outer, length, inner), all contiguous.

    Args:
        kernel: its form.
        results: the arrays that it writes: of elements; of values of rows (outer, inner), or (outer, segments, inner).
        operands: those that it reads.
        shape: of that of elements, which is not empty.
        numbers: those of the kernel, in their order.
        segment: the most elements that are reduced together; 0 for all.
    """
    outer, length, inner = shape
    device, rows = results[0].device, outer * inner
    layout: Layout = "strided" if inner > 1 else "adjacent"
    segments: tuple[int, ...] = ()
    if 0 < segment < length:
        rows, layout, segments = rows * -(-length // segment), "segments", (segment,)
    constants, rows_per_workgroup = row_constants(device, min(length, segment or length), rows, inner)
    if kernel.finds_elements:
        constants.pop("SUBGROUPS", None)  # which have sums and maxima
    views = [*(x.view for x in operands), *(x.view for x in results)]
    parameters = rows, length, inner, rows_per_workgroup, *segments, *numbers
    device.dispatch(form_kernel(kernel, layout, **constants), views, -(-rows // rows_per_workgroup), parameters)


def launch_sums(
    kernel: Kernel, results: Sequence[Tensor], operands: Sequence[Tensor], shape: Shape, segment: int = SEGMENT
) -> None:
    """Enqueue a kernel that writes one sum or two of each row, by segments whose results are added up.

    Args:
        kernel: its form.
        results: (outer, inner).
        operands: those that it reads; see `launch_rows`.
        shape: (outer, length, inner), of which none is 0.
        segment: the most elements that are added up at once.
    """
    outer, length, inner = shape
    count = -(-length // segment)
    if count == 1:
        launch_rows(kernel, results, operands, shape)
        return
    partial = [empty((outer * count * inner,), FLOAT32, result.device) for result in results]
    launch_rows(kernel, partial, operands, shape, segment=segment)
    launch_sums(SUM if len(results) == 1 else SUM_OF_TWO, results, partial, (outer, count, inner))

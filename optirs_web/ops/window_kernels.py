"""The kernels over windows that slide over planes, in the form of `optirs_web.kernel`, and their launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import DeviceLimitError
from ..kernel import Kernel, Part, Read, Write
from ..limits import compute_part, fits, in_parts, part_along
from ..lower.windows import INVOCATIONS, WindowAxis, axis_parameters
from ..runtime.form_kernels import form_kernel
from ..tensor_class import Tensor
from .row_kernels import SUM, extremum_form

__all__ = [
    "CHOSEN_PIXELS",
    "FOLD",
    "TO_CHOSEN_PIXELS",
    "UNFOLD",
    "WINDOW_LARGEST",
    "WINDOW_SUMS",
    "launch_windows",
    "named_window_kernels",
]

_ROW = (-1,)
_CHOSEN = (Part("sum", over=_ROW, at="place"),), (Write("sum", "result"),)

UNFOLD = Kernel("unfold", SUM.file, 2, (Read("x"),), (), (Write("x", "result"),))
"""The pixels under the taps of each window."""

FOLD = replace(SUM, name="fold")
"""For each pixel the sum of what the windows over it have for their taps."""

WINDOW_SUMS = replace(SUM, name="window_sums")
"""The sum of the pixels of each window."""

WINDOW_LARGEST = replace(extremum_form("f32", is_smallest=False, gives="both", has_places=False), name="window_largest")
"""The largest pixel of each window, and its place: the tap that is over it."""

CHOSEN_PIXELS = Kernel("chosen_pixels", SUM.file, 2, (Read("x"), Read("place", over=_ROW, type="i32")), *_CHOSEN)
"""For each window the pixel at its place."""

TO_CHOSEN_PIXELS = Kernel("to_chosen_pixels", SUM.file, 2, (Read("x"), Read("place", type="i32")), *_CHOSEN)
"""For each pixel the sum over the windows that have it at their place: a tap that is over a pixel, or -1."""


def named_window_kernels() -> dict[str, Kernel]:
    """Return the kernels over windows by name."""
    kernels = UNFOLD, FOLD, WINDOW_SUMS, WINDOW_LARGEST, CHOSEN_PIXELS, TO_CHOSEN_PIXELS
    return {kernel.name: kernel for kernel in kernels}


def launch_windows(
    kernel: Kernel,
    results: Sequence[Tensor],
    operands: Sequence[Tensor],
    axes: tuple[WindowAxis, WindowAxis],
    planes: int,
    strides: tuple[int, int] | None = None,
    first: int = 0,
    first_result: int = 0,
) -> None:
    """Enqueue a kernel over windows that slide over planes; operands and results are contiguous.

    Args:
        kernel: its form, whose rows are windows and whose columns are taps.
        results: the arrays that it writes: (planes, height, width) of the grid, or copies, with the taps second.
        operands: those that it reads: of planes; or of the grid, where the form reads a value of rows.
        axes: the windows along the height and along the width. Their spacing is 1 for copies.
        planes: how many there are; nothing is done for 0.
        strides: the elements from a plane to the next, and from what it has for a tap to what it has for the next; None
            if planes follow each other and have the same for all taps.
        first: the first plane of the operands that are of planes.
        first_result: that of the results, of which there is one if it is not 0.

    Raises:
        DeviceLimitError: a window has more taps than a loop of the device has iterations.
    """
    if not planes:
        return
    device, (down, across) = results[0].device, axes
    iterations = down.taps * (across.taps + 2)  # with those that leave the loops over a row, and over the rows
    if iterations > device.capabilities.max_iterations:
        raise DeviceLimitError(kernel.name, iterations, device.capabilities.max_iterations, device.name, "iterations")
    taps, windows = down.taps * across.taps, down.grid * across.grid
    plane_size, tap_stride = strides or (down.size * across.size, 0)
    result_size = windows * (1 if kernel.reduced else taps)
    spread = {"SPREAD": True} if down.spacing > 1 or across.spacing > 1 else {}
    of_axes = axis_parameters(axes)

    def dispatch(arrays: Sequence[Tensor], count: int, start: int = 0, start_of_result: int = 0) -> None:
        rows, views = count * windows, [tensor.view for tensor in arrays]
        parameters = rows, taps, start * plane_size, start_of_result * result_size, plane_size, tap_stride, *of_axes
        device.dispatch(form_kernel(kernel, "windows", **spread), views, -(-rows // INVOCATIONS), parameters)

    def compute(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        dispatch([*sources, *targets], targets[0].shape[0])

    if fits(*(tensor.view for tensor in (*operands, *results))):
        dispatch([*operands, *results], planes, first, first_result)
        return
    parts = [
        part_along(_planes(x, x.size // plane_size), 0, first, planes)
        if kind == "element"
        else _planes(x, x.size // windows)
        for x, kind in zip(operands, kernel.kinds, strict=False)
    ]
    wholes = [_planes(x, x.size // result_size) for x in results]
    if wholes[0].shape[0] == planes:
        in_parts(wholes, parts, 1, compute)
    else:
        (whole,) = wholes
        compute_part(whole, 0, first_result, planes, lambda part: in_parts([part], parts, 1, compute))


def _planes(x: Tensor, count: int) -> Tensor:
    return Tensor(x.view, (count, x.size // count), x.dtype)

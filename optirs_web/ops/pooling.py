"""Pooling: the largest pixel of windows, and their mean."""

from __future__ import annotations

from typing import Any

from ..autograd import record
from ..errors import ShapeError
from ..launch import contiguous
from ..runtime.dtypes import FLOAT32, INT32
from ..tensor_class import Tensor, empty
from .arithmetic import divide, multiply
from .creation import ones
from .shape import reshape
from .window_kernels import CHOSEN_PIXELS, TO_CHOSEN_PIXELS, WINDOW_LARGEST, WINDOW_SUMS, launch_windows
from .windows import Windows, as_images, fold_into, pair, windows_over

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]


def _pooling(operation: str, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
    """Return the windows of a pooling over images.

    Raises:
        ShapeError: none fits, or a window may consist of padding.
    """
    taps, step, before = pair(kernel, "kernel_size", 1), pair(dilation, "dilation", 1), pair(padding, "padding", 0)
    if any(2 * edge > (count - 1) * gap + 1 for edge, count, gap in zip(before, taps, step, strict=True)):
        raise ShapeError(f"{operation} takes padding up to half of a window of {taps}, not {before}")
    return windows_over(
        (x.shape[2], x.shape[3]), taps, taps if stride is None else pair(stride, "stride", 1), before, step
    )


def max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """The largest pixel of each window, as torch.nn.functional.max_pool2d (without ceil_mode).

    The gradient goes to that pixel; to the first one along the rows where several are equal, and to a NaN before all,
    as in torch. Padding is never the largest.

    Args:
        x: (N, C, H, W) or (C, H, W), float32.
        kernel_size: taps of a window; like the others a number, or one for the height and one for the width.
        stride: pixels from one window to the next; as many as taps if None.
        padding: around the image, at most half a window.
        dilation: pixels from one tap to the next.

    Raises:
        ShapeError: no window fits, or there is too much padding, or an argument is no number or pair.
        UnsupportedError: x is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x = ow.tensor([[[1.0, 2.0, 5.0, 0.0], [4.0, 3.0, 5.0, 1.0]]], device="cpu")
        >>> ops.max_pool2d(x, 2).tolist()
        [[[4.0, 5.0]]]
    """
    images = as_images("max_pool2d", x)
    w = _pooling("max_pool2d", images, kernel_size, stride, padding, dilation)
    planes = images.shape[0] * images.shape[1]
    shape = (*images.shape[:2], *w.grid)
    result, places = empty(shape, FLOAT32, x.device), empty(shape, INT32, x.device)
    launch_windows(WINDOW_LARGEST, [result, places], [contiguous(images.detach())], w.under_taps, planes)
    result = record(result, (images, lambda g, _: _to_chosen_pixels(g, places, w)))
    return result if x.ndim == 4 else reshape(result, shape[1:])


def _to_chosen_pixels(g: Tensor, places: Tensor, w: Windows) -> Tensor:
    """Return images whose pixels are sums of g over the windows that chose them. Gradient: the chosen pixels of it."""
    result = empty((*g.shape[:2], *w.size), FLOAT32, g.device)
    planes = g.shape[0] * g.shape[1]
    launch_windows(TO_CHOSEN_PIXELS, [result], [contiguous(g.detach()), places], w.over_pixels, planes)
    return record(result, (g, lambda v, _: _chosen_pixels(v, places, w)))


def _chosen_pixels(v: Tensor, places: Tensor, w: Windows) -> Tensor:
    """Return the pixel of v that each window chose. Gradient: g, to these."""
    result = empty((*v.shape[:2], *w.grid), FLOAT32, v.device)
    planes = v.shape[0] * v.shape[1]
    launch_windows(CHOSEN_PIXELS, [result], [contiguous(v.detach()), places], w.under_taps, planes)
    return record(result, (v, lambda g, _: _to_chosen_pixels(g, places, w)))


def avg_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window, as torch.nn.functional.avg_pool2d (without ceil_mode). Gradient: g, shared out.

    Args:
        x: (N, C, H, W) or (C, H, W), float32.
        kernel_size: taps of a window; like the others a number, or one for the height and one for the width.
        stride: pixels from one window to the next; as many as taps if None.
        padding: zeros around the image, at most half a window.
        count_include_pad: these zeros count in the mean.

    Raises:
        ShapeError: no window fits, or there is too much padding, or an argument is no number or pair.
        UnsupportedError: x is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.avg_pool2d(ow.ones((1, 2, 2), device="cpu"), 2, stride=1, padding=1).tolist()
        [[[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]]]
    """
    images = as_images("avg_pool2d", x)
    w = _pooling("avg_pool2d", images, kernel_size, stride, padding, 1)
    sums = _sums(images, w)
    if count_include_pad or w.before == (0, 0):
        result = multiply(sums, 1.0 / w.taps)
    else:
        result = divide(sums, _sums(ones((1, 1, *w.size), x.device), w))
    return result if x.ndim == 4 else reshape(result, result.shape[1:])


def _sums(x: Tensor, w: Windows) -> Tensor:
    """Return the sum of each window's pixels. Gradient: each pixel gets g of all windows that contain it."""
    result = empty((*x.shape[:2], *w.grid), FLOAT32, x.device)
    launch_windows(WINDOW_SUMS, [result], [contiguous(x.detach())], w.under_taps, x.shape[0] * x.shape[1])
    return record(result, (x, lambda g, _: _shared_out(g, w)))


def _shared_out(g: Tensor, w: Windows) -> Tensor:
    result = empty((*g.shape[:2], *w.size), FLOAT32, g.device)
    fold_into(result, contiguous(g.detach()), w, 0, g.shape[0] * g.shape[1], is_shared=True)
    return record(result, (g, lambda v, _: _sums(v, w)))


def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """The means of `output_size` windows that divide each image evenly, as torch.nn.functional.adaptive_avg_pool2d.

    Args:
        x: (N, C, H, W) or (C, H, W), float32.
        output_size: windows: a number, or one for the height and one for the width. Each divides the image's.

    Raises:
        ShapeError: they do not divide the image.
        UnsupportedError: x is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.adaptive_avg_pool2d(ow.tensor([[[1.0, 2.0], [3.0, 4.0]]], device="cpu"), 1).tolist()
        [[[2.5]]]
    """
    as_images("adaptive_avg_pool2d", x)
    size, count = (x.shape[-2], x.shape[-1]), pair(output_size, "output_size", 1)
    if size[0] % count[0] or size[1] % count[1]:
        raise ShapeError(f"adaptive_avg_pool2d to {count} needs images that this divides evenly, not {size}")
    return avg_pool2d(x, (size[0] // count[0], size[1] // count[1]))

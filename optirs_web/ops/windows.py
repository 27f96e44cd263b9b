"""Windows that slide over images, and the pair of linear operations that every convolution is made of."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from ..autograd import record
from ..errors import ShapeError
from ..launch import contiguous, need_float32
from ..lower.windows import WindowAxis
from ..runtime.dtypes import FLOAT32
from ..tensor_class import Tensor, empty
from .creation import full
from .shape import reshape
from .window_kernels import FOLD, UNFOLD, launch_windows

__all__ = ["Pair", "Windows", "as_images", "columns_of", "fold", "fold_into", "pair", "unfold", "windows_over"]

Pair = tuple[int, int]
Axes = tuple[WindowAxis, WindowAxis]

_LARGEST = 2**31 - 1
"""The largest size, stride, padding or dilation: kernels take them as i32."""


class Windows(NamedTuple):
    """The positions of windows on images: pairs for the height and the width.

    Attributes:
        size: of an image.
        grid: windows.
        kernel: taps of a window.
        stride: pixels from one window to the next.
        before: pixels of padding before an image.
        dilation: pixels from one tap to the next.
    """

    size: Pair
    grid: Pair
    kernel: Pair
    stride: Pair
    before: Pair
    dilation: Pair

    @property
    def pixels(self) -> int:
        """Pixels of an image."""
        return self.size[0] * self.size[1]

    @property
    def windows(self) -> int:
        """Windows on an image."""
        return self.grid[0] * self.grid[1]

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def under_taps(self) -> Axes:
        """The axes of windows over pixels."""
        return _under_taps(self)

    @property
    def over_pixels(self) -> Axes:
        """The reverse: for each pixel the windows whose taps are over it."""
        return _over_pixels(self)

    @property
    def is_pixelwise(self) -> bool:
        """Return whether each window is one pixel, and each pixel has one."""
        return self.kernel == (1, 1) and self.grid == self.size and self.before == (0, 0) and self.stride == (1, 1)


@lru_cache
def _under_taps(w: Windows) -> Axes:
    each = zip(w.grid, w.size, w.kernel, w.stride, w.before, w.dilation, strict=True)
    down, across = (
        WindowAxis(grid, size, taps, stride, -before, 1, dilation)
        for grid, size, taps, stride, before, dilation in each
    )
    return down, across


@lru_cache
def _over_pixels(w: Windows) -> Axes:
    each = zip(w.size, w.grid, w.kernel, w.stride, w.before, w.dilation, strict=True)
    down, across = (
        WindowAxis(size, grid, taps, 1, before, stride, -dilation)
        for size, grid, taps, stride, before, dilation in each
    )
    return down, across


def pair(value: Any, name: str, least: int) -> Pair:
    """Return height and width from a number or two.

    Raises:
        ShapeError: it is something else, or too small or large.
    """
    try:
        sizes = tuple(map(operator.index, value if isinstance(value, Iterable) else (value, value)))
    except TypeError:
        sizes = ()
    if len(sizes) == 1:
        sizes *= 2
    if len(sizes) != 2 or min(sizes) < least:
        raise ShapeError(f"{name} must be an integer >= {least}, or two, for height and width; not {value!r}")
    if max(sizes) > _LARGEST:
        raise ShapeError(f"{name} must be at most {_LARGEST}, not {value!r}")
    return sizes[0], sizes[1]


def windows_over(
    size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, after: Pair | None = None
) -> Windows:
    """All windows that fit into an image with `padding` before it and `after` (or as much) after it.

    Raises:
        ShapeError: none fits.
    """
    spans = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilation, strict=True)]
    padded = [sum(sizes) for sizes in zip(size, padding, after or padding, strict=True)]
    if any(length < span for length, span in zip(padded, spans, strict=True)):
        raise ShapeError(
            f"a window of {spans[0]} by {spans[1]} pixels does not fit an image of {size[0]} by {size[1]}, "
            f"{padded[0]} by {padded[1]} with padding"
        )
    high, wide = ((length - span) // step + 1 for length, span, step in zip(padded, spans, stride, strict=True))
    return Windows(size, (high, wide), kernel, stride, padding, dilation)


def as_images(operation: str, x: Tensor) -> Tensor:
    """Return images as (N, C, H, W), where (C, H, W) is one image.

    Raises:
        ShapeError: it has other axes, or images without pixels.
        UnsupportedError: it is not float32.
    """
    need_float32(operation, x)
    if x.ndim not in (3, 4):
        raise ShapeError(f"{operation} needs images (N, C, H, W) or (C, H, W), not {x.shape}")
    if 0 in x.shape[-2:]:
        raise ShapeError(f"{operation} needs images with pixels, not {x.shape}")
    return x if x.ndim == 4 else reshape(x, (1, *x.shape))


def columns_of(x: Tensor, w: Windows, first_plane: int, planes: int) -> Tensor:
    """Return the pixels under the taps, (planes, taps, windows), of contiguous images from a plane on. No history."""
    if w.is_pixelwise and planes * w.pixels == x.size:
        return Tensor(x.view, (planes, 1, w.pixels), x.dtype)
    result = empty((planes, w.taps, w.windows), x.dtype, x.device)
    launch_windows(UNFOLD, [result], [x], w.under_taps, planes, first=first_plane)
    return result


def fold_into(
    result: Tensor, columns: Tensor, w: Windows, first_plane: int, planes: int, *, is_shared: bool = False
) -> None:
    """Sum contiguous columns into images, from a plane on; `is_shared`: all taps of a window have one value."""
    strides = None if is_shared else (w.taps * w.windows, w.windows)
    launch_windows(FOLD, [result], [columns], w.over_pixels, planes, strides, first_result=first_plane)


def unfold(x: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The pixels under every window as columns, as torch.nn.functional.unfold. Gradient: g, folded.

    Args:
        x: (N, C, H, W) or (C, H, W), float32.
        kernel_size: taps of a window; like the others a number, or one for the height and one for the width.
        dilation: pixels from one tap to the next.
        padding: zeros around the image.
        stride: pixels from one window to the next.

    Returns:
        (N, C * taps, windows), or without N; a window's taps and the windows are counted along the rows.

    Raises:
        ShapeError: no window fits, or an argument is no number or pair.
        UnsupportedError: x is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x = ow.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]], device="cpu")
        >>> ops.unfold(x, 2).tolist()
        [[1.0, 2.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]]
    """
    images = as_images("unfold", x)
    w = windows_over((images.shape[2], images.shape[3]), *_arguments(kernel_size, stride, padding, dilation))
    result = _unfolded(images, w)
    return result if x.ndim == 4 else reshape(result, result.shape[1:])


def fold(
    columns: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Images whose pixels are sums over all windows that contain them, as torch.nn.functional.fold.

    The gradient of `unfold`.

    Args:
        columns: (N, C * taps, windows) or (C * taps, windows), float32.
        output_size: height and width of the images.
        kernel_size: as for `unfold`, and so the others.
        dilation: see there.
        padding: see there.
        stride: see there.

    Returns:
        (N, C, H, W), or without N. Gradient: g, unfolded.

    Raises:
        ShapeError: there are not as many columns as windows, or rows as taps; or as for `unfold`.
        UnsupportedError: the columns are not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.fold(ow.ones((4, 2), device="cpu"), (2, 3), 2).tolist()
        [[[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]
    """
    need_float32("fold", columns)
    size = pair(output_size, "output_size", 0)
    w = windows_over(size, *_arguments(kernel_size, stride, padding, dilation))
    if columns.ndim not in (2, 3) or columns.shape[-1] != w.windows or columns.shape[-2] % w.taps:
        raise ShapeError(
            f"fold to {size} needs columns (N, C * {w.taps}, {w.windows}), for {w.taps} taps of {w.windows} windows; "
            f"not {columns.shape}"
        )
    batch = columns if columns.ndim == 3 else reshape(columns, (1, *columns.shape))
    result = _folded(batch, w)
    return result if columns.ndim == 3 else reshape(result, result.shape[1:])


def _arguments(kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Pair, Pair, Pair, Pair]:
    return (
        pair(kernel, "kernel_size", 1),
        pair(stride, "stride", 1),
        pair(padding, "padding", 0),
        pair(dilation, "dilation", 1),
    )


def _unfolded(x: Tensor, w: Windows) -> Tensor:
    planes = x.shape[0] * x.shape[1]
    shape = (x.shape[0], x.shape[1] * w.taps, w.windows)
    if x.size:
        result = Tensor(columns_of(contiguous(x.detach()), w, 0, planes).view, shape, FLOAT32)
    else:
        result = full(shape, 0.0, x.device)
    return record(result, (x, lambda g, _: _folded(g, w)))


def _folded(columns: Tensor, w: Windows) -> Tensor:
    channels = columns.shape[1] // w.taps
    result = empty((columns.shape[0], channels, *w.size), FLOAT32, columns.device)
    fold_into(result, contiguous(columns.detach()), w, 0, columns.shape[0] * channels)
    return record(result, (columns, lambda g, _: _unfolded(g, w)))

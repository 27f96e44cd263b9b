"""Convolutions: matrix products with the columns of `unfold`, which are made again where a gradient needs them.

On devices without a library for products, they read the pixels from the images instead (`convolution_products`), except
in the gradient of the images at a stride above 1, where most taps would be on no window.

With the columns U x of an image x (its pixels under each tap of each window), a convolution is W (U x). It is linear in
x and in W; so are its two gradients, Uᵀ (Wᵀ g) and g (U x)ᵀ, and the three are each other's gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from ..autograd import record
from ..errors import ShapeError
from ..launch import Shape, contiguous, float_type, need_float32, need_one_device
from ..tensor_class import Tensor, empty
from .arithmetic import add
from .convolution_products import (
    ImageProduct,
    are_products_of_images,
    filter_gradient,
    image_gradient,
    multiply_images,
    result_product,
)
from .creation import full
from .joining import concat
from .linear import matmul
from .reduce import sum
from .shape import reshape, transpose
from .slices import Pick, part_of, whole_axis
from .windows import Pair, Windows, as_images, columns_of, fold_into, pair, windows_over

__all__ = ["conv1d", "conv2d", "conv_transpose2d"]

_COLUMN_BYTES = 64 << 20
"""Bytes of columns that are held at once; a larger batch takes several passes."""

Padding = int | Iterable[int] | Literal["same", "valid"]


class _Layout(NamedTuple):
    """The shape of a convolution: its windows, the channels of images and of results, and the groups of channels."""

    windows: Windows
    channels: int
    filters: int
    groups: int

    @property
    def rows(self) -> int:
        """Rows of the column matrix of one group: channels times taps."""
        return self.channels // self.groups * self.windows.taps

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Channels, filters and groups."""
        return self.channels, self.filters, self.groups

    @property
    def kernel(self) -> Shape:
        """The shape of the weights as matrices, one for each group."""
        return self.groups, self.filters // self.groups, self.rows


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The correlation of images with filters, as torch.nn.functional.conv2d.

    y[n, o, i, j] = bias[o] + sum over c, k, l of weight[o, c, k, l] x[n, c, i stride + k dilation - padding, ...]

    where x is 0 beyond its edges, and the last index is as the one before. Gradients of all orders; they make the
    columns again instead of keeping them.

    Args:
        x: images (N, C, H, W) or (C, H, W), float32.
        weight: (O, C / groups, kernel height, kernel width), float32.
        bias: (O,), float32, or None.
        stride: pixels from one window to the next; like the following a number, or one for height and one for width.
        padding: zeros around the image; or "valid", none, or "same", as many as keep its size (an odd one goes to the
            right and below; the stride is 1).
        dilation: pixels from one tap to the next.
        groups: number of sets of channels and filters; each filter reads the channels of its set.

    Returns:
        (N, O, height, width), or without N.

    Raises:
        ShapeError: shapes, groups or windows do not fit, or the tensors are on different devices.
        UnsupportedError: a tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x = ow.ones((1, 3, 3), device="cpu")
        >>> ops.conv2d(x, ow.ones((1, 1, 3, 3), device="cpu"), padding=1).tolist()
        [[[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]]
    """
    images = as_images("conv2d", x)
    _check_filters("conv2d", images, weight, groups, channels_axis=1)
    taps = (weight.shape[2], weight.shape[3])
    step, gap = pair(stride, "stride", 1), pair(dilation, "dilation", 1)
    before, after = _padding(padding, taps, step, gap)
    windows = windows_over((images.shape[2], images.shape[3]), taps, step, before, gap, after)
    layout = _Layout(windows, images.shape[1], weight.shape[0], groups)
    return _finished("conv2d", _convolved(images, weight, layout), bias, x)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: int | Literal["same", "valid"] = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """The correlation of sequences with filters, as torch.nn.functional.conv1d: `conv2d` over images one pixel high.

    Args:
        x: (N, C, length) or (C, length), float32.
        weight: (O, C / groups, kernel), float32.
        bias: (O,), float32, or None.
        stride: as for `conv2d`, and so the others, but of one number.
        padding: see there.
        dilation: see there.
        groups: see there.

    Raises:
        ShapeError: shapes, groups or windows do not fit, or the tensors are on different devices.
        UnsupportedError: a tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> ops.conv1d(ow.ones((1, 4), device="cpu"), ow.ones((1, 1, 3), device="cpu"), padding="same").tolist()
        [[2.0, 3.0, 3.0, 2.0]]
    """
    need_float32("conv1d", x, weight)
    if x.ndim not in (2, 3) or weight.ndim != 3:
        raise ShapeError(f"conv1d needs (N, C, length) or (C, length), and filters (O, C, taps), not {x.shape} and "
                         f"{weight.shape}")  # fmt: skip
    high = reshape(x, (*x.shape[:-1], 1, x.shape[-1]))
    filters = reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    margin = padding if isinstance(padding, str) else (0, *_as_tuple(padding))
    result = conv2d(high, filters, bias, (1, *_as_tuple(stride)), margin, (1, *_as_tuple(dilation)), groups)
    return reshape(result, (*result.shape[:-2], result.shape[-1]))


def _as_tuple(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Iterable) else (value,)


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv2d` for its images, as an operation: torch.nn.functional.conv_transpose2d.

    Args:
        x: (N, C, H, W) or (C, H, W), float32: what would be the gradient of a convolution's result.
        weight: (C, O / groups, kernel height, kernel width), float32.
        bias: (O,), float32, or None.
        stride: of that convolution, as for `conv2d`.
        padding: of that convolution.
        output_padding: rows and columns added below and to the right: images of several sizes have results of one.
        groups: of that convolution.
        dilation: of that convolution.

    Returns:
        (N, O, height, width), or without N, where height = (H - 1) stride - 2 padding + (kernel - 1) dilation + 1 +
        output_padding.

    Raises:
        ShapeError: shapes, groups or windows do not fit, or the tensors are on different devices.
        UnsupportedError: a tensor is not float32.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web import ops
        >>> x, weight = ow.ones((1, 1, 2), device="cpu"), ow.ones((1, 1, 1, 2), device="cpu")
        >>> ops.conv_transpose2d(x, weight, stride=2).tolist()
        [[[1.0, 1.0, 1.0, 1.0]]]
    """
    images = as_images("conv_transpose2d", x)
    _check_filters("conv_transpose2d", images, weight, groups, channels_axis=0)
    taps = (weight.shape[2], weight.shape[3])
    step, gap, margin = pair(stride, "stride", 1), pair(dilation, "dilation", 1), pair(padding, "padding", 0)
    more = pair(output_padding, "output_padding", 0)
    sizes = zip(images.shape[2:], step, margin, taps, gap, more, strict=True)
    high, wide = ((n - 1) * s - 2 * edge + (k - 1) * d + 1 + extra for n, s, edge, k, d, extra in sizes)
    if min(high, wide) < 1 or any(extra >= max(a, b) for extra, a, b in zip(more, step, gap, strict=True)):
        raise ShapeError(
            f"conv_transpose2d of images {images.shape[2:]} would give {(high, wide)}: padding {margin} takes "
            f"too much off, or output_padding {more} is not below stride or dilation"
        )
    windows = windows_over((high, wide), taps, step, margin, gap)
    layout = _Layout(windows, weight.shape[1] * groups, images.shape[1], groups)
    return _finished("conv_transpose2d", _to_images(images, weight, layout), bias, x)


def _check_filters(operation: str, images: Tensor, weight: Tensor, groups: int, channels_axis: int) -> None:
    need_float32(operation, weight)
    need_one_device(operation, images, weight)
    if weight.ndim != 4 or 0 in weight.shape[2:]:
        raise ShapeError(f"{operation} needs filters of four axes, with taps, not {weight.shape}")
    groups = operator.index(groups)
    expected = weight.shape[1] * groups if channels_axis else weight.shape[0]
    if groups < 1 or weight.shape[0] % groups or images.shape[1] != expected:
        raise ShapeError(
            f"{operation} of images {images.shape} with filters {weight.shape} in {groups} groups: the filters are for "
            f"{expected} channels, and the groups divide {weight.shape[0]} evenly"
        )


def _padding(padding: Any, taps: Pair, stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """Return the padding before and after the image, in pixels."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise ShapeError(f"padding 'same' keeps the size of an image where the stride is 1, not {stride}")
        high, wide = ((count - 1) * gap for count, gap in zip(taps, dilation, strict=True))
        return (high // 2, wide // 2), (high - high // 2, wide - wide // 2)
    if isinstance(padding, str):
        raise ShapeError(f"padding must be a number, two, 'same' or 'valid', not {padding!r}")
    edge = pair(padding, "padding", 0)
    return edge, edge


def _finished(operation: str, result: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    if bias is not None:
        need_float32(operation, bias)
        if bias.shape != result.shape[1:2]:
            raise ShapeError(f"{operation} with {result.shape[1]} filters needs a bias of that shape, not {bias.shape}")
        result = add(result, reshape(bias, (bias.size, 1, 1)))
    return result if x.ndim == 4 else reshape(result, result.shape[1:])


def _batches(images: Tensor, layout: _Layout, *, makes_weights: bool = False) -> Iterator[Pair]:
    """Yield the first image and the number of images of each pass."""
    count, device_bytes = images.shape[0], images.device.capabilities.max_binding_bytes
    image_elements = layout.groups * layout.rows * layout.windows.windows
    if makes_weights:
        image_elements = max(image_elements, layout.filters * layout.rows)
    most = max(1, min(_COLUMN_BYTES, device_bytes) // max(1, 4 * image_elements))
    for start in range(0, count, most):
        yield start, min(most, count - start)


def _result_matrices(x: Tensor, start: int, count: int, layout: _Layout) -> Tensor:
    """Return the results of some images, or their gradients, as (count, groups, filters / groups, windows)."""
    shape = (x.shape[0], layout.groups, layout.filters // layout.groups, layout.windows.windows)
    return part_of(reshape(x, shape), (Pick(start, 1, count), *map(whole_axis, shape[1:])))


def _columns(x: Tensor, start: int, count: int, layout: _Layout) -> Tensor:
    """Return the columns of some images, (count, groups, rows, windows)."""
    columns = columns_of(x, layout.windows, start * layout.channels, count * layout.channels)
    return reshape(columns, (count, layout.groups, layout.rows, layout.windows.windows))


def _is_by_images(x: Tensor, layout: _Layout, product: ImageProduct) -> bool:
    """Return whether the products read the pixels from the images, for as many images or results as `x` has."""
    images = (x.shape[0], layout.channels, layout.windows.pixels)
    results = (x.shape[0], layout.filters, layout.windows.windows)
    return are_products_of_images(x.device.capabilities, product, images, results)


def _convolved(x: Tensor, weight: Tensor, layout: _Layout) -> Tensor:
    """The convolution W (U x). Gradients: Uᵀ (Wᵀ g) and g (U x)ᵀ."""
    shape = (x.shape[0], layout.filters, *layout.windows.grid)
    images, kernel = contiguous(x.detach()), reshape(weight.detach(), layout.kernel)
    product = result_product(layout.windows, x.shape[0], *layout.sizes)
    if not layout.windows.is_pixelwise and _is_by_images(x, layout, product):
        result = empty(shape, float_type(x, weight), x.device)
        multiply_images(result, contiguous(kernel), images, product)
    else:
        products = [matmul(kernel, _columns(images, *batch, layout)) for batch in _batches(images, layout)]
        result = concat(products) if products else full(shape, 0.0, x.device)
    return record(
        Tensor(result.view, shape, result.dtype),
        (x, lambda g, _: _to_images(g, weight, layout)),
        (weight, lambda g, _: _to_weights(x, g, layout)),
    )


def _to_images(g: Tensor, weight: Tensor, layout: _Layout) -> Tensor:
    """The gradient for the images, Uᵀ (Wᵀ g). Gradients: W (U v) and g (U v)ᵀ."""
    result = empty((g.shape[0], layout.channels, *layout.windows.size), float_type(g, weight), g.device)
    kernel = reshape(weight.detach(), layout.kernel)
    results = contiguous(g.detach())
    product = image_gradient(layout.windows, g.shape[0], *layout.sizes)
    if layout.windows.stride == (1, 1) and _is_by_images(g, layout, product):
        by_filters = (layout.groups, layout.filters // layout.groups, -1, layout.windows.taps)
        by_channels = contiguous(transpose(reshape(kernel, by_filters), 1, 2))
        multiply_images(result, by_channels, results, product)
    else:
        for start, count in _batches(results, layout):
            columns = contiguous(matmul(transpose(kernel, 1, 2), _result_matrices(results, start, count, layout)))
            fold_into(result, columns, layout.windows, start * layout.channels, count * layout.channels)
    return record(
        result,
        (g, lambda v, _: _convolved(v, weight, layout)),
        (weight, lambda v, _: _to_weights(v, g, layout)),
    )


def _to_weights(x: Tensor, g: Tensor, layout: _Layout) -> Tensor:
    """The gradient for the filters, g (U x)ᵀ, summed over the images. Gradients: Uᵀ (Vᵀ g) and V (U x)."""
    shape = (layout.filters, layout.channels // layout.groups, *layout.windows.kernel)
    images, results = contiguous(x.detach()), contiguous(g.detach())
    result: Tensor | None = None
    product = filter_gradient(layout.windows, x.shape[0], *layout.sizes)
    if _is_by_images(x, layout, product):
        result = empty(shape, float_type(x, g), x.device)
        multiply_images(result, results, images, product)
    else:
        for start, count in _batches(images, layout, makes_weights=True):
            columns = transpose(_columns(images, start, count, layout), 2, 3)
            part = sum(matmul(_result_matrices(results, start, count, layout), columns), 0)
            result = part if result is None else add(result, part)
    return record(
        full(shape, 0.0, x.device) if result is None else reshape(result, shape),
        (x, lambda v, _: _to_images(g, v, layout)),
        (g, lambda v, _: _convolved(x, v, layout)),
    )

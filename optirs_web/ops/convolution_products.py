"""Convolutions on GPUs: matrix products whose right operand is read from images, and is never stored as columns.

See ``shaders/kernels/convolution.wgsl``. Nothing here leaves a history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..runtime.backend import Capabilities
from ..runtime.dtypes import FLOAT32
from ..runtime.products import Staging, band_launch, convolution_launch, inner_parts, staging_of
from ..tensors import Tensor, empty
from .launch import write_into
from .reduce import sum_into
from .windows import Pair, Windows

__all__ = [
    "Digits",
    "ImageProduct",
    "are_products_of_images",
    "filter_gradient",
    "image_gradient",
    "multiply_images",
    "result_product",
]

_STEP = 16  # the length of a part of an inner axis is a multiple of it
_MOST = 1 << 32


class Digits(NamedTuple):
    """How the three digits of a column's or a depth's number give a pixel: of a plane, a row and a column.

    Attributes:
        bounds: of the digits of rows and columns.
        plane: elements of the images from one plane to the next.
        pixels: from one row to the next, and from one column to the next.
    """

    bounds: Pair
    plane: int
    pixels: Pair


class ImageProduct(NamedTuple):
    """Products A B, one for each group, whose B is read from images.

    Attributes:
        groups: number of products.
        rows: of a product.
        columns: of a product.
        inner: depths of one image.
        images: number of images over which products are added up.
        column_digits: the part of a pixel's offset that depends on the column.
        depth_digits: the part that depends on the depth; the pixel is at the sum of both.
        size: height and width of an image; pixels beyond its edges are 0.
        before: rows and columns of padding before an image.
        b_group: elements of the images from one group to the next.
        b_image: elements of the images from one image to the next.
        a_image: elements of A from one image to the next; its rows are contiguous and so are its groups.
        result_columns: columns of one image of the result, which are contiguous.
    """

    groups: int
    rows: int
    columns: int
    inner: int
    images: int
    column_digits: Digits
    depth_digits: Digits
    size: Pair
    before: Pair
    b_group: int
    b_image: int
    a_image: int
    result_columns: int


def are_products_of_images(capabilities: Capabilities, channels: int, *shapes: tuple[int, ...]) -> bool:
    """Return whether a device computes convolutions by `multiply_images`: a GPU without a library for products.

    Images and results have to fit a binding each.

    Args:
        capabilities: of the device.
        channels: of the images or of the results, the larger number.
        shapes: of the images and of the results.
    """
    is_by_library = not capabilities.max_invocations or "matmul" in capabilities.replaced
    if is_by_library or capabilities.quads or capabilities.tiles == "software":
        return False
    sizes = [4 * math.prod(shape) for shape in shapes]
    return min(sizes) > 0 and max(sizes) <= capabilities.max_binding_bytes and channels <= capabilities.max_workgroups


def _multiply_bands(result: Tensor, filters: Tensor, images: Tensor, product: ImageProduct) -> bool:
    """Enqueue products by bands of rows, for 3x3 taps on adjacent pixels where `band_launch` gives a kernel.

    Returns:
        False if nothing was enqueued.
    """
    p, capabilities = product, result.device.capabilities
    steps = p.depth_digits.pixels
    is_over_taps = p.depth_digits.bounds == (3, 3) and p.depth_digits.plane > 0
    if not is_over_taps or p.column_digits.pixels != (1, 1) or steps not in ((1, 1), (-1, -1)):
        return False
    is_flipped = steps == (-1, -1)
    channels, windows = p.inner // 9, p.column_digits.bounds
    count = p.columns // p.result_columns
    a_group = p.rows * p.inner
    launch = band_launch(
        capabilities, p.rows, windows, count, p.groups,
        BY_VECTORS=not filters.view.kind and p.inner % 4 == 0, IS_FLIPPED=is_flipped,
    )  # fmt: skip
    if launch is None:
        return False
    before = [padding + 2 * is_flipped for padding in p.before]  # a flipped filter has its last tap on the first pixel
    c_image = p.groups * p.rows * p.result_columns
    parameters = (
        *(p.rows, channels, *p.size, *_words(before), *windows),
        *(a_group, p.b_group, p.column_digits.plane, c_image),
    )
    result.device.dispatch(launch[0], [filters.view, images.view, result.view], launch[1], parameters)
    return True


def multiply_images(result: Tensor, a: Tensor, images: Tensor, product: ImageProduct) -> None:
    """Enqueue the products of contiguous operands into a contiguous result."""
    if _multiply_bands(result, a, images, product):
        return
    p, capabilities = product, result.device.capabilities
    part_images, part_depths = _parts(capabilities, p)
    depth_parts = -(-p.inner // part_depths)
    parts = -(-p.images // part_images) * depth_parts
    target = result if parts == 1 else empty((parts, result.size), FLOAT32, result.device)
    a_row = p.inner
    a_group = p.rows * a_row
    starts = (0, a_group, p.a_image)
    staging = Staging.BY_ELEMENTS if a.view.kind else staging_of(p.inner, 1, p.rows, a_row, starts)
    kernel, at_once, grid = convolution_launch(
        capabilities, p.rows, p.columns, p.groups * parts, staging, along_depth=not p.depth_digits.plane
    )
    c_group = p.rows * p.result_columns
    for first_column in range(0, p.columns, at_once):
        result.device.dispatch(
            kernel,
            [a.view, images.view, target.view],
            grid,
            (
                *(p.rows, p.columns, p.inner, a_row, p.groups, a_group, p.b_group, c_group),
                *(p.images, p.a_image, p.b_image, part_images, part_depths, depth_parts, result.size),
                *(p.result_columns, p.groups * c_group, first_column),
                *(*p.size, *_words(p.before)),
                *(*p.column_digits.bounds, p.column_digits.plane, *_words(p.column_digits.pixels)),
                *(*p.depth_digits.bounds, p.depth_digits.plane, *_words(p.depth_digits.pixels)),
            ),
        )
    if target is result:
        return
    total = result if result.dtype is FLOAT32 else empty(result.shape, FLOAT32, result.device)
    sum_into(total, Tensor(target.view, (1, parts, result.size), FLOAT32))
    if total is not result:
        write_into(result, total)


def _words(pixels: Sequence[int]) -> list[int]:
    """Return numbers that may be negative as 32-bit words, which are added modulo 2**32."""
    return [number % _MOST for number in pixels]


def _parts(capabilities: Capabilities, p: ImageProduct) -> tuple[int, int]:
    """Return how many images and depths a part has: all depths of some images, or some depths of one image."""
    depths = p.images * p.inner
    parts = -(-depths // inner_parts(capabilities, p.rows, p.columns, depths, p.groups))
    if parts <= p.images:
        return -(-p.images // parts), p.inner
    return 1, min(p.inner, -(-p.inner * p.images // (parts * _STEP)) * _STEP)


def result_product(w: Windows, images: int, channels: int, filters: int, groups: int) -> ImageProduct:
    """The result of a convolution: filters by the columns of all images."""
    return ImageProduct(
        groups=groups,
        rows=filters // groups,
        columns=images * w.windows,
        inner=channels // groups * w.taps,
        images=1,
        column_digits=Digits(w.grid, channels * w.pixels, w.stride),
        depth_digits=Digits(w.kernel, w.pixels, w.dilation),
        size=w.size,
        before=w.before,
        b_group=channels // groups * w.pixels,
        b_image=0,
        a_image=0,
        result_columns=w.windows,
    )


def image_gradient(w: Windows, images: int, channels: int, filters: int, groups: int) -> ImageProduct:
    """The gradient of the images, from that of the result, at a stride of 1.

    Here a tap further to the right reads a window further to the left.
    """
    return ImageProduct(
        groups=groups,
        rows=channels // groups,
        columns=images * w.pixels,
        inner=filters // groups * w.taps,
        images=1,
        column_digits=Digits(w.size, filters * w.windows, (1, 1)),
        depth_digits=Digits(w.kernel, w.windows, (-w.dilation[0], -w.dilation[1])),
        size=w.grid,
        before=(-w.before[0], -w.before[1]),
        b_group=filters // groups * w.windows,
        b_image=0,
        a_image=0,
        result_columns=w.pixels,
    )


def filter_gradient(w: Windows, images: int, channels: int, filters: int, groups: int) -> ImageProduct:
    """The gradient of the filters, from that of the result, added up over the images."""
    columns = channels // groups * w.taps
    return ImageProduct(
        groups=groups,
        rows=filters // groups,
        columns=columns,
        inner=w.windows,
        images=images,
        column_digits=Digits(w.kernel, w.pixels, w.dilation),
        depth_digits=Digits(w.grid, 0, w.stride),
        size=w.size,
        before=w.before,
        b_group=channels // groups * w.pixels,
        b_image=channels * w.pixels,
        a_image=filters * w.windows,
        result_columns=columns,
    )

"""Convolutions as matrix products whose right operand is read from images, and is never stored as columns.

GPUs have ``shaders/kernels/convolution.wgsl``, and software adapters ``convolution_quads.wgsl``, which reads padded
images. These functions leave no history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..launch import contiguous, write_into
from ..runtime.backend import Capabilities
from ..runtime.dtypes import FLOAT32
from ..runtime.kernels import cooperative
from ..runtime.products import (
    Staging,
    band_launch,
    convolution_launch,
    grid_of_products,
    inner_parts,
    longest_inner_axis,
    staging_of,
)
from ..tensor_class import Tensor, empty
from .reduce import sum_into
from .shape import reshape, transpose
from .slices import Pick, put_part, whole_axis
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

_DEPTHS = 16  # the length of a part of an inner axis is a multiple of it
_MODULUS = 1 << 32


class Digits(NamedTuple):
    """The digits of the number of a column or of a depth, by which its pixel is found: a plane, a row and a column.

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


def are_products_of_images(capabilities: Capabilities, product: ImageProduct, *shapes: tuple[int, ...]) -> bool:
    """Return whether `multiply_images` can compute products on a device.

    That needs a device without a library for products, which has quads if it is a software adapter. Images and results
    must each fit a binding, for quads with the padding too, and quads limit the length of the inner axis.

    Args:
        capabilities: of the device.
        product: the products, of which a launch has a row of workgroups each.
        shapes: of the images and of the results.
    """
    is_by_library = not capabilities.max_invocations or "matmul" in capabilities.replaced
    if is_by_library or (capabilities.tiles == "software" and not capabilities.quads):
        return False
    sizes = [4 * math.prod(shape) for shape in shapes]
    if min(sizes) == 0:
        return False
    across = 1
    if capabilities.quads:
        across, _ = grid_of_products(product.rows, product.columns, product.groups, None)
        sizes.append(sizes[0] // math.prod(product.size) * math.prod(_Padding.of(product).size))
        if product.inner * product.images > longest_inner_axis(capabilities):
            return False
    is_in_grid = max(across, product.groups * product.rows) <= capabilities.max_workgroups
    return is_in_grid and max(sizes) <= capabilities.max_binding_bytes


class _Padding(NamedTuple):
    """The zeros around images with which all pixels of a product exist.

    Attributes:
        before: rows and columns before an image.
        size: height and width with the padding.
        start: the row and the column of the pixel at column 0 and depth 0.
    """

    before: Pair
    size: Pair
    start: Pair

    @classmethod
    def of(cls, p: ImageProduct) -> _Padding:
        """Return the padding that a product needs."""
        axes = [cls._of_axis(p, axis) for axis in (0, 1)]
        before, size, start = zip(*axes, strict=True)
        return cls(before, size, start)

    @staticmethod
    def _of_axis(p: ImageProduct, axis: int) -> tuple[int, int, int]:
        ends = [(digits.bounds[axis] - 1) * digits.pixels[axis] for digits in (p.column_digits, p.depth_digits)]
        first = sum(min(0, end) for end in ends) - p.before[axis]
        last = sum(max(0, end) for end in ends) - p.before[axis]
        before = max(0, -first)
        return before, before + max(p.size[axis], last + 1), before - p.before[axis]


def _multiply_quads(result: Tensor, a: Tensor, images: Tensor, p: ImageProduct) -> None:
    """Enqueue the products by quads, which read padded images."""
    padding = _Padding.of(p)
    planes, pixels, width = images.size // math.prod(p.size), math.prod(padding.size), padding.size[1]
    if padding.size != p.size:
        picks = (whole_axis(planes), *(Pick(before, 1, n) for before, n in zip(padding.before, p.size, strict=True)))
        images = put_part(reshape(images, (planes, *p.size)), picks, (planes, *padding.size))
    if p.images > 1:  # the images are the first digit of a depth
        a = contiguous(transpose(reshape(a, (p.images, p.groups * p.rows, p.inner)), 0, 1))
    inner = p.inner * p.images

    def padded(elements: int) -> int:
        return elements // math.prod(p.size) * pixels

    def parameters_of(digits: Digits, plane: int) -> list[int]:
        return [*digits.bounds, padded(plane), *_words((digits.pixels[0] * width, digits.pixels[1]))]

    c_group = p.rows * p.result_columns
    result.device.dispatch(
        cooperative("convolution_quads"),
        [a.view, images.view, result.view],
        grid_of_products(p.rows, p.columns, p.groups, None),
        (
            *(p.rows, p.columns, inner, p.rows * inner, padded(p.b_group), c_group),
            *(padding.start[0] * width + padding.start[1], p.result_columns, p.groups * c_group),
            *parameters_of(p.column_digits, p.column_digits.plane),
            *parameters_of(p.depth_digits, p.depth_digits.plane or p.b_image),
        ),
    )


def _multiply_bands(result: Tensor, filters: Tensor, images: Tensor, p: ImageProduct) -> bool:
    """Enqueue products by bands of rows, for 3x3 taps on adjacent pixels where `band_launch` gives a kernel.

    Returns:
        False if nothing was enqueued.
    """
    steps = p.depth_digits.pixels
    is_over_taps = p.depth_digits.bounds == (3, 3) and p.depth_digits.plane > 0
    if not is_over_taps or p.column_digits.pixels != (1, 1) or steps not in ((1, 1), (-1, -1)):
        return False
    is_flipped = steps == (-1, -1)
    channels, windows = p.inner // 9, p.column_digits.bounds
    count = p.columns // p.result_columns
    a_group = p.rows * p.inner
    launch = band_launch(
        result.device.capabilities, p.rows, windows, count, p.groups,
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
    if result.device.capabilities.quads:
        _multiply_quads(result, a, images, product)
    elif not _multiply_bands(result, a, images, product):
        _multiply_tiles(result, a, images, product)


def _multiply_tiles(result: Tensor, a: Tensor, images: Tensor, p: ImageProduct) -> None:
    """Enqueue the products by tiles; a long inner axis is cut into parts, whose results are added up."""
    capabilities = result.device.capabilities
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
    return [number % _MODULUS for number in pixels]


def _parts(capabilities: Capabilities, p: ImageProduct) -> tuple[int, int]:
    """Return how many images and depths a part has: all depths of some images, or some depths of one image."""
    depths = p.images * p.inner
    parts = -(-depths // inner_parts(capabilities, p.rows, p.columns, depths, p.groups))
    if parts <= p.images:
        return -(-p.images // parts), p.inner
    return 1, min(p.inner, -(-p.inner * p.images // (parts * _DEPTHS)) * _DEPTHS)


def result_product(w: Windows, images: int, channels: int, filters: int, groups: int) -> ImageProduct:
    """Return the product that gives the result of a convolution: filters by the columns of all images."""
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
    """Return the product that gives the gradient of the images, from that of the result, at a stride of 1.

    In it a tap further to the right reads a window further to the left.
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
    """Return the product that gives the gradient of the filters, from that of the result, added up over the images."""
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

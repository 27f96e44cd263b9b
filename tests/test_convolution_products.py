"""Convolutions on GPUs and software adapters: products read the pixels from the images, and no columns are stored."""

from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.runtime.launches import Launch
from optirs_web.runtime.products import SMALL, TILE_CLASSES, TILES, Tile, TileClass, band_launch, tile_of

_32, _64 = Tile(32, 32, 4, 4, 16), Tile(64, 64, 4, 4, 16)

# The shapes of images and filters, and the options of conv2d.
CONVOLUTIONS = {
    "3x3": ((2, 8, 9, 12), (40, 8, 3, 3), {"padding": 1}),
    "of odd sizes": ((3, 5, 7, 11), (33, 5, 3, 3), {"padding": 1}),
    "of a row": ((2, 3, 1, 37), (5, 3, 1, 5), {"padding": (0, 2)}),
    "without padding": ((1, 4, 6, 6), (3, 4, 5, 5), {}),
    "with more padding than taps": ((2, 3, 4, 5), (4, 3, 2, 2), {"padding": (3, 2)}),
    "with steps": ((2, 6, 11, 10), (7, 6, 3, 3), {"stride": (2, 3), "padding": 1}),
    "with gaps": ((2, 6, 11, 10), (7, 6, 3, 2), {"padding": (2, 1), "dilation": (2, 3)}),
    "with both": ((2, 6, 11, 10), (7, 6, 3, 2), {"stride": (3, 2), "padding": (2, 1), "dilation": (2, 3)}),
    "in groups": ((2, 12, 5, 8), (9, 4, 3, 3), {"padding": 1, "groups": 3}),
    "of each channel": ((2, 6, 6, 6), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "of single pixels": ((3, 20, 4, 4), (36, 20, 1, 1), {}),
    "of some single pixels": ((3, 20, 5, 5), (36, 20, 1, 1), {"stride": 2}),
    "of many windows": ((4, 3, 24, 24), (8, 3, 3, 3), {"padding": 1}),
    "of many channels": ((1, 160, 4, 4), (12, 160, 3, 3), {"padding": 1}),
}


BAND, PIXELS, QUADS = "convolution_band", "convolution", "convolution_quads"
# Shapes that are computed by bands, with the kernels of the result and of the gradient of the images: tiles of 64 and
# 32 filters, partly filled, and each width of a region, partly filled.
BANDS = {
    "8x8": ((2, 36, 8, 8), (65, 36, 3, 3), {"padding": 1}, (64, 8), (64, 8)),
    "16x4, in groups": ((3, 34, 4, 15), (40, 17, 3, 3), {"padding": 1, "groups": 2}, (32, 16), (32, 16)),
    "32x2, of few channels": ((2, 3, 2, 30), (33, 3, 3, 3), {"padding": 1}, (64, 32), None),
    "64x1": ((2, 20, 3, 66), (20, 20, 3, 3), {}, (32, 64), None),
    "of several regions": ((2, 24, 23, 16), (24, 24, 3, 3), {"padding": 1}, (32, 8), (32, 8)),
    "with more padding than taps": ((1, 18, 6, 4), (18, 18, 3, 3), {"padding": (2, 3)}, (32, 8), None),
    "of more pixels than windows": ((1, 20, 10, 18), (17, 20, 3, 3), {}, (32, 8), None),
}


def both(value):
    return value if isinstance(value, tuple) else (value, value)


def by_taps(x, w, g, stride=1, padding=0, dilation=1, groups=1):
    """Return the convolution in float64, and the gradients of images and filters for the gradient g of the result."""
    (down, across), (top, left), (gap_down, gap_across) = map(both, (stride, padding, dilation))
    count, channels, height, width = x.shape
    filters, _, taps_down, taps_across = w.shape
    padded = np.zeros((count, groups, channels // groups, height + 2 * top, width + 2 * left))
    padded[..., top : top + height, left : left + width] = x.reshape(count, groups, -1, height, width)
    high = (height + 2 * top - gap_down * (taps_down - 1) - 1) // down + 1
    wide = (width + 2 * left - gap_across * (taps_across - 1) - 1) // across + 1
    by_group = w.astype(np.float64).reshape(groups, filters // groups, -1, taps_down, taps_across)
    result = np.zeros((count, groups, filters // groups, high, wide))
    slopes = g(result.shape).astype(np.float64)
    of_images, of_filters = np.zeros_like(padded), np.zeros_like(by_group)
    for i in range(taps_down):
        for j in range(taps_across):
            rows = slice(i * gap_down, i * gap_down + (high - 1) * down + 1, down)
            columns = slice(j * gap_across, j * gap_across + (wide - 1) * across + 1, across)
            tap, seen = by_group[..., i, j], padded[..., rows, columns]
            result += np.einsum("goc,ngchw->ngohw", tap, seen)
            of_images[..., rows, columns] += np.einsum("goc,ngohw->ngchw", tap, slopes)
            of_filters[..., i, j] = np.einsum("ngohw,ngchw->goc", slopes, seen)
    of_images = of_images[..., top : top + height, left : left + width]
    shape = (count, filters, high, wide)
    return result.reshape(shape), slopes.reshape(shape), of_images.reshape(x.shape), of_filters.reshape(w.shape)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture
def as_on_gpu(monkeypatch):
    """`as_on_gpu(device, tile)` has a device compute like a GPU with one tile, and returns a list of its kernels."""

    def force(device, tile, workgroups=0, **limits):
        kernels = []
        monkeypatch.setitem(TILE_CLASSES, "forced", TileClass((tile,), workgroups, workgroups))
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False, tiles="forced", **limits))
        monkeypatch.setattr(device, "observers", [lambda kernel, _: kernels.append(kernel)])
        return kernels

    return force


def close(got, want, terms, tolerance=1e-6):
    """Assert that errors are below the bound for sums of so many float32 products."""
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * terms**0.5 * 8)


def equals_float64(device, images, filters, options):
    """Assert that a convolution of these shapes and its gradients equal those in float64."""
    x, w = numbers(*images), numbers(*filters)
    want, slopes, of_images, of_filters = by_taps(x, w, lambda shape: numbers(*shape), **options)
    ours = [ow.tensor(values, device=device, requires_grad=True) for values in (x, w)]
    result = ops.conv2d(*ours, **options)
    result.backward(ow.tensor(slopes.astype(np.float32), device=device))
    close(result.numpy(), want, filters[1] * filters[2] * filters[3])
    close(ours[0].grad.numpy(), of_images, filters[0] * filters[2] * filters[3])
    close(ours[1].grad.numpy(), of_filters, want.size / filters[0])


@pytest.mark.parametrize("cut", [False, True], ids=["at once", "in parts"])
@pytest.mark.parametrize("tile", [_32, _64, SMALL], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_and_its_gradients_equal_float64(open_device, as_on_gpu, name, tile, cut):
    device = open_device("vulkan")
    images, filters, options = CONVOLUTIONS[name]
    kernels = as_on_gpu(device, tile, 64 if cut else 0)
    equals_float64(device, images, filters, options)
    names = [kernel.name for kernel in kernels]
    is_pixelwise = filters[2:] == (1, 1) and "stride" not in options
    assert names.count(PIXELS) == 3 - is_pixelwise - ("stride" in options)
    assert "unfold" not in names or "stride" in options
    assert all(tile_of(kernel) == tile for kernel in kernels if kernel.name == PIXELS)
    if name in ("of many windows", "of many channels"):
        assert ("sum" in names) == cut


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_by_quads_and_its_gradients_equal_float64(open_device, monkeypatch, name):
    device = open_device("vulkan")
    assert device.capabilities.quads
    kernels = []
    monkeypatch.setattr(device, "observers", [lambda kernel, _: kernels.append(kernel.name)])
    images, filters, options = CONVOLUTIONS[name]
    equals_float64(device, images, filters, options)
    is_pixelwise = filters[2:] == (1, 1) and "stride" not in options
    assert kernels.count(QUADS) == 3 - is_pixelwise - ("stride" in options)
    assert "unfold" not in kernels


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"max_iterations": 16}, (5, 8, 8)),
        ({"max_workgroups": 4}, (3, 18, 18)),
        ({"max_binding_bytes": 4096}, (28, 6, 6)),
    ],
    ids=["the inner axis", "the grid", "a binding"],
)
def test_quads_are_given_columns_where_a_launch_would_exceed_a_limit(open_device, monkeypatch, limits, size):
    device = open_device("vulkan")
    kernels = []
    monkeypatch.setattr(device, "observers", [lambda kernel, _: kernels.append(kernel.name)])
    x, w = (ow.tensor(numbers(*shape), device=device) for shape in ((1, *size), (4, size[0], 3, 3)))
    want = ops.conv2d(x, w, padding=1).numpy()
    assert kernels == ["place", QUADS]
    with monkeypatch.context() as limited:
        limited.setattr(device, "capabilities", replace(device.capabilities, **limits))
        got = ops.conv2d(x, w, padding=1)
    assert QUADS not in kernels[2:]
    close(got.numpy(), want, 9 * size[0])


@pytest.mark.parametrize("name", BANDS)
def test_a_convolution_by_bands_and_its_gradients_equal_float64(open_device, as_on_gpu, name):
    device = open_device("vulkan")
    images, filters, options, *bands = BANDS[name]
    kernels = as_on_gpu(device, _32)
    equals_float64(device, images, filters, options)
    used = [kernel for kernel in kernels if kernel.name in (BAND, PIXELS)]
    assert [kernel.name for kernel in used] == [BAND if bands_ else PIXELS for bands_ in (*bands, None)]
    tiles = [
        (kernel.constants["TILE_ROWS"], kernel.constants["REGION_WIDTH"]) for kernel in used if kernel.name == BAND
    ]
    assert tiles == [band for band in bands if band]


@pytest.mark.parametrize(
    ("filters", "windows", "images", "groups", "expected"),
    [
        (64, (32, 32), 8, 1, (64, 8, (128, 1))),
        (64, (32, 32), 2, 1, (32, 8, (32, 2))),  # half as many workgroups by the larger tile
        (64, (32, 32), 1, 1, None),  # and too few by the smaller: by tiles their inner axis may be cut
        (128, (28, 28), 16, 1, (64, 16, (224, 2))),
        (128, (14, 14), 64, 1, None),  # of 256 windows 60 would be on no image
        (256, (8, 8), 32, 1, (64, 8, (32, 4))),
        (16, (32, 32), 64, 1, None),
        (20, (32, 32), 64, 4, (32, 8, (1024, 4))),
        (64, (256, 256), 64, 1, None),  # more regions than a grid has workgroups
    ],
)
def test_bands_are_taken_where_regions_fill_images_and_a_gpu(open_device, filters, windows, images, groups, expected):
    capabilities = replace(open_device("vulkan").capabilities, quads=False, tiles="discrete", max_workgroups=65_535)
    launch = band_launch(capabilities, filters, windows, images, groups)
    actual = launch and (*map(launch[0].constants.get, ("TILE_ROWS", "REGION_WIDTH")), launch[1])
    assert actual == expected


@pytest.mark.parametrize("filters", [4, 20], ids=["by tiles", "by bands"])
def test_pixels_that_are_not_finite_stay_in_their_windows(open_device, as_on_gpu, filters):
    device = open_device("vulkan")
    x, w = numbers(2, 3, 7, 8), numbers(filters, 3, 3, 3)
    x[0, 1, 3, 2], x[1, 2, 6, 7] = np.inf, np.nan
    as_on_gpu(device, _32)
    result = ops.conv2d(ow.tensor(x, device=device), ow.tensor(w, device=device), padding=1).numpy()
    seen = np.zeros((2, 7, 8), bool)
    seen[0, 2:5, 1:4] = seen[1, 5:7, 6:8] = True
    np.testing.assert_array_equal(np.isfinite(result), np.broadcast_to(~seen[:, None], result.shape))


def test_more_columns_than_a_grid_takes_are_computed_in_several_launches(open_device, as_on_gpu):
    device = open_device("vulkan")
    x, w = numbers(3, 2, 9, 10), numbers(3, 2, 3, 3)
    want, *_ = by_taps(x, w, np.zeros, padding=1)
    kernels = as_on_gpu(device, _32, max_workgroups=4)
    result = ops.conv2d(ow.tensor(x, device=device), ow.tensor(w, device=device), padding=1)
    close(result.numpy(), want, 18)
    assert [kernel.name for kernel in kernels] == [PIXELS] * 3  # 270 columns, 128 at once


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("bfloat16", 8e-3)])
@pytest.mark.parametrize(("images", "filters"), [((2, 40, 5, 5), (8, 40, 3, 3)), ((4, 8, 8, 8), (24, 8, 3, 3))])
def test_images_and_filters_of_16_bits_are_read_and_written(open_device, as_on_gpu, images, filters, dtype, tolerance):
    device = open_device("vulkan")
    as_on_gpu(device, _32, 4)
    x, w = (ow.tensor(values, device=device).astype(dtype) for values in (numbers(*images), numbers(*filters)))
    want, *_ = by_taps(x.float().numpy(), w.float().numpy(), np.zeros, padding=1)
    result = ops.conv2d(x, w, padding=1)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.float().numpy(), want, rtol=tolerance, atol=20 * tolerance)


@pytest.mark.parametrize(("filters", "name"), [(16, PIXELS), (24, BAND)])
def test_what_follows_a_convolution_is_computed_with_it(open_device, as_on_gpu, filters, name):
    device = open_device("vulkan")
    as_on_gpu(device, _64)
    x, w, bias = numbers(2, 3, 32, 32), numbers(filters, 3, 3, 3), numbers(filters)
    want, *_ = by_taps(x, w, np.zeros, padding=1)
    inputs = [ow.tensor(values, device=device) for values in (x, w, bias)]
    step = ow.compile(lambda x, w, bias: ops.conv2d(x, w, bias, padding=1).relu(), device=device)
    close(step(*inputs).numpy(), np.maximum(want + bias[:, None, None], 0), 27)
    assert [launch.kernel.name for launch in step.program.launches if isinstance(launch, Launch)] == [
        f"{name}+add+relu"
    ]


@pytest.mark.parametrize("family", ["tiles", "quads"])
def test_no_columns_are_stored(open_device, as_on_gpu, family):
    device = open_device("vulkan")
    if family == "tiles":
        as_on_gpu(device, _32)
    x = ow.tensor(numbers(16, 8, 32, 32), device=device, requires_grad=True)
    weight = ow.Parameter(numbers(8, 8, 3, 3), device=device)
    before = device.memory_stats().live_bytes
    with ow.memory_timeline(device) as timeline:
        ops.conv2d(x, weight, padding=1).sum().backward()
    images = {"tiles": 4, "quads": 6}[family]  # the result, both gradients, padded copies; columns are 9 times as much
    assert timeline.peak - before < images * 4 * x.size


def test_a_library_that_multiplies_is_given_columns(open_device, as_on_gpu):
    device = open_device("vulkan")
    kernels = as_on_gpu(device, _32, replaced=frozenset({"matmul"}))
    ops.conv2d(ow.tensor(numbers(1, 2, 4, 4), device=device), ow.tensor(numbers(2, 2, 3, 3), device=device))
    assert [kernel.name for kernel in kernels] == ["unfold", "matmul"]


def test_tiles_with_more_rows_than_64_are_not_taken(open_device, as_on_gpu):
    device = open_device("vulkan")
    kernels = as_on_gpu(device, _32)
    TILE_CLASSES["forced"] = TileClass((*sorted(TILES, reverse=True)[:2], _64, _32), 0, 0)
    ops.conv2d(ow.tensor(numbers(1, 2, 16, 16), device=device), ow.tensor(numbers(256, 2, 3, 3), device=device))
    assert [tile_of(kernel) for kernel in kernels] == [_64]

"""Windows that slide over images, in NumPy: a pass for each tap, over all windows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...arrays.numpy_arrays import strided

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


class _Tap(NamedTuple):
    """The windows that have a tap on a pixel, and these pixels; along the last two axes."""

    number: int
    windows: tuple[Any, ...]
    pixels: tuple[Any, ...]


def _along(p: Parameters, axis: str, tap: int) -> tuple[slice, slice]:
    """The windows and the pixels of a tap along one axis."""
    before = p["top" if axis == "height" else "left"] - tap * p[f"dilation_{axis}"]
    step, size, windows = p[f"stride_{axis}"], p[axis], p[f"out_{axis}"]
    first = -(-max(before, 0) // step)
    end = max(first, min(windows, (size - 1 + before) // step + 1))
    start = first * step - before
    return slice(first, end), slice(start, start + (end - first) * step, step)


def _taps(p: Parameters) -> Iterator[_Tap]:
    columns = [_along(p, "width", tap) for tap in range(p["kernel_width"])]
    for row in range(p["kernel_height"]):
        windows, pixels = _along(p, "height", row)
        for column, (across, over) in enumerate(columns):
            number = row * p["kernel_width"] + column
            yield _Tap(number, (..., windows, across), (..., pixels, over))


def _images(p: Parameters, raw: Array, planes: int) -> Array:
    pixels = p["height"] * p["width"]
    flat = raw.view(np.float32)[p["first"] : p["first"] + planes * pixels]
    return flat.reshape(planes, p["height"], p["width"])


def _windows(p: Parameters, raw: Array, planes: int, dtype: Any = np.float32) -> Array:
    """A value for each window."""
    shape = (planes, p["out_height"], p["out_width"])
    values: Array = raw.view(dtype)[: planes * shape[1] * shape[2]]
    return values.reshape(shape)


class _Shift(NamedTuple):
    """A tap of windows at strides of 1, as many as the image has pixels: the image, shifted as one flat plane.

    Attributes:
        number: of the tap in a window.
        windows: the flat range of windows whose tap is within the plane.
        pixels: the flat range of pixels under that tap.
        wrapped: the columns of windows whose tap is left or right of the image: in the flat plane it lies on a pixel of
            the row before or after, whose value does not count. None if there are no such columns.
    """

    number: int
    windows: slice
    pixels: slice
    wrapped: slice | None


def _is_shifted(p: Parameters) -> bool:
    """Return whether each tap of all windows is the image shifted."""
    return all(p[f"stride_{axis}"] == 1 and p[f"out_{axis}"] == p[axis] for axis in ("height", "width"))


def _shifts(p: Parameters) -> Iterator[_Shift]:
    size, width = p["height"] * p["width"], p["width"]
    for number in range(p["kernel_height"] * p["kernel_width"]):
        row, column = divmod(number, p["kernel_width"])
        across = column * p["dilation_width"] - p["left"]
        offset = (row * p["dilation_height"] - p["top"]) * width + across
        first, end = min(size, max(0, -offset)), max(0, size - max(0, offset))
        wrapped = None if across == 0 else slice(0, -across) if across < 0 else slice(max(0, width - across), width)
        end = max(first, end)
        yield _Shift(number, slice(first, end), slice(first + offset, end + offset), wrapped)


def _unfold(p: Parameters, images: Array, columns: Array) -> None:
    grid = (p["out_height"], p["out_width"])
    planes, taps = p["size"] // (grid[0] * grid[1]), p["kernel_height"] * p["kernel_width"]
    target = columns.view(np.float32)[: taps * p["size"]].reshape(planes, taps, *grid)
    source = _images(p, images, planes)
    if _is_shifted(p):
        flat, pixels = target.reshape(planes, taps, -1), source.reshape(planes, -1)
        for shift in _shifts(p):
            windows = flat[:, shift.number]
            windows[:, : shift.windows.start] = 0
            windows[:, shift.windows] = pixels[:, shift.pixels]
            windows[:, shift.windows.stop :] = 0
            if shift.wrapped:
                target[:, shift.number, :, shift.wrapped] = 0
        return
    if p["top"] or p["left"] or _reaches_over(p):
        target[:] = 0
    for tap in _taps(p):
        target[:, tap.number][tap.windows] = source[tap.pixels]


def _reaches_over(p: Parameters) -> bool:
    """The last window has taps beyond the last pixel."""
    return any(
        (p[f"out_{axis}"] - 1) * p[f"stride_{axis}"] + (p[f"kernel_{axis}"] - 1) * p[f"dilation_{axis}"] >= p[axis]
        for axis in ("height", "width")
    )


def _fold(p: Parameters, columns: Array, images: Array) -> None:
    planes = p["size"] // (p["height"] * p["width"])
    target = _images(p, images, planes)
    taps = p["kernel_height"] * p["kernel_width"]
    strides = (p["plane_stride"], p["tap_stride"], p["out_width"], 1)
    values = strided(columns.view(np.float32), 0, (planes, taps, p["out_height"], p["out_width"]), strides)
    target[:] = 0
    if _is_shifted(p):
        flat, moved = target.reshape(planes, -1), np.empty_like(target)
        for shift in _shifts(p):
            np.copyto(moved, values[:, shift.number])
            if shift.wrapped:
                moved[..., shift.wrapped] = 0
            flat[:, shift.pixels] += moved.reshape(planes, -1)[:, shift.windows]
        return
    for tap in _taps(p):
        target[tap.pixels] += values[:, tap.number][tap.windows]


def _window_sums(p: Parameters, images: Array, sums: Array) -> None:
    planes = p["size"] // (p["out_height"] * p["out_width"])
    source, target = _images(p, images, planes), _windows(p, sums, planes)
    target[:] = 0
    for tap in _taps(p):
        target[tap.windows] += source[tap.pixels]


def _window_largest(p: Parameters, images: Array, values: Array, indices: Array) -> None:
    """The pixels of a tap are brought together first: comparing rows of a small image one by one takes far longer."""
    count = p["kernel_height"] * p["kernel_width"]
    planes = p["size"] // (p["out_height"] * p["out_width"])
    source, largest = _images(p, images, planes), _windows(p, values, planes)
    seen = np.full((count, *largest.shape), -np.inf, np.float32)
    first = np.full(largest.shape[1:], count, np.int32)  # tap on the image
    for tap in _taps(p):
        seen[tap.number][tap.windows] = source[tap.pixels]
        first[tap.windows] = np.minimum(first[tap.windows], tap.number)
    chosen = np.broadcast_to(first, largest.shape).copy()
    largest[:] = -np.inf
    for number, pixels in enumerate(seen):
        np.copyto(chosen, number, where=pixels > largest)
        np.maximum(largest, pixels, out=largest)
    if np.isnan(largest).any():
        for number, pixels in enumerate(seen):
            np.copyto(chosen, number, where=np.isnan(pixels))
    _windows(p, indices, planes, np.int32)[:] = np.where(
        first == count, -1, _first_pixels(p) + _pixel_offsets(p)[chosen]
    )


def _first_pixels(p: Parameters) -> Array:
    """The pixel, counted along the rows, where a window begins: before the image for some."""
    rows = np.arange(p["out_height"]) * p["stride_height"] - p["top"]
    columns = np.arange(p["out_width"]) * p["stride_width"] - p["left"]
    pixels: Array = rows[:, None] * p["width"] + columns
    return pixels


def _pixel_offsets(p: Parameters) -> Array:
    """Return the offset of each tap from the start of its window, in pixels; then 0, for no tap."""
    rows = np.arange(p["kernel_height"]) * p["dilation_height"]
    columns = np.arange(p["kernel_width"]) * p["dilation_width"]
    return np.append(rows[:, None] * p["width"] + columns, 0)


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "fold": _fold,
    "unfold": _unfold,
    "window_largest": _window_largest,
    "window_sums": _window_sums,
}

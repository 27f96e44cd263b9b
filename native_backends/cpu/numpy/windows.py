"""Kernels over windows that slide over planes: a pass for each tap, over all windows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ....kernel import Kernel
from ....lower.windows import WindowAxis, WindowOperation, window_operation
from ...arrays.numpy_arrays import strided
from .library import DTYPES

__all__ = ["bind_windows"]

Array = np.ndarray[Any, Any]
Axes = tuple[WindowAxis, WindowAxis]

_KEPT = 64
"""Small launches whose taps are remembered."""
_FEW_TAPS = 128
"""Taps of a small launch."""
_SMALL_PLANE = 4096
"""Elements of the plane of a small launch."""

_NARROW = 16
"""Elements of a row up to which planes are taken for flat, since NumPy loops over rows."""


class _Tap(NamedTuple):
    """The windows whose tap is over an element, and these elements.

    Attributes:
        number: of the tap.
        windows: an index of those, along the last axes.
        elements: an index of these, along the axis of taps and the last ones.
        wrapped: where both are flat ranges, the columns of windows whose tap is left or right of the plane: the flat
            range has an element of the row before or after there, which does not count. None if there are none.
    """

    number: int
    windows: tuple[Any, ...]
    elements: tuple[Any, ...]
    wrapped: slice | None = None


def _is_small(axes: Axes) -> bool:
    """Return whether NumPy takes as long over what is to be remembered as over the rest."""
    down, across = axes
    return down.taps * across.taps <= _FEW_TAPS and down.size * across.size <= _SMALL_PLANE


def _taps(axes: Axes) -> Iterable[_Tap]:
    """Return the taps of windows."""
    return _kept_taps(axes) if _is_small(axes) else _each_tap(axes)


def _each_tap(axes: Axes) -> Iterator[_Tap]:
    down, across = ([_along(axis, tap) for tap in range(axis.taps)] for axis in axes)
    for number, ((rows, rows_under), (columns, columns_under)) in enumerate(product(down, across)):
        yield _Tap(number, (..., rows, columns), (..., number, rows_under, columns_under))


@lru_cache(_KEPT)
def _kept_taps(axes: Axes) -> tuple[_Tap, ...]:
    return tuple(_each_tap(axes))


def _along(axis: WindowAxis, tap: int) -> tuple[slice, slice]:
    """Return the windows and the elements of a tap along one axis, both at equal distances."""
    start = axis.start + tap * axis.tap_step
    common = math.gcd(axis.step, axis.spacing)
    if start % common:
        return slice(0, 0), slice(0, 0)
    between, apart = axis.spacing // common, axis.step // common
    # The first window from 0 and from element 0 on of which step * window + start is a multiple of the spacing.
    first, least = -start // common * pow(apart, -1, between) % between, max(0, -(start // axis.step))
    first += -(-(least - first) // between) * between
    last = min(axis.grid - 1, ((axis.size - 1) * axis.spacing - start) // axis.step)
    if last < first:
        return slice(0, 0), slice(0, 0)
    element = (first * axis.step + start) // axis.spacing
    steps = (last - first) // between
    return slice(first, first + steps * between + 1, between), slice(element, element + steps * apart + 1, apart)


def _is_shifted(axes: Axes) -> bool:
    """Return whether each tap of all windows is over the plane shifted."""
    return all(axis.grid == axis.size and axis.step == axis.spacing == 1 for axis in axes)


def _shifts(axes: Axes) -> Iterable[_Tap]:
    """Return the taps of windows with ranges of planes that are taken for flat."""
    return _kept_shifts(axes) if _is_small(axes) else _each_shift(axes)


@lru_cache(_KEPT)
def _kept_shifts(axes: Axes) -> tuple[_Tap, ...]:
    return tuple(_each_shift(axes))


def _each_shift(axes: Axes) -> Iterator[_Tap]:
    down, across = axes
    size, width = down.size * across.size, across.size
    for number in range(down.taps * across.taps):
        row, column = divmod(number, across.taps)
        right = across.start + column * across.tap_step
        offset = (down.start + row * down.tap_step) * width + right
        first, end = min(size, max(0, -offset)), max(0, size - max(0, offset))
        end = max(first, end)
        wrapped = None if right == 0 else slice(0, -right) if right < 0 else slice(max(0, width - right), width)
        yield _Tap(number, (..., slice(first, end)), (..., number, slice(first + offset, end + offset)), wrapped)


class _Launch(NamedTuple):
    """A kernel's arrays, the planes first.

    Attributes:
        axes: its windows, along the height and the width.
        source: the elements, (planes, taps, height, width), the same for all taps where they have none of their own.
        places: of elements, likewise, or of windows, (planes, height, width), the tap to which they belong, if they do.
        results: for windows (planes, height, width), for copies (planes, taps, height, width).
    """

    axes: Axes
    source: Array
    places: Array | None
    results: list[Array]


def bind_windows(form: Kernel, arrays: Sequence[Array], values: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that runs a kernel in the layout of windows over these buffers."""
    axes, operation = WindowAxis.both(values), window_operation(form)
    grid, plane, taps = (axes[0].grid, axes[1].grid), (axes[0].size, axes[1].size), values["columns"]
    planes, first_result = values["rows"] // (grid[0] * grid[1]), values["first_result"]
    strides = values["plane_stride"], values["tap_stride"], plane[1], 1
    operands = [
        strided(array.view(DTYPES[read.type]), values["first"], (planes, taps, *plane), strides)
        if kind == "element"
        else array.view(DTYPES[read.type])[: planes * grid[0] * grid[1]].reshape(planes, *grid)
        for array, read, kind in zip(arrays, form.reads, form.kinds, strict=False)
    ]
    shape = (planes, taps, *grid) if operation == "copy" else (planes, *grid)
    results = [
        array.view(DTYPES[write.type])[first_result : first_result + math.prod(shape)].reshape(shape)
        for array, write in zip(arrays[len(form.reads) :], form.writes, strict=True)
    ]
    run = _RUN[operation]
    if operation == "sum by element" and (values["tap_stride"] or not all(axis.step == 1 for axis in axes)):
        run = _add_some  # an element has several windows under the same tap, or taps elements of their own
    return partial(run, _Launch(axes, operands[0], operands[1] if len(operands) > 1 else None, results))


def _flat(array: Array) -> Array:
    """Return an array with its planes flat."""
    return array.reshape(*array.shape[:-2], -1)


def _copy(launch: _Launch) -> None:
    """Copy the element under each tap of each window, or 0."""
    axes, source, _, (target,) = launch
    if _is_shifted(axes):
        flat, flat_source = _flat(target), _flat(source)
        for number, windows, elements, wrapped in _shifts(axes):
            copied = flat[:, number]
            copied[:, : windows[-1].start] = 0
            copied[windows] = flat_source[elements]
            copied[:, windows[-1].stop :] = 0
            if wrapped:
                target[:, number, :, wrapped] = 0
        return
    if not all(_is_everywhere(axis) for axis in axes):
        target[:] = 0
    for number, windows, elements, _ in _taps(axes):
        target[:, number][windows] = source[elements]


def _is_everywhere(axis: WindowAxis) -> bool:
    """Return whether each tap has an element under it."""
    reach = (axis.grid - 1) * axis.step + (axis.taps - 1) * axis.tap_step + axis.start
    return axis.spacing == 1 and axis.start >= 0 and axis.tap_step > 0 and reach < axis.size


def _add(launch: _Launch) -> None:
    """Add up the elements under the taps of each window."""
    axes, source, _, (target,) = launch
    target[:] = 0
    if not (_is_shifted(axes) and axes[1].size <= _NARROW):
        for _, windows, elements, _ in _taps(axes):
            sums = target[windows]
            sums += source[elements]
        return
    moved, flat, flat_source = np.empty_like(target), _flat(target), _flat(source)
    flat_moved = _flat(moved)
    for _, windows, elements, wrapped in _shifts(axes):
        added = flat_source[elements]
        if wrapped:
            flat_moved[windows] = added
            moved[..., wrapped] = 0
            added = flat_moved[windows]
        sums = flat[windows]
        sums += added


def _add_some(launch: _Launch) -> None:
    """Add up the elements whose place, or that of the window, is the tap over them."""
    axes, source, places, (target,) = launch
    assert places is not None
    target[:] = 0
    are_of_elements = places.ndim == source.ndim
    for number, windows, elements, _ in _taps(axes):
        is_chosen = places[elements if are_of_elements else windows] == number
        np.add(target[windows], source[elements], out=target[windows], where=is_chosen)


def _windows_of_elements(axes: Axes) -> tuple[Array, Array]:
    """Return the window whose first tap is over each element, and how much less that of another tap is.

    Places in the grid are taken for flat, and windows are one position apart.
    """
    return _kept_windows(axes) if _is_small(axes) else _computed_windows(axes)


@lru_cache(_KEPT)
def _kept_windows(axes: Axes) -> tuple[Array, Array]:
    return _computed_windows(axes)


def _computed_windows(axes: Axes) -> tuple[Array, Array]:
    width = axes[1].grid
    down, across = (np.arange(axis.size) * axis.spacing - axis.start for axis in axes)
    taps_down, taps_across = (np.arange(axis.taps) * axis.tap_step for axis in axes)
    return down[:, None] * width + across, (taps_down[:, None] * width + taps_across).ravel()


def _add_to_windows(launch: _Launch) -> None:
    """Add each element to the window whose tap, the element's place, is over it; it is within the grid."""
    axes, source, places, (target,) = launch
    assert places is not None
    places = places[:, 0]
    first, less = _windows_of_elements(axes)
    windows = less.take(places, mode="clip")
    np.subtract(first, windows, out=windows)
    windows += np.arange(len(target)).reshape(-1, 1, 1) * target[0].size
    values = source[:, 0]
    if places.min() < 0:
        is_chosen = places >= 0
        windows, values = windows[is_chosen], values[is_chosen]
    target[:] = np.bincount(windows.ravel(), values.ravel(), minlength=target.size).reshape(target.shape)


def _largest(launch: _Launch) -> None:
    """Find the largest element of each window, and its tap: the first of equal ones, but the last NaN.

    Those of a tap are brought together first: comparing rows of a small plane one by one takes far longer.
    """
    axes, source, _, (largest, places) = launch
    taps = list(_taps(axes))
    seen = np.full((len(taps), *largest.shape), -np.inf, np.float32)
    first = np.full(largest.shape[1:], -1, np.int32)
    for number, windows, elements, _ in reversed(taps):
        seen[number][windows] = source[elements]
        first[windows] = number
    places[:] = first
    largest[:] = -np.inf
    for number, values in enumerate(seen):
        np.copyto(places, number, where=values > largest)
        np.maximum(largest, values, out=largest)
    if np.isnan(largest).any():
        for number, values in enumerate(seen):
            np.copyto(places, number, where=np.isnan(values))


_RUN: dict[WindowOperation, Callable[[_Launch], None]] = {
    "copy": _copy,
    "sum": _add,
    "sum by window": _add_some,
    "sum by element": _add_to_windows,
    "largest": _largest,
}

"""Kernels over windows that slide over planes: a pass for each tap, over all windows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial, wraps
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ....kernel import Kernel
from ....lower.windows import WindowAxis
from ...arrays.numpy_arrays import strided
from .library import DTYPES

__all__ = ["bind_windows"]

Array = np.ndarray[Any, Any]
Axes = tuple[WindowAxis, WindowAxis]
Made = TypeVar("Made")

_KEPT = 64
"""Small launches of which is remembered what is under their taps."""

_FEW_TAPS, _SMALL_PLANE = 128, 4096
"""Taps of a small launch, and elements of its plane."""

_NARROW = 16
"""Elements of a row up to which planes are taken for flat, since NumPy loops over rows."""


class _Tap(NamedTuple):
    """The windows that have an element under a tap, and these elements.

    Attributes:
        number: of the tap.
        windows: those, along the last axes.
        elements: these, along the axis of taps and the last ones.
        wrapped: where both are flat ranges, the columns of windows beside the plane: there lies an element of the row
            before or after, which does not count. None if there are no such columns.
    """

    number: int
    windows: tuple[Any, ...]
    elements: tuple[Any, ...]
    wrapped: slice | None = None


def _remembered(make: Callable[[Axes], Iterable[Made]]) -> Callable[[Axes], Iterable[Made]]:
    """Return the function, but with its results remembered for small launches, where it takes as long as the rest."""
    kept = lru_cache(_KEPT)(lambda axes: tuple(make(axes)))

    @wraps(make)
    def of(axes: Axes) -> Iterable[Made]:
        down, across = axes
        is_small = down.taps * across.taps <= _FEW_TAPS and down.size * across.size <= _SMALL_PLANE
        return kept(axes) if is_small else make(axes)

    return of


@_remembered
def _taps(axes: Axes) -> Iterator[_Tap]:
    down, across = ([_along(axis, tap) for tap in range(axis.taps)] for axis in axes)
    for number, ((rows, rows_under), (columns, columns_under)) in enumerate(product(down, across)):
        yield _Tap(number, (..., rows, columns), (..., number, rows_under, columns_under))


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
    """Return whether each tap of all windows lies on the plane shifted."""
    return all(axis.grid == axis.size and axis.step == axis.spacing == 1 for axis in axes)


@_remembered
def _shifts(axes: Axes) -> Iterator[_Tap]:
    """Return the taps with ranges of the planes taken for flat."""
    down, across = axes
    size, width = down.size * across.size, across.size
    for number in range(down.taps * across.taps):
        row, column = divmod(number, across.taps)
        beside = across.start + column * across.tap_step
        offset = (down.start + row * down.tap_step) * width + beside
        first, end = min(size, max(0, -offset)), max(0, size - max(0, offset))
        end = max(first, end)
        wrapped = None if beside == 0 else slice(0, -beside) if beside < 0 else slice(max(0, width - beside), width)
        yield _Tap(number, (..., slice(first, end)), (..., number, slice(first + offset, end + offset)), wrapped)


class _Launch(NamedTuple):
    """A kernel with its arrays, the planes first.

    Attributes:
        axes: its windows, along the height and the width.
        source: what lies under the taps, (planes, taps, height, width).
        places: the tap for which something counts: of elements, likewise, or of windows, (planes, height, width).
        results: for windows (planes, height, width), for elements (planes, taps, height, width).
    """

    axes: Axes
    source: Array
    places: Array | None
    results: list[Array]


def bind_windows(form: Kernel, arrays: Sequence[Array], values: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that runs a kernel in the layout of windows over these buffers."""
    axes = WindowAxis.both(values)
    grid, plane, taps = (axes[0].grid, axes[1].grid), (axes[0].size, axes[1].size), values["columns"]
    planes, count = values["rows"] // (grid[0] * grid[1]), len(form.reads)
    source, *places = (array.view(DTYPES[read.type]) for array, read in zip(arrays, form.reads, strict=False))
    strides = values["plane_stride"], values["tap_stride"], plane[1], 1
    elements, first = strided(source, values["first"], (planes, taps, *plane), strides), values["first_result"]
    shape = (planes, *grid) if form.reduced else (planes, taps, *grid)
    results = [
        array.view(DTYPES[write.type])[first : first + math.prod(shape)].reshape(shape)
        for array, write in zip(arrays[count:], form.writes, strict=True)
    ]
    launch = _Launch(axes, elements, None, results)
    if not form.reduced:
        return partial(_copy, launch)
    if form.finds_elements:
        return partial(_largest, launch)
    if not places:
        return partial(_add, launch)
    if form.kinds[1] == "row":
        return partial(_add_chosen, launch._replace(places=places[0][: planes * grid[0] * grid[1]].reshape(shape)))
    launch = launch._replace(places=strided(places[0], values["first"], (planes, taps, *plane), strides))
    is_scattered = all(axis.step == 1 for axis in axes) and values["tap_stride"] == 0
    return partial(_add_to_chosen if is_scattered else _add_chosen, launch)


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


def _add_chosen(launch: _Launch) -> None:
    """Add up the elements whose place, or that of the window, is the tap over them."""
    axes, source, places, (target,) = launch
    assert places is not None
    target[:] = 0
    for number, windows, elements, _ in _taps(axes):
        is_chosen = places[elements if places.ndim > target.ndim else windows] == number
        np.add(target[windows], source[elements], out=target[windows], where=is_chosen)


@_remembered
def _windows_of_elements(axes: Axes) -> tuple[Array, Array]:
    """Return the window that has each element under its first tap, and how much less that of another tap is.

    Places in the grid are taken for flat.
    """
    width = axes[1].grid
    down, across = (np.arange(axis.size) * axis.spacing - axis.start for axis in axes)
    taps_down, taps_across = (np.arange(axis.taps) * axis.tap_step for axis in axes)
    return down[:, None] * width + across, (taps_down[:, None] * width + taps_across).ravel()


def _add_to_chosen(launch: _Launch) -> None:
    """Add each element to the window that has the tap which is its place over it; windows are one position apart."""
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

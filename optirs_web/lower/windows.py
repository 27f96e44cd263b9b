"""A kernel over windows as a WGSL compute shader: what the taps of a window lie on is a row, and a tap is a column.

The windows slide over planes, and there is one at each place of a grid. An invocation goes through the taps of a window
one after the other. Where no element lies under a tap, nothing is reduced, and what is written for elements is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..kernel import Kernel, Part, Take, Value
from ..wgsl import shell
from .shader import Scope, hooks_of, imports_of, row_bindings, store

__all__ = ["INVOCATIONS", "WindowAxis", "axis_parameters", "need_window_kernel", "window_parameters", "window_source"]

INVOCATIONS = 256
"""Invocations of a workgroup, each of which takes a window."""


class WindowAxis(NamedTuple):
    """Windows that slide along one axis of a plane, whose elements are `spacing` positions apart.

    Attributes:
        grid: how many windows there are.
        size: of the plane.
        taps: of a window.
        step: positions from a window to the next.
        start: position of the first tap of the first window.
        spacing: positions from an element of the plane to the next.
        tap_step: positions from a tap to the next.
    """

    grid: int
    size: int
    taps: int
    step: int
    start: int
    spacing: int
    tap_step: int

    @staticmethod
    def both(values: Mapping[str, Any]) -> tuple[WindowAxis, WindowAxis]:
        """Return those along the height and along the width, from the parameters of a launch."""
        return WindowAxis(*_OF_HEIGHT(values)), WindowAxis(*_OF_WIDTH(values))


_OF_HEIGHT, _OF_WIDTH = (itemgetter(*(f"{name}_{axis}" for name in WindowAxis._fields)) for axis in "yx")


@lru_cache
def axis_parameters(axes: tuple[WindowAxis, WindowAxis]) -> tuple[int, ...]:
    """Return the parameters of a launch that its axes give."""
    parameters: list[int] = []
    for axis in axes:
        period = axis.spacing // math.gcd(axis.tap_step, axis.spacing)
        parameters += [*axis, axis.tap_step % axis.spacing, period, axis.tap_step * period // axis.spacing]
    return tuple(parameters)


_OF_AXES = (
    ("grid", "u32"),  # windows
    ("size", "u32"),  # of a plane
    ("taps", "u32"),  # of a window
    ("step", "u32"),  # positions from a window to the next
    ("start", "i32"),  # position of the first tap of the first window
    ("spacing", "u32"),  # positions from an element of the plane to the next
    ("tap_step", "i32"),  # positions from a tap to the next
    ("rest", "u32"),  # of that, divided by the spacing
    ("period", "u32"),  # taps from one that has an element under it to the next,
    ("jump", "i32"),  # and elements
)
_PARAMETERS = (
    ("rows", "u32"),  # windows of all planes
    ("columns", "u32"),  # taps of a window
    ("first", "u32"),  # element of the first plane
    ("first_result", "u32"),
    ("plane_stride", "u32"),
    ("tap_stride", "u32"),  # from what a plane has for a tap to what it has for the next
    *((f"{name}_{axis}", type_) for axis in ("y", "x") for name, type_ in _OF_AXES),
)

_OF_FIRST_TAP = ("taps", "step", "start", "spacing", "tap_step", "rest")
_IMPORTS_OF_FOUND = """\
import package::lib::extremes::{Candidate, no_candidate, rank_of_f32};
import package::lib::math::infinity;
import package::lib::windows::larger;
"""


def need_window_kernel(kernel: Kernel) -> None:
    """Check that the lowerings have all that a kernel needs.

    Raises:
        UnsupportedError: it does other than add up rows, or write the largest element of each and its column, or copy
            elements.
    """
    combined = [part.combine for _, part in kernel.computed if part.over]
    of_elements = [part for value, part in kernel.computed if not kernel.level_of_call(value)]
    is_known = kernel.rank == 2 and all(kernel.returns_argument(part.function) for part in of_elements)
    if kernel.finds_elements:
        written = [type(value.source) for value in kernel.written.values()]
        is_known &= combined == ["argmax"] and written == [Take, Part] and len(kernel.reads) == 1
    elif kernel.reduced:
        is_known &= combined == ["sum"] and len(kernel.computed) == len(kernel.writes) == 1
    else:
        is_known &= not kernel.computed and len(kernel.reads) == len(kernel.writes) == 1
    if not is_known:
        raise UnsupportedError(
            f"kernel '{kernel.name}': over windows it has to add up what it reads, or to write the largest of that and "
            "its column, or to copy elements"
        )


def window_parameters(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Return name and type of the parameters of a dispatch."""
    return (*_PARAMETERS, *kernel.numbers.items())


def window_source(kernel: Kernel) -> str:
    """Return the shader of a kernel; see `shader.row_source`.

    A window's `row` is its number among all, its `column` that of a tap.
    """
    rows = Scope(kernel, "element", "row")
    elements = rows.elements()
    if not kernel.reduced:
        ((array, value),) = kernel.written.items()
        elements.statements.append(f"own = {elements.name_of(value.name)};")
        stored = store(kernel, array, "result + column * places", "own")
        return _file(kernel, [], ["var own = 0.0;"], elements.statements, [stored], [])
    own, found = list[str](), list[str]()
    for value in kernel.values.values():
        of_window = _of_window(value, elements)
        if of_window is not None:
            own.append(f"var own_{value.name} = {of_window.initial};")
            elements.statements.append(f"own_{value.name} = {of_window.update};")
            found.append(f"let v_{value.name} = {of_window.found};")
            rows.known.add(value.name)
    own = [*rows.statements, *own]
    rows.statements = found
    for array, value in kernel.written.items():
        rows.statements.append(store(kernel, array, "parameters.first_result + row", rows.name_of(value.name)))
    return _file(kernel, own, [], elements.statements, [], rows.statements)


class _OfWindow(NamedTuple):
    """A value that an invocation finds tap by tap: how it begins, how an element changes it, and what it is then."""

    initial: str
    update: str
    found: str


def _of_window(value: Value, elements: Scope) -> _OfWindow | None:
    """Return how a value is found; None if it is known before or follows from others."""
    own = f"own_{value.name}"
    match value.source:
        case Take():
            taken, place = elements.name_of(value.arguments[0]), f"own_{value.arguments[1]}"
            return _OfWindow("-infinity()", f"select({own}, {taken}, {place}.column == column)", own)
        case Part(over=over, combine="argmax") as part if over:
            candidate = f"Candidate(rank_of_f32({elements.call(part.function)}, false), column)"
            return _OfWindow("no_candidate()", f"larger({own}, {candidate})", f"{own}.column")
        case Part(over=over) as part if over:
            element = elements.call(part.function)
            if part.at:
                element = f"select(0.0, {element}, {elements.name_of(part.at)} == i32(column))"
            return _OfWindow("0.0", f"{own} + {element}", own)
    return None


def _file(
    kernel: Kernel,
    before: Sequence[str],
    start: Sequence[str],
    element: Sequence[str],
    end: Sequence[str],
    after: Sequence[str],
) -> str:
    """Return the shader.

    Args:
        kernel: its form.
        before: statements before the taps.
        start: of each tap.
        element: of the element under it, where there is one.
        end: of each tap, after that.
        after: after the taps.
    """

    def block(statements: Sequence[str], depth: int) -> str:
        return "".join(f"{'    ' * depth}{line}\n" for line in statements)

    parameters = ", ".join(f"{name}: {type_}" for name, type_ in window_parameters(kernel))
    bindings = row_bindings(kernel)
    of_axis = {axis: ", ".join(f"parameters.{name}_{axis}" for name in _OF_FIRST_TAP) for axis in "yx"}
    return f"""\
{imports_of(kernel)}
{_IMPORTS_OF_FOUND if kernel.finds_elements else ""}\
import package::lib::windows::first_tap;

struct RowParameters {{ {parameters} }}

{shell.storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: RowParameters;

{hooks_of(kernel)}@compute @workgroup_size({INVOCATIONS})
fn main({shell.GRID_PARAMETERS}) {{
    let row = (workgroup.x + workgroup.y * grid.x) * {INVOCATIONS}u + lane;
    if row >= parameters.rows {{
        return;
    }}
    const segment = 0u;
    let places = parameters.grid_y * parameters.grid_x;
    let plane = row / places;
    let place = row % places;
    let down = first_tap(place / parameters.grid_x, {of_axis["y"]});
    let across = first_tap(place % parameters.grid_x, {of_axis["x"]});
    let first = parameters.first + plane * parameters.plane_stride;
    let result = parameters.first_result + plane * parameters.columns * places + place;
    let next = u32(parameters.jump_x) + parameters.period_x * parameters.tap_stride;
{block(before, 1)}\
    var y = down.element;
    for (var tap_y = down.tap; tap_y < parameters.taps_y; tap_y += parameters.period_y) {{
        var column = tap_y * parameters.taps_x + across.tap;
        var x = across.element;
        var element = first + column * parameters.tap_stride + y * parameters.size_x + x;
        for (var tap_x = across.tap; tap_x < parameters.taps_x; tap_x += parameters.period_x) {{
{block(start, 3)}\
            if y < parameters.size_y && x < parameters.size_x {{
{block(element, 4)}\
            }}
{block(end, 3)}\
            column += parameters.period_x;
            element += next;
            x += u32(parameters.jump_x);
        }}
        y += u32(parameters.jump_y);
    }}
{block(after, 1)}\
}}
"""

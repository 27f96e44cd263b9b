"""A kernel over windows as a WGSL compute shader: each window is a row, and each of its taps a column.

The windows slide over planes, and there is one at each place of a grid. An invocation goes through the taps of a window
one after the other. A tap that is over no element adds nothing to what is reduced, and what is copied for it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from ..errors import UnsupportedError
from ..kernel import Kernel, Part, Take, Value
from ..wgsl import shell
from .shader import Scope, hooks_of, imports_of, row_bindings, store

__all__ = [
    "INVOCATIONS",
    "WINDOW_PARAMETERS",
    "WindowAxis",
    "WindowOperation",
    "axis_parameters",
    "window_operation",
    "window_source",
]

INVOCATIONS = 256
"""Invocations of a workgroup, each of which takes a window."""

WindowOperation = Literal["copy", "sum", "sum by window", "sum by element", "largest"]
"""The result of a kernel for each window: the elements under all its taps; their sum; the sum of those under the tap
that the window names, or of those that name the tap over them; the largest element and the tap over it."""


class WindowAxis(NamedTuple):
    """Windows that slide along one axis of a plane, whose elements are `spacing` positions apart.

    Attributes:
        grid: how many windows there are.
        size: elements of the plane.
        taps: of a window.
        step: positions from a window to the next.
        start: position of the first tap of the first window; that of the first element is 0.
        spacing: positions from an element to the next. Copies are for 1 alone.
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
        """Return the axes along the height and along the width, from the parameters of a launch."""
        return WindowAxis(*_OF_HEIGHT(values)), WindowAxis(*_OF_WIDTH(values))


_OF_HEIGHT, _OF_WIDTH = (itemgetter(*(f"{name}_{axis}" for name in WindowAxis._fields)) for axis in "yx")

_OF_AXES = (
    *((name, "i32" if name in ("start", "tap_step") else "u32") for name in WindowAxis._fields),
    ("remainder", "u32"),  # `tap_step` modulo `spacing`
    ("period", "u32"),  # taps from one over an element to the next
    ("jump", "i32"),  # elements from the one under such a tap to the next
)


@lru_cache
def axis_parameters(axes: tuple[WindowAxis, WindowAxis]) -> tuple[int, ...]:
    """Return the parameters of both axes, each in the order of `_OF_AXES`."""
    parameters: list[int] = []
    for axis in axes:
        period = axis.spacing // math.gcd(axis.tap_step, axis.spacing)
        parameters += [*axis, axis.tap_step % axis.spacing, period, axis.tap_step * period // axis.spacing]
    return tuple(parameters)


WINDOW_PARAMETERS = (
    ("rows", "u32"),  # windows of all planes
    ("columns", "u32"),  # taps of a window
    ("first", "u32"),  # element of the operands
    ("first_result", "u32"),
    ("plane_stride", "u32"),
    ("tap_stride", "u32"),  # elements from what a plane has for a tap to what it has for the next
    *((f"{name}_{axis}", type_) for axis in "yx" for name, type_ in _OF_AXES),
)
"""Name and type of the parameters of a dispatch."""

_OF_FIRST_TAP = ("taps", "step", "start", "spacing", "tap_step", "remainder")
_IMPORTS_OF_LARGEST = """\
import package::lib::extremes::{Candidate, no_candidate, rank_of_f32};
import package::lib::math::infinity;
import package::lib::windows::larger;
"""


@cache
def window_operation(kernel: Kernel) -> WindowOperation:
    """Return what a kernel computes over windows.

    Raises:
        UnsupportedError: something else than the lowerings have.
    """
    types = [read.type for read in kernel.reads], [write.type for write in kernel.writes]
    arrays = (*zip(kernel.kinds, [*types[0], *types[1]], strict=True),)
    combined = [(part.combine, bool(part.at)) for _, part in kernel.computed if part.over]
    written = [type(value.source) for value in kernel.written.values()]
    element, window = ("element", "f32"), ("row", "f32")
    known: dict[tuple[Any, ...], WindowOperation] = {
        ((), (element, element)): "copy",
        ((("sum", False),), (element, window)): "sum",
        ((("sum", True),), (element, ("row", "i32"), window)): "sum by window",
        ((("sum", True),), (element, ("element", "i32"), window)): "sum by element",
        ((("argmax", False),), (element, window, ("row", "i32"))): "largest",
    }
    operation = known.get((tuple(combined), arrays)) if kernel.rank == 2 and not kernel.numbers else None
    of_elements = [part.function for value, part in kernel.computed if not kernel.level_of_call(value)]
    is_known = all(map(kernel.returns_argument, of_elements)) and (
        written == [Take, Part] if operation == "largest" else len(kernel.computed) == len(combined)
    )
    if operation is None or not is_known:
        raise UnsupportedError(
            f"kernel '{kernel.name}': over windows it has to add up what it reads, or to write the largest of that and "
            "its column, or to copy elements"
        )
    return operation


def window_source(kernel: Kernel) -> str:
    """Return the shader of a kernel; see `shader.row_source`.

    A window's `row` is its number among all, its `column` that of a tap.
    """
    rows = Scope(kernel, "element", "row")
    elements = rows.elements()
    if not kernel.reduced:
        ((array, value),) = kernel.written.items()
        elements.statements.append(f"copied = {elements.name_of(value.name)};")
        stored = store(kernel, array, "result + column * windows", "copied")
        return _file(kernel, [], ["var copied = 0.0;", *_where_there_is_one(elements.statements), stored], [])
    initial, final = list[str](), list[str]()
    for value in kernel.values.values():
        reduction = _reduction(value, elements)
        if reduction is not None:
            initial.append(f"var own_{value.name} = {reduction.initial};")
            elements.statements.append(f"own_{value.name} = {reduction.update};")
            final.append(f"let v_{value.name} = {reduction.result};")
            rows.known.add(value.name)
    before = [*rows.statements, *initial]
    rows.statements = final
    for array, value in kernel.written.items():
        rows.statements.append(store(kernel, array, "parameters.first_result + row", rows.name_of(value.name)))
    return _file(kernel, before, _where_there_is_one(elements.statements), rows.statements)


class _Reduction(NamedTuple):
    """A value of a window, as an invocation finds it: how it begins, changes by an element, and what it is then."""

    initial: str
    update: str
    result: str


def _reduction(value: Value, elements: Scope) -> _Reduction | None:
    """Return how a value is found tap by tap; None if it is known before or follows from others."""
    own = f"own_{value.name}"
    match value.source:
        case Take():
            element, largest = elements.name_of(value.arguments[0]), f"own_{value.arguments[1]}"
            return _Reduction("-infinity()", f"select({own}, {element}, {largest}.column == column)", own)
        case Part(over=over, combine="argmax") as part if over:
            candidate = f"Candidate(rank_of_f32({elements.call(part.function)}, false), column)"
            return _Reduction("no_candidate()", f"larger({own}, {candidate})", f"{own}.column")
        case Part(over=over) as part if over:
            element = elements.call(part.function)
            if value.at:
                element = f"select(0.0, {element}, {elements.name_of(value.at)} == i32(column))"
            return _Reduction("0.0", f"{own} + {element}", own)
    return None


def _where_there_is_one(statements: Sequence[str]) -> list[str]:
    """Return statements about the element under a tap, which there may not be."""
    return [
        "if y < parameters.size_y && x < parameters.size_x {",
        *(f"    {statement}" for statement in statements),
        "}",
    ]


def _file(kernel: Kernel, before: Sequence[str], tap: Sequence[str], after: Sequence[str]) -> str:
    """Return the shader, given the statements before the taps, for each of them, and after them."""

    def block(statements: Sequence[str], depth: int) -> str:
        return "".join(f"{'    ' * depth}{line}\n" for line in statements)

    parameters = ", ".join(f"{name}: {type_}" for name, type_ in WINDOW_PARAMETERS)
    bindings = row_bindings(kernel)
    of_axis = {axis: ", ".join(f"parameters.{name}_{axis}" for name in _OF_FIRST_TAP) for axis in "yx"}
    return f"""\
{imports_of(kernel)}
{_IMPORTS_OF_LARGEST if kernel.finds_elements else ""}\
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
    let windows = parameters.grid_y * parameters.grid_x;
    let plane = row / windows;
    let window = row % windows;
    let down = first_tap(window / parameters.grid_x, {of_axis["y"]});
    let across = first_tap(window % parameters.grid_x, {of_axis["x"]});
    let first = parameters.first + plane * parameters.plane_stride;
    let result = parameters.first_result + plane * parameters.columns * windows + window;
    let next = u32(parameters.jump_x) + parameters.period_x * parameters.tap_stride;
{block(before, 1)}\
    var y = down.element;
    for (var tap_y = down.tap; tap_y < parameters.taps_y; tap_y += parameters.period_y) {{
        var column = tap_y * parameters.taps_x + across.tap;
        var x = across.element;
        var element = first + column * parameters.tap_stride + y * parameters.size_x + x;
        for (var tap_x = across.tap; tap_x < parameters.taps_x; tap_x += parameters.period_x) {{
{block(tap, 3)}\
            column += parameters.period_x;
            element += next;
            x += u32(parameters.jump_x);
        }}
        y += u32(parameters.jump_y);
    }}
{block(after, 1)}\
}}
"""

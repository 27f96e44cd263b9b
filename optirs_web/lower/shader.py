"""A kernel as a WGSL compute shader, printed as a file of ``shaders`` would be written: `wgsl.link` makes it complete.

Kernels over a matrix that reduce its rows: a workgroup, or a group of its invocations, takes a row. Values of a row are
computed once, before or between the passes over its elements; values of elements and of columns are computed in each
pass that needs them. Reductions that do not need each other are found in one pass. `lib/workgroup.wgsl`, or
`lib/subgroups.wgsl` by the flag `SUBGROUPS`, reduces what the invocations have found.

In memory the elements of a row are next to each other, or `inner` apart: then the rows lie along the middle axis of an
array (outer, columns, inner), and neighbouring invocations take neighbouring rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import NamedTuple

from ..errors import UnsupportedError
from ..kernel import SIZE, Kernel, Level, Part, Value
from ..wgsl import shell, syntax

__all__ = ["ROW_PARAMETERS", "need_row_kernel", "row_bindings", "row_parameters", "row_source"]

ROW_PARAMETERS = (("rows", "u32"), ("columns", "u32"), ("inner", "u32"), ("groups", "u32"))
"""Name and type of the first parameters of a dispatch: `groups` are the rows that a workgroup takes."""


class _Combination(NamedTuple):
    """How a reduction begins, takes an element in, and is combined over a group of invocations."""

    initial: str
    update: str
    of_group: str


_COMBINE = {
    "sum": _Combination("0.0", "{} + {}", "total_of_group"),
    "max": _Combination("-3.4028235e38", "max({}, {})", "largest_of_group"),
}


class _Layout(NamedTuple):
    """Where the elements of a row are.

    Attributes:
        position: of an invocation, where those of a group follow each other.
        first: the index of the first element.
        element: that of each.
    """

    position: str
    first: str
    element: str


_ADJACENT = _Layout("lane", "row * parameters.columns", "first + column")
_STRIDED = _Layout(
    "lane % groups * group_size + lane / groups",
    "row / parameters.inner * parameters.inner * parameters.columns + row % parameters.inner",
    "first + column * parameters.inner",
)


def need_row_kernel(kernel: Kernel) -> None:
    """Check that the lowerings have all that a kernel needs.

    Raises:
        UnsupportedError: it does other than reduce the rows of a matrix, or writes what is not of elements or rows.
    """
    reductions = {part.over for part in kernel.parts if part.over}
    written = {value.level for value in kernel.written.values()}
    if kernel.rank != 2 or not reductions <= {(-1,)} or not written <= {frozenset(), frozenset({-1})}:
        raise UnsupportedError(
            f"kernel '{kernel.name}': only rows of a matrix can be reduced, and only values of its elements and rows "
            "written"
        )


def row_bindings(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return name, access and type of each storage binding: the arrays that are read, then those that are written."""
    return [
        *((f"{read.name}_values", "read", "array<f32>") for read in kernel.reads),
        *((f"{array}_values", "read_write", "array<f32>") for array in kernel.written),
    ]


def row_parameters(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Return name and type of the parameters of a dispatch."""
    return (*ROW_PARAMETERS, *((name, "f32") for name in kernel.numbers))


def row_source(kernel: Kernel, *, strided: bool = False) -> str:
    """Return the shader of a kernel over a matrix, whose reductions are all along its rows.

    `row_bindings` are its bindings, `row_parameters` the parameters of a dispatch.

    Args:
        kernel: its form.
        strided: the elements of a row are `inner` apart.
    """
    layout = _STRIDED if strided else _ADJACENT
    rows = _Scope(kernel, layout)
    for together in _passes(kernel):
        _reduce(together, rows)
    elements = rows.elements()
    per_row, per_element = [], []
    for array, value in kernel.written.items():
        if value.level:
            per_row.append(_store(kernel, array, "row", rows.name_of(value.name)))
        else:
            per_element.append(_store(kernel, array, layout.element, elements.name_of(value.name)))
    body = [*rows.statements, elements.in_pass(*per_element)] if per_element else rows.statements
    if per_row:
        body = [*body, "if member == 0u && row < parameters.rows {", *(f"    {line}" for line in per_row), "}"]
    return _file(kernel, layout, "\n".join(body))


def _store(kernel: Kernel, array: str, at: str, value: str) -> str:
    return f"stored({value}, {at});" if len(kernel.writes) == 1 else f"{array}_values[{at}] = {value};"


def _hook(kernel: Kernel) -> str:
    """Return the function that stores a result, which lets fusion in; none if there are several."""
    if len(kernel.writes) > 1:
        return ""
    (array,) = kernel.written
    return f"fn stored(value: f32, at: u32) {{\n    {array}_values[at] = value;\n}}\n\n"


def _passes(kernel: Kernel) -> Iterator[list[Part]]:
    """Yield the reductions that are found in one pass: online, or because none needs another."""
    online = kernel.online.shares if kernel.online else {}
    known: dict[str, int] = {}  # for each value the pass after which it can be computed
    passes: defaultdict[int, list[Part]] = defaultdict(list)
    for value in kernel.values.values():
        known[value.name] = max((known[name] for name in value.arguments), default=0)
        if value.part and value.part.over:
            first = next((known[name] for name in online if name in known), 0) if value.name in online else 0
            known[value.name] = first or known[value.name] + 1
            passes[known[value.name]].append(value.part)
    return (passes[number] for number in sorted(passes))


class _Scope:
    """Statements of one block of the shader, and the values that they have computed.

    Args:
        kernel: whose values.
        layout: of its arrays.
        outer: the block around it, where the values of a row are computed.
    """

    def __init__(self, kernel: Kernel, layout: _Layout, outer: _Scope | None = None) -> None:
        self.kernel = kernel
        self.layout = layout
        self.outer = outer
        self.statements: list[str] = []
        self.known: set[str] = set()

    def elements(self) -> _Scope:
        """Return the block of a pass over the elements."""
        return _Scope(self.kernel, self.layout, self)

    def in_pass(self, *more: str) -> str:
        """Return the pass whose block this is, with more statements at its end."""
        block = indent("\n".join([*self.statements, *more]), "    ")
        return f"for (var column = member; column < columns; column += group_size) {{\n{block}\n}}"

    def name_of(self, value: str) -> str:
        """Return the variable that has a value, computed in the outermost block that can."""
        if self.outer is not None and self.kernel.values[value].level >= frozenset(self.kernel.reduced):
            return self.outer.name_of(value)
        if value not in self.known:
            self.declare(value, self._expression(self.kernel.values[value]))
        return f"v_{value}"

    def declare(self, value: str, expression: str) -> None:
        """Give a value to its variable."""
        self.statements.append(f"let v_{value} = {expression};")
        self.known.add(value)

    def call(self, function: str) -> str:
        """Return the call of a function of the kernel's file; `own` is what an invocation has found online."""
        arguments = (name if name == "own" else self.name_of(name) for name in self.kernel.arguments_of(function))
        return f"{function}({', '.join(arguments)})"

    def _expression(self, value: Value) -> str:
        if value.part:
            return self.call(value.part.function)
        if value.is_read:
            return f"{value.name}_values[{self._index(value.level)}]"
        return "f32(parameters.columns)" if value.name == SIZE else f"parameters.{value.name}"

    def _index(self, level: Level) -> str:
        """Return the index at which an array of a level is read."""
        if not level:
            return self.layout.element
        return "column" if level.isdisjoint(self.kernel.reduced) else "min(row, parameters.rows - 1u)"


def _reduce(together: Sequence[Part], rows: _Scope) -> None:
    """Add the pass that finds some reductions."""
    elements, updates, online = rows.elements(), list[str](), rows.kernel.online
    shares = online.shares if online else {}
    if online and any(part.function in shares for part in together):
        rows.statements.append(f"var own = {online.start}();")
        updates.append(f"own = {elements.call(online.update)};")
    for part in together:
        if part.function not in shares:
            own, combination = f"own_{part.function}", _COMBINE[part.combine]
            rows.statements.append(f"var {own} = {combination.initial};")
            updates.append(f"{own} = {combination.update.format(own, elements.call(part.function))};")
    rows.statements.append(elements.in_pass(*updates))
    for part in together:
        share = shares.get(part.function)
        found = f"own_{part.function}" if share is None else share and rows.call(share)
        combined = f"{_COMBINE[part.combine].of_group}({found}, position, WORKGROUP, groups)"
        rows.declare(part.function, combined if found else "0.0")


def _imports(kernel: Kernel) -> str:
    """Return the imports of functions, from where they are declared."""
    paths = {
        name: import_.path
        for import_ in kernel.parsed.declarations
        if isinstance(import_, syntax.Import)
        for name in import_.names
    }
    by_path = defaultdict(set)
    for name in kernel.functions:
        by_path[paths.get(name, kernel.file)].add(name)
    return "\n".join(
        f"import package::{'::'.join(path)}::{{{', '.join(sorted(names))}}};" for path, names in by_path.items()
    )


def _file(kernel: Kernel, layout: _Layout, body: str) -> str:
    used = sorted({part.combine for part in kernel.parts if part.over})
    of_group = ", ".join(_COMBINE[combine].of_group for combine in used)
    parameters = ", ".join(f"{name}: {type_}" for name, type_ in row_parameters(kernel))
    bindings = row_bindings(kernel)
    return f"""\
{_imports(kernel)}
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::{{{of_group}}};
@else import package::lib::workgroup::{{{of_group}}};

struct RowParameters {{ {parameters} }}

{shell.storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: RowParameters;

{_hook(kernel)}@compute @workgroup_size(WORKGROUP)
fn main({shell.GRID_PARAMETERS}) {{
    let groups = parameters.groups;
    let group_size = WORKGROUP / groups;
    let position = {layout.position};
    let member = position % group_size;
    let row = (workgroup.x + workgroup.y * grid.x) * groups + position / group_size;
    let first = {layout.first};
    let columns = select(0u, parameters.columns, row < parameters.rows);
{indent(body, "    ")}
}}
"""

"""A kernel as a WGSL compute shader, printed as a file of ``shaders`` would be written: `wgsl.link` makes it complete.

Kernels over a matrix that reduce its rows: a workgroup, or a group of its invocations, takes a row. Values of a row are
computed once, before or between the passes over its elements; values of elements are computed in each pass that needs
them. `lib/workgroup.wgsl`, or `lib/subgroups.wgsl` by the flag `SUBGROUPS`, reduces what the invocations have found.

In memory the elements of a row are next to each other, or `inner` apart: then the rows lie along the middle axis of an
array (outer, columns, inner), and neighbouring invocations take neighbouring rows.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from textwrap import indent
from typing import NamedTuple

from ..errors import UnsupportedError
from ..kernel import Kernel, Level, Online, Part, Value
from ..wgsl import shell, syntax

__all__ = ["ROW_PARAMETERS", "need_row_kernel", "row_bindings", "row_source"]

ROW_PARAMETERS = (("rows", "u32"), ("columns", "u32"), ("inner", "u32"), ("groups", "u32"))
"""Name and type of the parameters of a dispatch: `groups` are the rows that a workgroup takes."""

_ROW: Level = frozenset({-1})


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
        UnsupportedError: it does other than read and write elements of a matrix and reduce its rows.
    """
    levels = [
        kernel.values[name].level for name in (*(r.name for r in kernel.reads), *(w.value for w in kernel.writes))
    ]
    if kernel.rank != 2 or any(levels) or any(part.over not in ((), (-1,)) for part in kernel.parts):
        raise UnsupportedError(
            f"kernel '{kernel.name}': only elements of a matrix can be read and written, and only its rows reduced"
        )


def row_bindings(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return name, access and type of each storage binding: the arrays that are read, then those that are written."""
    return [
        *((f"{read.name}_values", "read", "array<f32>") for read in kernel.reads),
        *((f"{write.array}_values", "read_write", "array<f32>") for write in kernel.writes),
    ]


def row_source(kernel: Kernel, *, strided: bool = False) -> str:
    """Return the shader of a kernel over a matrix, whose reductions are all along its rows.

    `row_bindings` are its bindings, `ROW_PARAMETERS` the parameters of a dispatch.

    Args:
        kernel: its form.
        strided: the elements of a row are `inner` apart.
    """
    layout = _STRIDED if strided else _ADJACENT
    rows = _Scope(kernel, layout)
    reductions = [part for part in kernel.parts if part.over]
    for part, following in zip_longest(reductions, reductions[1:]):
        if following is not None and following.online:
            _reduce_both(part, following, following.online, rows)
        elif not part.online:  # which is found together with the one before it
            _reduce(part, rows)
    elements = rows.elements()
    stores = [f"{write.array}_values[{layout.element}] = {elements.name_of(write.value)};" for write in kernel.writes]
    return _file(kernel, layout, "\n".join([*rows.statements, elements.in_pass(*stores)]))


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
        if self.outer is not None and self.kernel.values[value].level >= _ROW:
            return self.outer.name_of(value)
        if value not in self.known:
            self.declare(value, self._expression(self.kernel.values[value]))
        return f"v_{value}"

    def declare(self, value: str, expression: str) -> None:
        """Give a value to its variable."""
        self.statements.append(f"let v_{value} = {expression};")
        self.known.add(value)

    def call(self, function: str) -> str:
        """Return the call of a function of the kernel's file."""
        parameters = self.kernel.function(function).parameters
        return f"{function}({', '.join(self.name_of(parameter.name) for parameter in parameters)})"

    def _expression(self, value: Value) -> str:
        return self.call(value.part.function) if value.part else f"{value.name}_values[{self.layout.element}]"


def _reduce(part: Part, rows: _Scope) -> None:
    """Add the pass that finds one reduction."""
    combination, own, elements = _COMBINE[part.combine], f"own_{part.function}", rows.elements()
    updated = combination.update.format(own, elements.call(part.function))
    rows.statements += [f"var {own} = {combination.initial};", elements.in_pass(f"{own} = {updated};")]
    rows.declare(part.function, f"{combination.of_group}({own}, position, WORKGROUP, groups)")


def _reduce_both(before: Part, part: Part, online: Online, rows: _Scope) -> None:
    """Add the pass that finds two reductions: those of an invocation are joined with the first one of its group."""
    struct, own, elements = _struct(rows.kernel, online), f"own_{part.function}", rows.elements()
    of_first, of_second = _COMBINE[before.combine], _COMBINE[part.combine]
    call = elements.call(online.element)
    rows.statements += [
        f"var {own} = {struct}({of_first.initial}, {of_second.initial});",
        elements.in_pass(f"{own} = {online.join}({own}, {call});"),
    ]
    rows.declare(before.function, f"{of_first.of_group}({own}.{before.function}, position, WORKGROUP, groups)")
    first = f"{struct}({rows.name_of(before.function)}, {of_second.initial})"
    rows.statements.append(f"{own} = {online.join}({own}, {first});")
    rows.declare(part.function, f"{of_second.of_group}({own}.{part.function}, position, WORKGROUP, groups)")


def _struct(kernel: Kernel, online: Online) -> str:
    """Return the name of the struct of two reductions that are found online."""
    returned = kernel.function(online.element).return_type_name
    assert returned is not None
    return returned.name


def _imports(kernel: Kernel) -> str:
    """Return the imports of functions and of the structs of reductions, from where they are declared."""
    paths = {
        name: import_.path
        for import_ in kernel.parsed.declarations
        if isinstance(import_, syntax.Import)
        for name in import_.names
    }
    by_path = defaultdict(set)
    for name in (*kernel.functions, *(_struct(kernel, part.online) for part in kernel.parts if part.online)):
        by_path[paths.get(name, kernel.file)].add(name)
    return "\n".join(
        f"import package::{'::'.join(path)}::{{{', '.join(sorted(names))}}};" for path, names in by_path.items()
    )


def _file(kernel: Kernel, layout: _Layout, body: str) -> str:
    used = sorted({part.combine for part in kernel.parts if part.over})
    of_group = ", ".join(_COMBINE[combine].of_group for combine in used)
    parameters = ", ".join(f"{name}: {type_}" for name, type_ in ROW_PARAMETERS)
    bindings = row_bindings(kernel)
    return f"""\
{_imports(kernel)}
import package::lib::workgroup::WORKGROUP;
@if(SUBGROUPS) import package::lib::subgroups::{{{of_group}}};
@else import package::lib::workgroup::{{{of_group}}};

struct RowParameters {{ {parameters} }}

{shell.storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: RowParameters;

@compute @workgroup_size(WORKGROUP)
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

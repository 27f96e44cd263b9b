"""A kernel as a WGSL compute shader, printed as a file of ``shaders`` would be written: `wgsl.link` makes it complete.

Kernels over a matrix that reduce its rows: a workgroup, or a group of its invocations, takes a row. Values of a row are
computed once, before or between the passes over its elements; values of elements and of columns are computed in each
pass that needs them. Reductions that do not need each other are found in one pass. `lib/workgroup.wgsl`, or
`lib/subgroups.wgsl` by the flag `SUBGROUPS`, reduces what the invocations have found.

Rows are stored along the last axis of an array, or along the middle one of (outer, columns, inner): then
neighbouring invocations take neighbouring rows. Rows may be cut into segments, which are reduced by themselves, where
there are few and long ones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import Literal, NamedTuple

from ..errors import UnsupportedError
from ..kernel import BEGIN, COUNT, SIZE, Kernel, Part, Read, Take, Value
from ..wgsl import shell, syntax

__all__ = [
    "Layout",
    "Scope",
    "hooks_of",
    "imports_of",
    "need_row_kernel",
    "row_bindings",
    "row_parameters",
    "row_source",
    "store",
]

Layout = Literal["adjacent", "strided", "segments", "windows"]
"""How the elements of a row are stored: next to each other, or `inner` apart; of a segment of it, either way; or under
the taps of a window, see `windows`."""

_PARAMETERS = (("rows", "u32"), ("columns", "u32"), ("inner", "u32"), ("groups", "u32"))


class _Combination(NamedTuple):
    """How a reduction begins, takes an element in, and is combined over a group of invocations.

    Attributes:
        initial: what no elements give.
        update: given what there is, the element and its type.
        combined: given what an invocation has found.
        imports: names of ``lib/workgroup`` or ``lib/subgroups``; of ``lib/extremes`` if `is_found`.
        is_found: it finds an element.
    """

    initial: str
    update: str
    combined: str
    imports: tuple[str, ...]
    is_found: bool = False


def _found(is_smallest: str) -> _Combination:
    return _Combination(
        "no_candidate()",
        f"better({{0}}, Candidate(rank_of_{{2}}({{1}}, {is_smallest}), column - segment))",
        "best_of_group({}, in_workgroup, WORKGROUP, groups).column",
        ("Candidate", "best_of_group", "better", "no_candidate"),
        is_found=True,
    )


_COMBINE = {
    "sum": _Combination("0.0", "{} + {}", "total_of_group({}, in_workgroup, WORKGROUP, groups)", ("total_of_group",)),
    "max": _Combination(
        "-3.4028235e38", "max({}, {})", "largest_of_group({}, in_workgroup, WORKGROUP, groups)", ("largest_of_group",)
    ),
    "argmax": _found("false"),
    "argmin": _found("true"),
}


class _Indexing(NamedTuple):
    """Where the elements of a row are.

    Attributes:
        position: of an invocation in a pass, `number` by default, where those of a group follow each other.
        first: the index of the row's first element.
        element: that of each, given its column.
        columns: the statements that declare `segment`, the first column of the row or of its segment, and `end`.
    """

    position: str
    first: str
    element: str
    columns: str


_OF_ROWS = frozenset({-1})
_PROVIDED = {SIZE: "f32(parameters.columns)", COUNT: "parameters.columns", BEGIN: "segment"}

_ALL_COLUMNS = """\
const segment = 0u;
let end = select(0u, parameters.columns, row < parameters.rows);"""

_INDEXINGS: dict[Layout, _Indexing] = {
    "adjacent": _Indexing("number", "own_row * parameters.columns", "first + {}", _ALL_COLUMNS),
    "strided": _Indexing(
        "number % groups * per_pass + number / groups",
        "own_row / parameters.inner * parameters.inner * parameters.columns + own_row % parameters.inner",
        "first + {} * parameters.inner",
        _ALL_COLUMNS,
    ),
    "segments": _Indexing(
        "select(number % groups * per_pass + number / groups, number, parameters.inner == 1u)",
        "own_row / (parameters.inner * segments) * parameters.inner * parameters.columns + own_row % parameters.inner",
        "first + {} * parameters.inner",
        """\
let segment = row / parameters.inner % segments * parameters.segment;
let end = select(0u, min(segment + parameters.segment, parameters.columns), row < parameters.rows);""",
    ),
}


def need_row_kernel(kernel: Kernel, layout: Layout) -> None:
    """Check that the lowerings have all that a kernel needs.

    Raises:
        UnsupportedError: it does other than reduce the rows of a matrix, reads what is the same for all of it, or
            writes what is not of elements or rows; or more than what is found in a segment.
        ValueError: a number has the name of a parameter that there is without it.
    """
    reductions = {part.over for _, part in kernel.computed if part.over}
    written = {value.level for value in kernel.written.values()}
    is_of_rows = kernel.rank == 2 and reductions == {(-1,)} and "number" not in kernel.kinds[: len(kernel.reads)]
    is_of_rows &= not any(part.at for _, part in kernel.computed)
    if not is_of_rows or not written <= {frozenset(), frozenset({-1})}:
        raise UnsupportedError(
            f"kernel '{kernel.name}': it has to reduce the rows of a matrix, read values of elements, rows or columns, "
            "and write values of elements or rows"
        )
    parameters = [name for name, _ in row_parameters(kernel, "segments")]
    taken = next((name for name in kernel.numbers if parameters.count(name) > 1), None)
    if taken is not None:
        raise ValueError(f"kernel '{kernel.name}': a launch of rows has a parameter '{taken}'")
    if layout == "segments" and kernel.needs_whole_rows:
        raise UnsupportedError(f"kernel '{kernel.name}': of segments of rows only what is found in them can be written")


def row_bindings(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return name, access and type of each storage binding: the arrays that are read, then those that are written."""
    return [
        *((f"{read.name}_values", "read", f"array<{read.type}>") for read in kernel.reads),
        *((f"{write.array}_values", "read_write", f"array<{write.type}>") for write in kernel.writes),
    ]


def row_parameters(kernel: Kernel, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return name and type of the parameters of a dispatch: `groups` are the rows that a workgroup takes."""
    segment = (("segment", "u32"),) if layout == "segments" else ()
    return (*_PARAMETERS, *segment, *kernel.numbers.items())


def row_source(kernel: Kernel, layout: Layout = "adjacent") -> str:
    """Return the shader of a kernel over a matrix, whose reductions are all along its rows.

    `row_bindings` are its bindings, `row_parameters` the parameters of a dispatch.

    Raises:
        UnsupportedError: a function of the kernel has the name of a variable of the shader.
    """
    indexing = _INDEXINGS[layout]
    rows = Scope(kernel, indexing.element)
    for together in _passes(kernel):
        _reduce(together, rows)
    elements = rows.elements()
    per_element = [
        store(kernel, array, indexing.element.format("column"), elements.name_of(value.name))
        for array, value in kernel.written.items()
        if not value.level
    ]
    last = rows.at_end()
    per_row = [
        store(kernel, array, "row", last.name_of(value.name)) for array, value in kernel.written.items() if value.level
    ]
    body = [*rows.statements, elements.in_pass(*per_element)] if per_element else rows.statements
    if per_row:
        lines = [f"    {line}" for line in (*last.statements, *per_row)]
        body = [*body, "if member == 0u && row < parameters.rows {", *lines, "}"]
    text = _file(kernel, layout, "\n".join(body))
    declared = {*re.findall(r"\b(?:const|fn|let|struct|var(?:<.*?>)?) (\w+)|(\w+): ", text)}
    for name in {name for names in declared for name in names}.intersection(kernel.functions):
        raise UnsupportedError(f"kernel '{kernel.name}': a function is called '{name}', as a variable of the shader is")
    return text


def store(kernel: Kernel, array: str, at: str, value: str) -> str:
    """Return the statement that keeps a value in an array."""
    return f"stored({value}, {at});" if len(kernel.writes) == 1 else f"{array}_values[{at}] = {value};"


def hooks_of(kernel: Kernel) -> str:
    """Return the functions that load the only operand and store the only result, which let fusion in."""
    hooks = ""
    if len(kernel.reads) == 1:
        (read,) = kernel.reads
        hooks += f"fn loaded(at: u32) -> {read.type} {{\n    return {read.name}_values[at];\n}}\n\n"
    if len(kernel.writes) == 1:
        (write,) = kernel.writes
        hooks += f"fn stored(value: {write.type}, at: u32) {{\n    {write.array}_values[at] = value;\n}}\n\n"
    return hooks


def _passes(kernel: Kernel) -> Iterator[list[Part]]:
    """Yield the reductions that are found in one pass: online, or because none needs another."""
    online = kernel.online.shares if kernel.online else {}
    known: dict[str, int] = {}  # for each value the pass after which it can be computed
    passes: defaultdict[int, list[Part]] = defaultdict(list)
    online_pass = 0
    for value in kernel.values.values():
        number = max((known[name] for name in value.arguments), default=0)
        if value.part and value.part.over:
            number += 1
            if value.name in online:
                number = online_pass = online_pass or number
            passes[number].append(value.part)
        known[value.name] = number
    return (passes[number] for number in sorted(passes))


class Scope:
    """Statements of one block of the shader, and the values that they have computed.

    Args:
        kernel: whose values.
        element: the index of an element, given its column.
        row: that of what an array has for the row.
        outer: the block around it, where the values of a row are computed.
    """

    def __init__(self, kernel: Kernel, element: str, row: str = "own_row", outer: Scope | None = None) -> None:
        self.kernel = kernel
        self.element = element
        self.row = row
        self.outer = outer
        self.statements: list[str] = []
        self.known: set[str] = set()

    def elements(self) -> Scope:
        """Return the block of a pass over the elements."""
        return Scope(self.kernel, self.element, self.row, self)

    def at_end(self) -> Scope:
        """Return the block of the first invocation of a group, at the end, where a row's results are stored."""
        block = Scope(self.kernel, self.element, self.row)
        block.known = set(self.known)
        return block

    def in_pass(self, *more: str) -> str:
        """Return the pass whose block this is, with more statements at its end."""
        block = indent("\n".join([*self.statements, *more]), "    ")
        return f"for (var column = segment + member; column < end; column += group_size) {{\n{block}\n}}"

    def name_of(self, value: str) -> str:
        """Return the variable that has a value, computed in the outermost block that can."""
        if self.outer is not None and self.kernel.values[value].level >= _OF_ROWS:
            return self.outer.name_of(value)
        if self.kernel.values[value].source is None:
            return _PROVIDED.get(value, f"parameters.{value}")
        if value not in self.known:
            self.declare(value, self._expression(self.kernel.values[value]))
        return f"v_{value}"

    def declare(self, value: str, expression: str) -> None:
        """Give a value to its variable."""
        self.statements.append(f"let v_{value} = {expression};")
        self.known.add(value)

    def call(self, function: str) -> str:
        """Return the call of a function of the kernel's file; `own` is what an invocation has found online."""
        arguments = [name if name == "own" else self.name_of(name) for name in self.kernel.arguments_of(function)]
        return arguments[0] if self.kernel.returns_argument(function) else f"{function}({', '.join(arguments)})"

    def _expression(self, value: Value) -> str:
        match value.source:
            case Read(name=array):
                return self._load(array, "column")
            case Take(array=array):
                return self._load(array, f"(segment + {self.name_of(value.arguments[1])})")
        return self.call(value.name)

    def _load(self, array: str, column: str) -> str:
        """Return the element of an array that a row has in a column."""
        kind = self.kernel.kind_of(array)
        at = {"element": self.element.format(column), "column": column, "row": self.row}[kind]
        return f"loaded({at})" if len(self.kernel.reads) == 1 else f"{array}_values[{at}]"


def _reduce(together: Sequence[Part], rows: Scope) -> None:
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
            element, type_ = elements.call(part.function), _element_type(rows.kernel, part)
            updates.append(f"{own} = {combination.update.format(own, element, type_)};")
    rows.statements.append(elements.in_pass(*updates))
    for part in together:
        share = shares.get(part.function)
        found = f"own_{part.function}" if share is None else share and rows.call(share)
        rows.declare(part.function, _COMBINE[part.combine].combined.format(found) if found else "0.0")


def imports_of(kernel: Kernel) -> str:
    """Return the imports of functions, from where they are declared."""
    paths = {
        name: import_.path
        for import_ in kernel.parsed.declarations
        if isinstance(import_, syntax.Import)
        for name in import_.names
    }
    by_path = defaultdict(set)
    for name in kernel.functions:
        if not kernel.returns_argument(name):
            by_path[paths.get(name, kernel.file)].add(name)
    return "\n".join(
        f"import package::{'::'.join(path)}::{{{', '.join(sorted(names))}}};" for path, names in by_path.items()
    )


def _imports_of_reductions(kernel: Kernel) -> str:
    of_group, extremes = set[str](), set[str]()
    for value in kernel.values.values():
        if value.part and value.part.over:
            combination = _COMBINE[value.part.combine]
            (extremes if combination.is_found else of_group).update(combination.imports)
            if combination.is_found:
                extremes.add(f"rank_of_{_element_type(kernel, value.part)}")
    lines = [f"import package::lib::extremes::{{{', '.join(sorted(extremes))}}};"] * bool(extremes)
    if of_group:
        names = ", ".join(sorted(of_group))
        lines += [f"@if(SUBGROUPS) import package::lib::subgroups::{{{names}}};"]
        lines += [f"@else import package::lib::workgroup::{{{names}}};"]
    return "\n".join(lines)


def _element_type(kernel: Kernel, part: Part) -> str:
    returned = kernel.function(part.function).return_type_name
    assert returned is not None
    return returned.name


def _file(kernel: Kernel, layout: Layout, body: str) -> str:
    parameters = ", ".join(f"{name}: {type_}" for name, type_ in row_parameters(kernel, layout))
    bindings, indexing = row_bindings(kernel), _INDEXINGS[layout]
    segments = "let segments = (parameters.columns + parameters.segment - 1u) / parameters.segment;\n"
    return f"""\
{imports_of(kernel)}
import package::lib::workgroup::{{PASS_INVOCATIONS, WORKGROUP}};
{_imports_of_reductions(kernel)}

struct RowParameters {{ {parameters} }}

{shell.storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: RowParameters;

{hooks_of(kernel)}@compute @workgroup_size(WORKGROUP)
fn main({shell.GRID_PARAMETERS}) {{
    let groups = parameters.groups;
    let group_size = WORKGROUP / groups;
    let per_pass = min(WORKGROUP, PASS_INVOCATIONS) / groups;
    let number = lane % PASS_INVOCATIONS;
    let position = {indexing.position};
    let in_workgroup = lane - number + position;
    let member = lane / PASS_INVOCATIONS * per_pass + position % per_pass;
    let row = (workgroup.x + workgroup.y * grid.x) * groups + position / per_pass;
    let own_row = min(row, parameters.rows - 1u);
{indent(segments if layout == "segments" else "", "    ")}\
    let first = {indexing.first};
{indent(indexing.columns, "    ")}
{indent(body, "    ")}
}}
"""

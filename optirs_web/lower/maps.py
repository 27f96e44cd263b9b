"""A kernel without reductions, a map, as WGSL: functions of its files in a loop over elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..errors import UnsupportedError
from ..kernel import INDEX, Kernel, Part, Read, Take
from ..wgsl import shell

__all__ = [
    "ELEMENTS_PER_WORKGROUP",
    "LOOP",
    "VALUE",
    "Places",
    "SpanForm",
    "binding_of",
    "computed",
    "map_bindings",
    "map_parameters",
    "map_source",
    "need_map",
    "offsets_of_index",
    "offsets_of_place",
    "own_parameters",
    "stored",
    "taken_where_placed",
    "words_of_places",
    "words_of_spans",
]

LOOP = 256, 4
"""Number of invocations of a workgroup, and of elements per invocation."""

ELEMENTS_PER_WORKGROUP = LOOP[0] * LOOP[1]

VALUE = "value"
"""The value of a map that is, in the hook `stored`, what the kernel has computed: the last array that it reads."""


class SpanForm(NamedTuple):
    """An axis of an array that is placed in a part of a map, as a shader knows it.

    The position of an element of the map on that axis is the sum of NAME_spanN_stepA times its index along A, less
    NAME_spanN_start, modulo 2^32: before the first element it is a large number. The array has an element there if
    the position is less than NAME_spanN_extent and divisible by NAME_spanN_spacing, at the offset position /
    NAME_spanN_spacing * NAME_spanN_stride.

    Attributes:
        axes: the axes A of the map.
        is_spaced: NAME_spanN_spacing is not 1; if it is, it is no parameter.
        has_steps: one of NAME_spanN_stepA is not 1; if all are, they are no parameters.
    """

    axes: tuple[int, ...]
    is_spaced: bool = False
    has_steps: bool = False

    @property
    def words(self) -> list[str]:
        """The parameters of a launch, after NAME_spanN_."""
        words = ["start", "extent", "stride", *(["spacing"] if self.is_spaced else [])]
        return [*words, *(f"step{axis}" for axis in self.axes if self.has_steps)]


class Places(NamedTuple):
    """Where the elements are that a map reads and writes.

    A strided array's parameters of a launch are NAME_start and NAME_strideAXIS, and the lengths of axes dimAXIS. A
    table is strided, and has the length of its own axis, NAME_length, and the distance of elements along that,
    NAME_step. An array that is placed is strided, and has axes of its own besides.

    Attributes:
        rank: number of axes of which a launch is given the lengths; 0 if no array is strided.
        strided: the values that are read from strided arrays, then the arrays that are written so. Elements of others
            have the index of those of the map.
        ends: in a hook that is told product, row and column (0, 1, 2), the last of these that each axis consists of.
        of_column: the values that are the same in all rows there, which are read once.
        spans: those of each array that is placed.
    """

    rank: int = 0
    strided: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    of_column: tuple[str, ...] = ()
    spans: tuple[tuple[str, tuple[SpanForm, ...]], ...] = ()


def need_map(kernel: Kernel, places: Places) -> None:
    """Check that a kernel is a map that the lowerings have.

    Raises:
        UnsupportedError: it reduces, reads what is the same along an axis, takes elements of what is not strided, or
            reads what is strided before it writes it.
    """
    takes = kernel.tables | kernel.placed
    if kernel.reduced or any(read.over for read in kernel.reads) or not takes <= {*places.strided}:
        raise UnsupportedError(
            f"kernel '{kernel.name}': a map has no reductions, and takes elements of what is strided"
        )
    if any(read.array in places.strided for read in kernel.reads):
        raise UnsupportedError(f"kernel '{kernel.name}' reads the old elements of an array that is written in part")


def binding_of(array: str) -> str:
    """Return the name of the binding of an array, or of the value that is read from one."""
    return f"{array}_values"


def words_of_places(kernel: Kernel, places: Places) -> list[str]:
    """Return the names of the parameters of a launch that say where elements are, u32."""
    axes = range(places.rank)
    names = [f"dim{axis}" for axis in axes]
    names += [f"{name}_start" for name in places.strided]
    names += [f"{name}_stride{axis}" for name in places.strided for axis in axes]
    names += [f"{name}_{word}" for name in places.strided if name in kernel.tables for word in ("step", "length")]
    return [*names, *words_of_spans(places)]


def own_parameters(kernel: Kernel, places: Places) -> tuple[tuple[str, str], ...]:
    """Return name and type of each parameter of a launch but the size."""
    return (*((name, "u32") for name in words_of_places(kernel, places)), *kernel.numbers.items())


def words_of_spans(places: Places) -> list[str]:
    """Return the name of each parameter of arrays that are placed, u32."""
    return [
        f"{name}_span{number}_{word}"
        for name, spans in places.spans
        for number, span in enumerate(spans)
        for word in span.words
    ]


def map_parameters(kernel: Kernel, places: Places) -> tuple[tuple[str, str], ...]:
    """Return name and type of each parameter of a launch: the size is the number of elements of each result."""
    return (("size", "u32"), *own_parameters(kernel, places))


def map_bindings(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return name, access and type of each storage binding: the arrays that are only read, then those written."""
    return [
        *((binding_of(read.name), "read", f"array<{read.type}>") for read in kernel.reads if not read.array),
        *((binding_of(write.array), "read_write", f"array<{write.type}>") for write in kernel.writes),
    ]


def map_source(kernel: Kernel, places: Places, loop: tuple[int, int] = LOOP, adjacent: bool = False) -> str:
    """Return the text of a shader around the kernel's functions; `adjacent` as in `_element_loop`."""
    members = ", ".join(f"{name}: {type_}" for name, type_ in map_parameters(kernel, places))
    buffers = {write.array: binding_of(write.array) for write in kernel.writes}
    lines = stored(kernel, places, "index", buffers, *computed(kernel, places, "index", buffers))
    return _element_loop(members, map_bindings(kernel), lines, places, loop, adjacent)


def computed(
    kernel: Kernel, places: Places, index: str, buffers: Mapping[str, str], known: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the statements that compute the values of an element, and the expression of each.

    The offsets of strided arrays are declared before, and the position along each axis, if an array is placed.

    Args:
        kernel: the map.
        places: where it reads and writes.
        index: the expression of the index.
        buffers: the buffer that each array is written to.
        known: the expressions of values that are not read.
    """
    expressions = {INDEX: index, **{name: f"parameters.{name}" for name in kernel.numbers}, **(known or {})}
    lines = []
    for name, value in kernel.values.items():
        if name in expressions:
            continue
        match value.source:
            case Read(array=array) if array:
                expression = _element(places, array, buffers, index)
            case Read() if name in kernel.tables or name in kernel.placed:
                continue
            case Read() if name in places.of_column:
                expression = f"of_column.{name}"
            case Read():
                expression = f"{binding_of(name)}[{f'{name}_at' if name in places.strided else index}]"
            case Part() as part:
                expression = f"{part.function}({', '.join(expressions[argument] for argument in value.arguments)})"
                expression = f"u32({expression})" if kernel.returns_bool(part) else expression
            case Take(array=array) as take:
                *at, fill = (expressions[argument] for argument in value.arguments[1:])
                if at:
                    condition = f"{at[0]} < parameters.{array}_length"
                    offset = f"{array}_at + {at[0]} * parameters.{array}_step"
                else:
                    positions, conditions, terms = taken_where_placed(take, places, "parameters.{}".format)
                    lines += [f"let {position} = {term};" for position, term in positions.items()]
                    condition, offset = " && ".join(conditions), " + ".join([f"{array}_at", *terms])
                element = f"v_{name} = {binding_of(array)}[{offset}];"
                lines += [f"var v_{name} = {fill};", f"if {condition} {{ {element} }}"]
                expressions[name] = f"v_{name}"
                continue
        expressions[name] = f"v_{name}"
        lines.append(f"let v_{name} = {expression};")
    return lines, expressions


def taken_where_placed(
    take: Take, places: Places, parameter: Callable[[str], str], divided: str = "/"
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return expressions of what is taken of an array that is placed; at0, at1, … are the indices along all axes.

    Args:
        take: of the array.
        places: with its axes.
        parameter: returns the expression of a parameter of the launch.
        divided: the operator of a division without remainder.

    Returns:
        The position on each axis of the array, by name; by these names the conditions for an element there, and the
        terms of its offset that are due to these axes.
    """
    positions, conditions, terms = dict[str, str](), list[str](), list[str]()
    for number, span in enumerate(dict(places.spans)[take.array]):
        of_span = {word: parameter(f"{take.array}_span{number}_{word}") for word in span.words}
        steps = [f" * {of_span[f'step{axis}']}" if span.has_steps else "" for axis in span.axes]
        indices = " + ".join(f"at{axis}{step}" for axis, step in zip(span.axes, steps, strict=True))
        position = f"{take.name}_position{number}"
        positions[position] = f"{indices or 'at0 - at0'} - {of_span['start']}"
        conditions.append(f"{position} < {of_span['extent']}")
        if span.is_spaced:
            conditions.append(f"{position} % {of_span['spacing']} == 0")
            position += f" {divided} {of_span['spacing']}"
        terms.append(f"{position} * {of_span['stride']}")
    return positions, conditions, terms


def stored(
    kernel: Kernel,
    places: Places,
    index: str,
    buffers: Mapping[str, str],
    lines: Sequence[str],
    expressions: Mapping[str, str],
) -> list[str]:
    """Return the statements with those that write the results."""
    written = kernel.written.items()
    stores = (f"{_element(places, array, buffers, index)} = {expressions[value.name]};" for array, value in written)
    return [*lines, *stores]


def _element(places: Places, array: str, buffers: Mapping[str, str], index: str) -> str:
    """Return an element of an array that is written."""
    return f"{buffers[array]}[{f'{array}_at' if array in places.strided else index}]"


# Offsets in strided arrays.


def offsets_of_index(places: Places, index: str, keyword: str = "let") -> list[str]:
    """Return the statements that declare the position of the element `index` along each axis and its offsets, NAME_at.

    `keyword` is "var" if they will change.
    """
    if not places.rank:
        return []
    axes = range(places.rank)
    lines = [f"var rest = {index};"]
    for axis in reversed(axes[1:]):
        lines += [f"{keyword} at{axis} = rest % parameters.dim{axis};", f"rest = rest / parameters.dim{axis};"]
    lines.append(f"{keyword if places.spans else 'let'} at0 = rest;")
    return [*lines, *offsets_of_place(places.strided, [f"at{axis}" for axis in axes], keyword)]


def offsets_of_place(names: Sequence[str], place: Sequence[str], keyword: str = "let") -> list[str]:
    """Return the statements that declare the offsets of the element at these positions."""
    lines = []
    for name in names:
        terms = " + ".join(f"{position} * parameters.{name}_stride{axis}" for axis, position in enumerate(place))
        lines.append(f"{keyword} {name}_at = parameters.{name}_start + {terms};")
    return lines


def _steps(places: Places) -> list[str]:
    """Return the statements that declare NAME_stepAXIS.

    It is the distance from an element that is the last one along all axes after this axis to the element that follows.
    """
    lines = []
    for name in places.strided:
        step = f"parameters.{name}_stride{places.rank - 1}"
        for axis in reversed(range(places.rank - 1)):
            inner = f"parameters.dim{axis + 1} * parameters.{name}_stride{axis + 1}"
            lines.append(f"let {name}_step{axis} = {step} + parameters.{name}_stride{axis} - {inner};")
            step = f"{name}_step{axis}"
    return lines


def _next_offsets(places: Places) -> list[str]:
    """Return the statements that change offsets to those of the next element, without dividing.

    They change the positions too, but for that along the first axis, on which no step depends, where no array is
    placed.
    """
    lines, carry, axes = [], "1u", range(places.rank - 1, 0, -1)
    for axis in axes:
        lines += [
            f"at{axis} += {carry};",
            f"let ends{axis} = at{axis} == parameters.dim{axis};",
            f"at{axis} = select(at{axis}, 0u, ends{axis});",
        ]
        carry = f"select(0u, 1u, ends{axis})"
    if places.spans:
        lines.append(f"at0 += {carry};")
    for name in places.strided:
        step = f"parameters.{name}_stride{places.rank - 1}"
        for axis in axes:
            step = f"select({step}, {name}_step{axis - 1}, ends{axis})"
        lines.append(f"{name}_at += {step};")
    return lines


def _element_loop(
    members: str,
    bindings: Sequence[tuple[str, str, str]],
    body: Sequence[str],
    places: Places,
    loop: tuple[int, int] = LOOP,
    adjacent: bool = False,
) -> str:
    """Return the bindings, parameters and entry point of a kernel that runs `body` for each `index` below `size`.

    Args:
        members: of the struct of parameters, after which the bindings follow.
        bindings: name, access and type of each.
        body: statements; they have the offsets in strided arrays as NAME_at, and positions as at0, at1, …
        places: the strided arrays.
        loop: invocations of a workgroup, and iterations of each.
        adjacent: the elements of an invocation are adjacent, and the offsets of all but the first are found without
            dividing. This takes half of the time where divisions take longest, on software adapters; GPUs read memory
            fastest if it is adjacent invocations that have adjacent elements.
    """
    invocations, iterations = loop
    start = f"(workgroup.x + workgroup.y * grid.x) * {invocations * iterations}u"
    if adjacent and places.rank:
        lines = [
            f"let first = {start} + lane * {iterations}u;",
            *offsets_of_index(places, "first", "var"),
            *_steps(places),
            f"for (var iteration = 0u; iteration < {iterations}u; iteration++) {{",
            "    let index = first + iteration;",
            "    if index < parameters.size {",
            *_indented(body, 2),
            "    }",
            *_indented(_next_offsets(places)),
            "}",
        ]
    else:
        lines = [
            f"let first = {start} + lane;",
            f"for (var iteration = 0u; iteration < {iterations}u; iteration++) {{",
            f"    let index = first + iteration * {invocations}u;",
            "    if index < parameters.size {",
            *_indented([*offsets_of_index(places, "index"), *body], 2),
            "    }",
            "}",
        ]
    text = "\n".join(_indented(lines))
    return f"""
struct ElementwiseParameters {{ {members} }}

{shell.storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: ElementwiseParameters;

@compute @workgroup_size({invocations})
fn main({shell.GRID_PARAMETERS}) {{
{text}
}}
"""


def _indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]

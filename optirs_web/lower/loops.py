"""A map as loops over arrays, printed for Numba below the functions of its files; see `wgsl.numba_shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kernel import INDEX, Kernel, Part, Read, Take
from ..wgsl.numba_shell import Loops, function_text, in_parts, indented
from ..wgsl.print_python import python_name
from .maps import Places, taken_where_placed, words_of_places

__all__ = ["map_loops"]

_ROW = """

@_compiled
def _copy_row(values, first, step, rows, start, size):
    if step == 1:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first + np.uint64(at)]
    elif step == 0:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first]
    else:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first + np.uint64(at) * step]


@_compiled
def _put_row(rows, start, values, first, step, size):
    for at in range(size):
        values[first + np.uint64(at) * step] = rows[start + np.uint64(at)]


@_compiled
def _count_row(first, step, rows, start, size):
    for at in range(size):
        rows[start + np.uint64(at)] = first + np.uint64(at) * step
"""
"""Rows of strided arrays are copied, so that the loop over elements sees contiguous arrays and is vectorized."""

_AT_ONCE = 1024
"""Number of elements of short rows in one loop, as starting a loop takes as long as dozens of elements."""


def map_loops(kernel: Kernel, places: Places) -> Loops:
    """Return the loops of a map.

    After `parts`, `launch` takes `layout` (u64), `size`, the numbers, the arrays that are read and those that are
    written. `layout` has the parameters of `lower.maps.words_of_places`.
    """
    reads = [f"a_{read.name}" for read in kernel.reads if not read.array]
    results = [f"r_{write.array}" for write in kernel.writes]
    numbers = [f"v_{name}" for name in kernel.numbers]
    tables = [name for name in places.strided if name in kernel.tables]
    of_tables = [f"{word}_{name}" for name in tables for word in ("at", "step", "length")]
    placed = _placed_in(kernel)
    whole = [name for name in reads if name[2:] not in kernel.placed]
    parameters = ["first", "size", *numbers, *whole, *results, *of_tables, *(f"v_{take.name}s" for take in placed)]
    elements = function_text("_elements", parameters, ["for at in range(size):", *indented(_element(kernel))])
    elements += _ROW if places.strided else ""
    parameter = {name: f"layout[{number}]" for number, name in enumerate(words_of_places(kernel, places))}
    in_rows = {name: f"rows_{name[2:]}" for name in (*reads, *results) if name[2:] in places.strided}
    in_rows |= {f"a_{name}": f"a_{name}" for name in tables}

    def sliced(start: str, end: str) -> str:
        arrays = (in_rows.get(name, f"{name}[{start}:{end}]") for name in (*whole, *results))
        words = [f"rows_{name}, {parameter[f'{name}_step']}, {parameter[f'{name}_length']}" for name in tables]
        return ", ".join([*numbers, *arrays, *words, *(f"rows_{take.name}" for take in placed)])

    if places.rank > 1:
        body = _rows(kernel, places, parameter, sliced("first * inner", "(first + count) * inner"))
    elif places.rank:
        body = _one_row(kernel, places, parameter, sliced("first", "first + inner"))
    else:
        body = [
            "first = size * number // parts",
            "end = size * (number + 1) // parts",
            f"_elements(first, end - first, {sliced('first', 'end')})",
        ]
    text = in_parts(kernel.map_module, elements, ["layout", "size", *numbers, *reads, *results], body)
    return Loops(text, ())


def _placed_in(kernel: Kernel) -> list[Take]:
    """Return what is taken of arrays that are placed in a part of the map."""
    return [part for part in kernel.parts if isinstance(part, Take) and not part.at]


def _element(kernel: Kernel) -> list[str]:
    """Return the statements that compute an element."""
    lines = []
    for name, value in kernel.values.items():
        match value.source:
            case Read() if name in kernel.tables or name in kernel.placed:
                continue
            case Read(array=array):
                lines.append(f"v_{name} = {f'r_{array}' if array else f'a_{name}'}[at]")
            case Take(at=""):
                lines.append(f"v_{name} = v_{name}s[at]")
            case Take(array=array):
                at, fill = map(_expression, value.arguments[1:])
                element = f"a_{array}[at_{array}[at] + np.uint64({at}) * step_{array}]"
                lines.append(f"v_{name} = {element} if {at} < length_{array} else {fill}")
            case Part() as part:
                call = f"{python_name(part.function)}({', '.join(map(_expression, value.arguments))})"
                lines.append(f"v_{name} = {f'np.uint32({call})' if kernel.returns_bool(part) else call}")
    return lines + [f"r_{array}[at] = {_expression(value.name)}" for array, value in kernel.written.items()]


def _rows(kernel: Kernel, places: Places, parameter: Mapping[str, str], arguments: str) -> list[str]:
    """Return the statements of a thread that go through rows, of which those of strided arrays are copied."""
    copies, put = _copies(kernel, places, parameter), _put(kernel, places, parameter)
    return [
        f"inner = np.int64({parameter[f'dim{places.rank - 1}']})",
        "rows = size // inner",
        f"at_once = max(1, {_AT_ONCE} // inner)",
        *_memory(kernel, places, "at_once * inner"),
        "end = rows * (number + 1) // parts",
        "for first in range(rows * number // parts, end, at_once):",
        "    count = min(at_once, end - first)",
        *indented(_over_rows(places, parameter, copies)),
        f"    _elements(first * inner, count * inner, {arguments})",
        *indented(_over_rows(places, parameter, put)),
    ]


def _one_row(kernel: Kernel, places: Places, parameter: Mapping[str, str], arguments: str) -> list[str]:
    """Return the statements of a thread that go through its part of the only row."""
    return [
        *_memory(kernel, places, str(_AT_ONCE)),
        "start, end = np.uint64(0), size * (number + 1) // parts",
        f"for first in range(size * number // parts, end, {_AT_ONCE}):",
        f"    inner = min({_AT_ONCE}, end - first)",
        *indented(_copies(kernel, places, parameter)),
        f"    _elements(first, inner, {arguments})",
        *indented(_put(kernel, places, parameter)),
    ]


def _memory(kernel: Kernel, places: Places, size: str) -> list[str]:
    """Return the statements that allocate memory for rows."""
    types = {name: f"r_{name}.dtype" if name in kernel.written else f"a_{name}.dtype" for name in places.strided}
    types |= dict.fromkeys(kernel.tables, "np.uint64")
    types |= {take.name: f"a_{take.array}.dtype" for take in _placed_in(kernel)}
    return [f"rows_{name} = np.empty({size}, {type_})" for name, type_ in types.items() if name not in kernel.placed]


def _copies(kernel: Kernel, places: Places, parameter: Mapping[str, str]) -> list[str]:
    """Return the statements that copy a row of each strided array that is read; of a table, count where it begins."""
    lines = []
    for name in places.strided:
        if name not in kernel.written and name not in kernel.placed:
            row = f"{', '.join(_address(places, parameter, name))}, rows_{name}, start, inner"
            lines.append(f"_count_row({row})" if name in kernel.tables else f"_copy_row(a_{name}, {row})")
    return lines + [line for take in _placed_in(kernel) for line in _placed(places, parameter, take)]


def _put(kernel: Kernel, places: Places, parameter: Mapping[str, str]) -> list[str]:
    """Return the statements that write a row of each strided result."""
    names = [name for name in places.strided if name in kernel.written]
    return [
        f"_put_row(rows_{name}, start, r_{name}, {', '.join(_address(places, parameter, name))}, inner)"
        for name in names
    ]


def _over_rows(places: Places, parameter: Mapping[str, str], lines: Sequence[str]) -> list[str]:
    """Return the statements that do something for each of a few rows, given positions along all but the last axis."""
    if not lines:
        return []
    positions = ["rest = np.uint64(first + row)"]
    for axis in reversed(range(places.rank - 1)):
        size = parameter[f"dim{axis}"]
        positions += [f"at{axis} = rest % {size}", f"rest = rest // {size}"]
    positions.append("start = np.uint64(row * inner)")
    return ["for row in range(count):", *indented([*positions, *lines])]


def _address(places: Places, parameter: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the offset of the first element of a row, or of a part of the only one, and the distance of elements."""
    stride = parameter[f"{name}_stride{places.rank - 1}"]
    if places.rank == 1:
        return f"{parameter[f'{name}_start']} + np.uint64(first) * {stride}", stride
    terms = "".join(f" + at{axis} * {parameter[f'{name}_stride{axis}']}" for axis in range(places.rank - 1))
    return f"{parameter[f'{name}_start']}{terms}", stride


def _placed(places: Places, parameter: Mapping[str, str], take: Take) -> list[str]:
    """Return the statements that make a row of what is taken of an array that is placed in a part of the map."""
    offset, stride = _address(places, parameter, take.array)
    positions, conditions, terms = taken_where_placed(take, places, parameter.__getitem__, "//")
    return [
        "for column in range(inner):",
        f"    at{places.rank - 1} = np.uint64({'first + column' if places.rank == 1 else 'column'})",
        *(f"    {position} = {term}" for position, term in positions.items()),
        f"    value = v_{take.fill}",
        f"    if {' and '.join(conditions)}:",
        f"        value = a_{take.array}[{' + '.join([f'{offset} + np.uint64(column) * {stride}', *terms])}]",
        f"    rows_{take.name}[start + np.uint64(column)] = value",
    ]


def _expression(value: str) -> str:
    return "np.uint32(first + at)" if value == INDEX else f"v_{value}"

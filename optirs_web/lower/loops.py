"""A map as loops over arrays, printed for Numba below the functions of its files; see `wgsl.numba_shell`."""

from __future__ import annotations

from ..kernel import INDEX, Kernel, Part, Read
from ..wgsl.numba_shell import Loops, function_text, in_parts, indented
from ..wgsl.print_python import python_name
from .maps import Places

__all__ = ["is_for_loops", "map_loops"]

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
"""
"""Rows of strided views are copied, so that the loop over elements sees contiguous arrays and is vectorized."""

_AT_ONCE = 1024
"""Number of elements of short rows in one loop, as starting a loop takes as long as dozens of elements."""


def is_for_loops(kernel: Kernel, places: Places) -> bool:
    """Return whether there are loops for a map: it takes nothing of arrays, and writes all of them."""
    is_whole = not any(write.array in places.strided for write in kernel.writes)
    return is_whole and not (kernel.tables or kernel.placed)


def map_loops(kernel: Kernel, places: Places) -> Loops:
    """Return the loops of a map.

    After `parts`, `launch` takes `walk` (u64), `size`, the numbers, the arrays that are read and those that are
    written. `walk` has the lengths of the axes, then for each strided array its offset and its strides along the axes,
    in elements.
    """
    reads = [f"a_{read.name}" for read in kernel.reads if not read.array]
    results = [f"r_{write.array}" for write in kernel.writes]
    numbers = [f"v_{name}" for name in kernel.numbers]
    parameters = ["first", "size", *numbers, *reads, *results]
    elements = function_text("_elements", parameters, ["for at in range(size):", *indented(_element(kernel))])
    elements += _ROW if places.strided else ""
    rows_of = {f"a_{name}": f"rows_{name}" for name in places.strided}

    def sliced(start: str, end: str) -> str:
        arrays = (rows_of.get(name, f"{name}[{start}:{end}]") for name in (*reads, *results))
        return ", ".join([*numbers, *arrays])

    if places.rank:
        body = _rows(places, sliced("first * inner", "(first + count) * inner"))
    else:
        body = [
            "first = size * number // parts",
            "end = size * (number + 1) // parts",
            f"_elements(first, end - first, {sliced('first', 'end')})",
        ]
    text = in_parts(kernel.map_module, elements, ["walk", "size", *numbers, *reads, *results], body)
    return Loops(text, ())


def _element(kernel: Kernel) -> list[str]:
    """Return the statements that compute an element."""
    lines = []
    for name, value in kernel.values.items():
        match value.source:
            case Read(array=array):
                lines.append(f"v_{name} = {f'r_{array}' if array else f'a_{name}'}[at]")
            case Part() as part:
                call = f"{python_name(part.function)}({', '.join(map(_expression, value.arguments))})"
                lines.append(f"v_{name} = {f'np.uint32({call})' if kernel.returns_bool(part) else call}")
    return lines + [f"r_{array}[at] = {_expression(value.name)}" for array, value in kernel.written.items()]


def _rows(places: Places, arguments: str) -> list[str]:
    """Return the statements of a thread that go through rows, of which those of strided arrays are copied."""
    return [
        f"inner = np.int64(walk[{places.rank - 1}])",
        "rows = size // inner",
        f"at_once = max(1, {_AT_ONCE} // inner)",
        *(f"rows_{name} = np.empty(at_once * inner, a_{name}.dtype)" for name in places.strided),
        "end = rows * (number + 1) // parts",
        "for first in range(rows * number // parts, end, at_once):",
        "    count = min(at_once, end - first)",
        "    for row in range(count):",
        *indented(_copied(places), 2),
        f"    _elements(first * inner, count * inner, {arguments})",
    ]


def _copied(places: Places) -> list[str]:
    """Return the statements that copy a row of each strided array."""
    lines = ["rest = np.uint64(first + row)"]
    for axis in reversed(range(places.rank - 1)):
        lines += [f"at{axis} = rest % walk[{axis}]", f"rest = rest // walk[{axis}]"]
    for order, name in enumerate(places.strided):
        start = places.rank + order * (places.rank + 1)
        terms = "".join(f" + at{axis} * walk[{start + 1 + axis}]" for axis in range(places.rank - 1))
        address = f"walk[{start}]{terms}, walk[{start + places.rank}]"
        lines.append(f"_copy_row(a_{name}, {address}, rows_{name}, np.uint64(row * inner), inner)")
    return lines


def _expression(value: str) -> str:
    return "np.uint32(first + at)" if value == INDEX else f"v_{value}"

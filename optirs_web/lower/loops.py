"""A map as loops over arrays, printed for Numba below the functions of its files; see `wgsl.numba_shell`."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel import INDEX, Kernel, Part, Read
from ..wgsl.numba_shell import Loops, function_text, in_parts, indented
from ..wgsl.print_python import python_name

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
"""
"""Rows of strided views are copied, so that the loop over elements sees contiguous arrays and is vectorized."""

_AT_ONCE = 1024
"""Number of elements of short rows in one loop, as starting a loop takes as long as dozens of elements."""


def map_loops(kernel: Kernel, strided: Sequence[str], rank: int) -> Loops:
    """Return the loops of a map.

    After `parts`, `launch` takes `walk` (u64), `size`, the numbers, the arrays that are read and those that are
    written. `walk` has the lengths of the axes, then for each strided array its offset and its strides along the axes,
    in elements.

    Args:
        kernel: the map.
        strided: the values that are read from strided arrays.
        rank: number of axes of these.
    """
    reads = [f"a_{read.name}" for read in kernel.reads if not read.array]
    results = [f"r_{write.array}" for write in kernel.writes]
    numbers = [f"v_{name}" for name in kernel.numbers]
    lines = []
    for name, value in kernel.values.items():
        match value.source:
            case Read(array=array):
                lines.append(f"v_{name} = {f'r_{array}' if array else f'a_{name}'}[at]")
            case Part() as part:
                call = f"{python_name(part.function)}({', '.join(map(_expression, value.arguments))})"
                lines.append(f"v_{name} = {f'np.uint32({call})' if kernel.returns_bool(part) else call}")
    lines += [f"r_{array}[at] = {_expression(value.name)}" for array, value in kernel.written.items()]
    parameters = ["first", "size", *numbers, *reads, *results]
    elements = function_text("_elements", parameters, ["for at in range(size):", *indented(lines)])
    elements += _ROW if strided else ""
    rows_of = {f"a_{name}": f"rows_{name}" for name in strided}

    def sliced(start: str, end: str) -> str:
        arrays = (rows_of.get(name, f"{name}[{start}:{end}]") for name in (*reads, *results))
        return ", ".join([*numbers, *arrays])

    if not rank:
        body = [
            "first = size * number // parts",
            "end = size * (number + 1) // parts",
            f"_elements(first, end - first, {sliced('first', 'end')})",
        ]
    else:
        call = ", ".join(["first * inner", "count * inner", sliced("first * inner", "(first + count) * inner")])
        body = [
            f"inner = np.int64(walk[{rank - 1}])",
            "rows = size // inner",
            f"at_once = max(1, {_AT_ONCE} // inner)",
            *(f"rows_{name} = np.empty(at_once * inner, a_{name}.dtype)" for name in strided),
            "end = rows * (number + 1) // parts",
            "for first in range(rows * number // parts, end, at_once):",
            "    count = min(at_once, end - first)",
            "    for row in range(count):",
            *indented(_copied(strided, rank), 2),
            f"    _elements({call})",
        ]
    text = in_parts(kernel.map_module, elements, ["walk", "size", *numbers, *reads, *results], body)
    return Loops(text, ())


def _copied(strided: Sequence[str], rank: int) -> list[str]:
    """Return the statements that copy a row of each strided array."""
    lines = ["rest = np.uint64(first + row)"]
    for axis in reversed(range(rank - 1)):
        lines += [f"at{axis} = rest % walk[{axis}]", f"rest = rest // walk[{axis}]"]
    for order, name in enumerate(strided):
        start = rank + order * (rank + 1)
        terms = "".join(f" + at{axis} * walk[{start + 1 + axis}]" for axis in range(rank - 1))
        address = f"walk[{start}]{terms}, walk[{start + rank}]"
        lines.append(f"_copy_row(a_{name}, {address}, rows_{name}, np.uint64(row * inner), inner)")
    return lines


def _expression(value: str) -> str:
    return "np.uint32(first + at)" if value == INDEX else f"v_{value}"

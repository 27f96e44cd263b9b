"""How an element of an arena finds the row, the column and the matrix that it lies in, and their state.

A tensor is a stack of matrices in its last two dimensions; one with fewer dimensions is a matrix of one row, for which
`is_matrix` is false. A rule may declare `Row`, `Column` and `Matrix`, structs of f32 that each row, column and matrix
keeps from step to step. They lie in the buffer ``lines``: for each tensor the members of Row, one after the other, each
with a value for every row; then those of Column; then those of Matrix. A function of the rule is given them by name:

    row, column, matrix   the Row, the Column and the Matrix that the element lies in
    is_matrix             whether the tensor has two dimensions or more
"""

from __future__ import annotations

import itertools

from . import syntax
from .shell import function_of, struct_of

__all__ = [
    "LINE_STRUCTS",
    "SHAPE",
    "SHAPE_WORDS",
    "bindings",
    "line_functions",
    "line_members",
    "loads",
    "looks_up",
    "tables",
    "values",
]

LINE_STRUCTS = {"row": "Row", "column": "Column", "matrix": "Matrix"}
"""The struct of each kind of line, in the order in which they lie in ``lines``."""

SHAPE = """
// One per tensor: `matrices` of `rows` times `columns`. `first` is its first element in what the kernel sees of the
// arena, and may lie before that (it wraps); `lines` and `partials` are where it begins in those buffers; the
// logarithms are those of a tile's size; `turns` counts the parts in which kernels see the tensor.
struct Shape {
    first: u32, matrices: u32, rows: u32, columns: u32, lines: u32, partials: u32,
    log_rows: u32, log_columns: u32, turns: u32, is_matrix: u32,
}
"""
SHAPE_WORDS = 10

_COUNTS = {
    "row": "shape.matrices * shape.rows",
    "column": "shape.matrices * shape.columns",
    "matrix": "shape.matrices",
}


def line_members(module: syntax.Module) -> dict[str, tuple[str, ...]]:
    """The members of the state of each kind of line that the rule declares."""
    found = {kind: tuple(one.name for one in struct_of(module, name).members) for kind, name in LINE_STRUCTS.items()}
    return {kind: members for kind, members in found.items() if members}


def looks_up(module: syntax.Module, function: str) -> bool:
    """Whether the function asks for a line or for what kind of tensor it is."""
    names = {one.name for one in function_of(module, function).parameters}
    return not names.isdisjoint((*LINE_STRUCTS, "is_matrix"))


def bindings(module: syntax.Module, function: str) -> list[tuple[str, str, str]]:
    """What a kernel of this function binds besides."""
    if not looks_up(module, function):
        return []
    return [("lines", "read", "array<f32>"), ("shapes", "read", "array<Shape>")]


def tables(module: syntax.Module, function: str) -> str:
    """What a kernel of this function declares besides."""
    return SHAPE + line_functions(module) if looks_up(module, function) else ""


def line_functions(module: syntax.Module, stores: bool = False) -> str:
    """WGSL functions that load, and perhaps store, a line of a shape by its number."""
    functions = []
    first = "shape.lines"
    for kind, members in line_members(module).items():
        count = _COUNTS[kind]
        places = [f"lines[{first} + {number}u * {count} + at]" for number in range(len(members))]
        loaded = f"{LINE_STRUCTS[kind]}({', '.join(places)})"
        functions.append(f"fn load_{kind}(shape: Shape, at: u32) -> {LINE_STRUCTS[kind]} {{\n    return {loaded};\n}}")
        if stores:
            body = "".join(f"    {place} = value.{name};\n" for place, name in zip(places, members, strict=True))
            functions.append(f"fn store_{kind}(shape: Shape, at: u32, value: {LINE_STRUCTS[kind]}) {{\n{body}}}")
        first += f" + {len(members)}u * {count}"
    return "\n".join(functions)


def loads(module: syntax.Module, function: str, lanes: str) -> list[str]:
    """Statements that find the lines of each of the elements of a vector, in a loop over those of a block."""
    if not looks_up(module, function):
        return []
    lines = [
        "let shape = shapes[block.tensor];",
        f"let index = at * {len(lanes)}u - shape.first;",
        "let row_x = index / shape.columns;",
        "let across_x = index - row_x * shape.columns;",
        "let matrix_x = row_x / shape.rows;",
        "let down_x = row_x - matrix_x * shape.rows;",
    ]
    for before, lane in itertools.pairwise(lanes):  # integers divide slowly
        lines += [
            f"let ends_{lane} = across_{before} + 1u == shape.columns;",
            f"let fills_{lane} = ends_{lane} && down_{before} + 1u == shape.rows;",
            f"let across_{lane} = select(across_{before} + 1u, 0u, ends_{lane});",
            f"let row_{lane} = row_{before} + u32(ends_{lane});",
            f"let matrix_{lane} = matrix_{before} + u32(fills_{lane});",
            f"let down_{lane} = select(down_{before} + u32(ends_{lane}), 0u, fills_{lane});",
        ]
    return lines + [f"let column_{lane} = matrix_{lane} * shape.columns + across_{lane};" for lane in lanes]


def values(module: syntax.Module, suffix: str) -> dict[str, str]:
    """What a function is given for the lines numbered in `row_SUFFIX` and so on."""
    kinds = line_members(module)
    found = {kind: f"load_{kind}(shape, {kind}_{suffix})" for kind in kinds}
    return {**found, "is_matrix": "shape.is_matrix != 0u"} if kinds else {}

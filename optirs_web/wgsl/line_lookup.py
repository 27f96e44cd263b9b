"""The generated code that finds the row, the column and the matrix of an element of an arena, and loads their state.

A tensor is a stack of matrices in its last two dimensions; one with fewer dimensions is a matrix of one row, for which
`is_matrix` is false. A rule may declare `Row`, `Column` and `Matrix`, structs of f32 that are stored for each row,
column and matrix ("lines") from step to step. The buffer ``lines`` has for each tensor the members of Row, one after
the other, each with a value for every row; then those of Column; then those of Matrix. Parameters of the rule's
functions receive them by name:

    row, column, matrix   the Row, the Column and the Matrix of the element
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
    "line_counts",
    "line_functions",
    "line_members",
    "loads",
    "looks_up",
    "tables",
    "tiles_of_lines",
    "values",
]

LINE_STRUCTS = {"row": "Row", "column": "Column", "matrix": "Matrix"}
"""The struct of each kind of line, in the order of the buffer ``lines``."""

SHAPE = """
// One per tensor: `matrices` of `rows` times `columns`. `first` is the index of its first element in the bound range of
// the arena, and may be negative (it wraps); `lines` and `partials` are its offsets in those buffers; the logarithms
// are those of a tile's size; `turns` is the number of parts in which the tensor is bound.
struct Shape {
    first: u32, matrices: u32, rows: u32, columns: u32, lines: u32, partials: u32,
    log_rows: u32, log_columns: u32, turns: u32, is_matrix: u32,
}
"""
SHAPE_WORDS = 10


def line_counts(matrices: int, rows: int, columns: int) -> dict[str, int]:
    """Return the number of lines of each kind."""
    return {"row": matrices * rows, "column": matrices * columns, "matrix": matrices}


def tiles_of_lines(rows: int, columns: int, log_rows: int, log_columns: int) -> dict[str, int]:
    """Return the number of tiles, of a size given by logarithms, that a line of each kind crosses in a matrix."""
    row_tiles, column_tiles = -(-columns >> log_columns), -(-rows >> log_rows)
    return {"row": row_tiles, "column": column_tiles, "matrix": row_tiles * column_tiles}


_COUNTS = {
    "row": "shape.matrices * shape.rows",
    "column": "shape.matrices * shape.columns",
    "matrix": "shape.matrices",
}


def line_members(module: syntax.Module) -> dict[str, tuple[str, ...]]:
    """Return, by kind, the members of the structs `Row`, `Column` and `Matrix` that the rule declares."""
    kinds = {
        kind: tuple(member.name for member in struct_of(module, name).members) for kind, name in LINE_STRUCTS.items()
    }
    return {kind: members for kind, members in kinds.items() if members}


def looks_up(module: syntax.Module, function: str) -> bool:
    """Return True if a function has a parameter `row`, `column`, `matrix` or `is_matrix`."""
    names = {parameter.name for parameter in function_of(module, function).parameters}
    return not names.isdisjoint((*LINE_STRUCTS, "is_matrix"))


def bindings(module: syntax.Module, function: str) -> list[tuple[str, str, str]]:
    """Return the additional bindings of a kernel of this function."""
    if not looks_up(module, function):
        return []
    return [("lines", "read", "array<f32>"), ("shapes", "read", "array<Shape>")]


def tables(module: syntax.Module, function: str) -> str:
    """Return the additional declarations of a kernel of this function."""
    return SHAPE + line_functions(module) if looks_up(module, function) else ""


def line_functions(module: syntax.Module, stores: bool = False) -> str:
    """Return WGSL functions that load (and with `stores` store) the state of a row, column or matrix by its index."""
    functions = []
    offset = "shape.lines"
    for kind, members in line_members(module).items():
        count = _COUNTS[kind]
        elements = [f"lines[{offset} + {number}u * {count} + at]" for number in range(len(members))]
        loaded = f"{LINE_STRUCTS[kind]}({', '.join(elements)})"
        functions.append(f"fn load_{kind}(shape: Shape, at: u32) -> {LINE_STRUCTS[kind]} {{\n    return {loaded};\n}}")
        if stores:
            body = "".join(f"    {element} = value.{name};\n" for element, name in zip(elements, members, strict=True))
            functions.append(f"fn store_{kind}(shape: Shape, at: u32, value: {LINE_STRUCTS[kind]}) {{\n{body}}}")
        offset += f" + {len(members)}u * {count}"
    return "\n".join(functions)


def loads(module: syntax.Module, function: str, lanes: str) -> list[str]:
    """Return statements that compute the row, column and matrix of each element of the vector at `at` of a block."""
    if not looks_up(module, function):
        return []
    statements = [
        "let shape = shapes[block.tensor];",
        f"let index = at * {len(lanes)}u - shape.first;",
        "let row_x = index / shape.columns;",
        "let across_x = index - row_x * shape.columns;",
        "let matrix_x = row_x / shape.rows;",
        "let down_x = row_x - matrix_x * shape.rows;",
    ]
    for before, lane in itertools.pairwise(lanes):  # integers divide slowly
        statements += [
            f"let ends_{lane} = across_{before} + 1u == shape.columns;",
            f"let fills_{lane} = ends_{lane} && down_{before} + 1u == shape.rows;",
            f"let across_{lane} = select(across_{before} + 1u, 0u, ends_{lane});",
            f"let row_{lane} = row_{before} + u32(ends_{lane});",
            f"let matrix_{lane} = matrix_{before} + u32(fills_{lane});",
            f"let down_{lane} = select(down_{before} + u32(ends_{lane}), 0u, fills_{lane});",
        ]
    return statements + [f"let column_{lane} = matrix_{lane} * shape.columns + across_{lane};" for lane in lanes]


def values(module: syntax.Module, suffix: str) -> dict[str, str]:
    """Return the arguments for the row, column and matrix with the indices `row_SUFFIX` and so on."""
    kinds = line_members(module)
    states = {kind: f"load_{kind}(shape, {kind}_{suffix})" for kind in kinds}
    return {**states, "is_matrix": "shape.is_matrix != 0u"} if kinds else {}

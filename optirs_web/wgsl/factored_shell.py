"""The generated part of the shaders of rules that keep state per row and per column; see `line_lookup` for the state.

Such a rule has these functions besides those of `rule_shell`, called in this order. Functions whose names end in
``_again`` are called after `settle`:

    measure_lines(param, grad, state, h, s, row, column, matrix, is_matrix)   the LineMeasured of an element
    settle_row(row, measured, h, s, size)                                     the new Row; likewise settle_column
    settle_matrix(matrix, measured, h, s, size)                               and settle_matrix

A line is a row, a column or a matrix. `measured` is the sum over the line (for members named max_..., the maximum),
`size` the number of its elements. An arena is divided into tiles; a workgroup sums the rows and the columns of its tile
into the table `line_partials`. For each tensor it has first the partial sums of rows, one per row and column of tiles;
then those of columns, one per column and row of tiles; then those of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import line_lookup, rule_shell, slot_storage, syntax, transform_lookup
from .line_lookup import LINE_STRUCTS
from .shell import BLOCK, GRID_PARAMETERS, storage, struct_of

__all__ = [
    "AGAIN",
    "GROUP_WORDS",
    "LINES_PER_GROUP",
    "TILE",
    "TILE_WORDS",
    "measure_lines",
    "measure_lines_bindings",
    "settle_functions",
    "settle_lines",
    "settle_lines_bindings",
]

AGAIN = "_again"

TILE = 1024
"""Number of elements of a tile: the product of its rows, columns and matrices, each a power of two."""

LINES_PER_GROUP = 256
"""Number of invocations of a group of rows, columns or matrices; several share one that has many tiles."""

_WORKGROUP = 128

_TILE_ENTRY = """
// One per tile: its tensor, its first matrix, row and column, and the number of the part of the tensor that is bound.
struct Tile { tensor: u32, matrix: u32, row: u32, column: u32, turn: u32 }
"""
TILE_WORDS = 5

_GROUP_ENTRY = """
// Lines of a tensor from index `first`; `kind` is 0 for rows, 1 for columns, 2 for matrices; 2^log_team lanes for each.
struct LineGroup { tensor: u32, kind: u32, first: u32, log_team: u32 }
"""
GROUP_WORDS = 4

_PLACES = """
struct LinePlaces { row_count: u32, column_count: u32, strips: u32, chunks: u32, columns: u32, matrices: u32 }

// The numbers of rows and columns of all matrices, and of columns and rows of tiles; the offsets of the partials of
// columns and of matrices.
fn places_of(shape: Shape) -> LinePlaces {
    let row_count = shape.matrices * shape.rows;
    let column_count = shape.matrices * shape.columns;
    let strips = ((shape.columns - 1u) >> shape.log_columns) + 1u;
    let chunks = ((shape.rows - 1u) >> shape.log_rows) + 1u;
    let columns = shape.partials + shape.turns * strips * row_count;
    return LinePlaces(row_count, column_count, strips, chunks, columns, columns + shape.turns * chunks * column_count);
}
"""


def settle_functions(module: syntax.Module, suffix: str) -> dict[str, str]:
    """Return the function that settles rows, columns and matrices, by kind, as far as the rule has them."""
    named = {kind: f"settle_{kind}{suffix}" for kind in LINE_STRUCTS}
    return {kind: name for kind, name in named.items() if rule_shell.has_function(module, name)}


def measure_lines_bindings(module: syntax.Module, function: str, slots: Mapping[str, str]) -> rule_shell.Bindings:
    """Return the bindings of the kernel that measures tiles."""
    takes_grad = rule_shell.uses(module, function, "grad")
    state = slots if rule_shell.uses(module, function, "state") else {}
    line_bindings = [("lines", "read", "array<f32>")] if line_lookup.looks_up(module, function) else []
    return [
        *((name, "read", "array<f32>") for name in _values(module, function)),
        *(transform_lookup.rule_bindings(module) if takes_grad else []),
        *(binding for name, kind in state.items() for binding in slot_storage.bindings(name, kind, "read")),
        *line_bindings,
        ("shapes", "read", "array<Shape>"),
        ("tiles", "read", "array<Tile>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        ("line_partials", "read_write", "array<LineMeasured>"),
    ]


def _values(module: syntax.Module, function: str) -> list[str]:
    """Return the arena's buffers that are bound, at least one: parameters, gradients, or both."""
    takes_grad = rule_shell.uses(module, function, "grad")
    has_transforms = takes_grad and transform_lookup.has_transforms(module)
    functions = [function, *(["transform_gradient"] if has_transforms else [])]
    takes_param = any(rule_shell.uses(module, name, "param") for name in functions)
    return ["params"] * (takes_param or not takes_grad) + ["grads"] * takes_grad


def _gradient(module: syntax.Module) -> str:
    """Return the gradient, after its transforms, of the element at `at`, which has number `index` in its tensor."""
    if not transform_lookup.has_transforms(module):
        return "grads[at]"
    values = {
        "grad": "grads[at]",
        "param": "params[at]",
        "kept": "kept[at / 4u][at % 4u]",
        "index": "index",
        "tensor": "tile.tensor",
        "t": "its.t",
        "on": "its.on",
    }
    block = f"block_entries[at / {BLOCK}u]"
    arguments = [
        values.get(name, f"rows{name.removeprefix('row')}[{block}.first_row + index / {block}.row_size]")
        for name in transform_lookup.parameters_of(module, "transform_gradient")
    ]
    return f"transform_gradient({', '.join(arguments)})"


def _state(module: syntax.Module, slots: Mapping[str, str]) -> str:
    """Return a WGSL function that loads the State of an element."""
    loads = [statement for name, kind in slots.items() for statement in slot_storage.load(name, kind)]
    members = struct_of(module, "State").members
    state = ", ".join(f"old_{member.name}[element % 4u]" if member.name in slots else "0.0" for member in members)
    return f"""fn state_of(element: u32) -> State {{
    let at = element / 4u;
    let number = element / {BLOCK}u;
    {" ".join(loads)}
    return State({state});
}}"""


def measure_lines(module: syntax.Module, function: str, slots: Mapping[str, str], negate: bool) -> str:
    """Return the shell of ``measure_lines``: a workgroup for each tile."""
    bound = measure_lines_bindings(module, function, slots)
    values = {
        "param": "params[at]",
        "grad": ("-" if negate else "") + _gradient(module),
        "state": "state_of(at)",
        "h": "its.h",
        "s": "its.s",
        **line_lookup.values(module, "here"),
    }
    loads = line_lookup.line_functions(module) if any(name == "lines" for name, _, _ in bound) else ""
    return f"""{rule_shell.tables(module)}{line_lookup.SHAPE}{_TILE_ENTRY}{_PLACES}
{rule_shell.combine(module, "LineMeasured")}
{storage(bound)}
{loads}
{_state(module, slots) if rule_shell.uses(module, function, "state") else ""}
var<workgroup> by_row: array<LineMeasured, {TILE}>;
var<workgroup> by_column: array<LineMeasured, {TILE}>;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let number = workgroup.x + workgroup.y * grid.x;
    let tile = tiles[min(number, arrayLength(&tiles) - 1u)];
    let its = tensor_scalars[tile.tensor];
    let shape = shapes[tile.tensor];
    let is_measured = number < arrayLength(&tiles) && its.is_active == 1u;
    let log_rows = shape.log_rows;
    let log_columns = shape.log_columns;
    let log_area = log_rows + log_columns;

    for (var slot = lane; slot < {TILE}u; slot += {_WORKGROUP}u) {{
        let column = tile.column + (slot & ((1u << log_columns) - 1u));
        let row = tile.row + ((slot >> log_columns) & ((1u << log_rows) - 1u));
        let matrix_here = tile.matrix + (slot >> log_area);
        var value = {rule_shell.nothing(module, "LineMeasured")};
        if is_measured && column < shape.columns && row < shape.rows && matrix_here < shape.matrices {{
            let row_here = matrix_here * shape.rows + row;
            let column_here = matrix_here * shape.columns + column;
            let index = row_here * shape.columns + column;
            let at = shape.first + index;
            if at < arrayLength(&{_values(module, function)[0]}) {{
                value = {rule_shell.call(module, function, values)};
            }}
        }}
        by_row[slot] = value;
        by_column[slot] = value;
    }}
    // Each row and each column is reduced by adding its second half to its first, until its first element is the sum.
    for (var level = max(log_rows, log_columns); level > 0u; level--) {{
        let bits = level - 1u;
        workgroupBarrier();
        if bits < log_columns {{
            for (var pair = lane; pair < (({TILE}u >> log_columns) << bits); pair += {_WORKGROUP}u) {{
                let slot = ((pair >> bits) << log_columns) + (pair & ((1u << bits) - 1u));
                by_row[slot] = combine(by_row[slot], by_row[slot + (1u << bits)]);
            }}
        }}
        if bits < log_rows {{
            let low = log_columns + bits;
            for (var pair = lane; pair < (({TILE}u >> log_rows) << bits); pair += {_WORKGROUP}u) {{
                let slot = ((pair >> low) << log_area) + (pair & ((1u << low) - 1u));
                by_column[slot] = combine(by_column[slot], by_column[slot + (1u << low)]);
            }}
        }}
    }}
    workgroupBarrier();

    let places = places_of(shape);
    let strip = tile.turn * places.strips + (tile.column >> log_columns);
    let chunk = tile.turn * places.chunks + (tile.row >> log_rows);
    for (var line = lane; line < ({TILE}u >> log_columns); line += {_WORKGROUP}u) {{
        let row = tile.row + (line & ((1u << log_rows) - 1u));
        let matrix = tile.matrix + (line >> log_rows);
        if is_measured && row < shape.rows && matrix < shape.matrices {{
            let at = shape.partials + strip * places.row_count + matrix * shape.rows + row;
            line_partials[at] = by_row[line << log_columns];
        }}
    }}
    for (var line = lane; line < ({TILE}u >> log_rows); line += {_WORKGROUP}u) {{
        let across = line & ((1u << log_columns) - 1u);
        let column = tile.column + across;
        let matrix = line >> log_columns;
        if is_measured && column < shape.columns && tile.matrix + matrix < shape.matrices {{
            let at = places.columns + chunk * places.column_count + (tile.matrix + matrix) * shape.columns + column;
            line_partials[at] = by_column[(matrix << log_area) + across];
        }}
    }}
    for (var level = log_rows; level > 0u; level--) {{
        let bits = level - 1u;
        workgroupBarrier();
        for (var pair = lane; pair < (({TILE}u >> log_area) << bits); pair += {_WORKGROUP}u) {{
            let slot = ((pair >> bits) << log_area) + ((pair & ((1u << bits) - 1u)) << log_columns);
            by_row[slot] = combine(by_row[slot], by_row[slot + (1u << (log_columns + bits))]);
        }}
    }}
    workgroupBarrier();
    for (var line = lane; line < ({TILE}u >> log_area); line += {_WORKGROUP}u) {{
        if is_measured && tile.matrix + line < shape.matrices {{
            let tiled = chunk * places.strips + (tile.column >> log_columns);
            line_partials[places.matrices + tiled * shape.matrices + tile.matrix + line] = by_row[line << log_area];
        }}
    }}
}}
"""


def settle_lines_bindings() -> rule_shell.Bindings:
    """Return the bindings of the kernel that settles rows, columns or matrices."""
    return [
        ("shapes", "read", "array<Shape>"),
        ("groups", "read", "array<LineGroup>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        ("line_partials", "read", "array<LineMeasured>"),
        ("lines", "read_write", "array<f32>"),
    ]


def settle_lines(module: syntax.Module, suffix: str) -> str:
    """Return the shell of ``settle_row``, ``settle_column`` and ``settle_matrix``: a workgroup for each group."""
    sizes = {"row": "shape.columns", "column": "shape.rows", "matrix": "shape.rows * shape.columns"}
    functions = settle_functions(module, suffix)
    settled = ""
    for number, kind in enumerate(LINE_STRUCTS):
        if kind in functions:
            values = {
                kind: f"load_{kind}(shape, line)",
                "measured": "totals[lane]",
                "h": "its.h",
                "s": "its.s",
                "size": f"f32({sizes[kind]})",
            }
            settled += f"""
            case {number}u: {{
                store_{kind}(shape, line, {rule_shell.call(module, functions[kind], values)});
            }}"""
    return f"""{rule_shell.tables(module)}{line_lookup.SHAPE}{_GROUP_ENTRY}{_PLACES}
{rule_shell.combine(module, "LineMeasured")}
{storage(settle_lines_bindings())}
{line_lookup.line_functions(module, stores=True)}
var<workgroup> totals: array<LineMeasured, {LINES_PER_GROUP}>;

@compute @workgroup_size({LINES_PER_GROUP})
fn main({GRID_PARAMETERS}) {{
    let number = workgroup.x + workgroup.y * grid.x;
    let group = groups[min(number, arrayLength(&groups) - 1u)];
    let its = tensor_scalars[group.tensor];
    let shape = shapes[group.tensor];
    let places = places_of(shape);
    var count = places.row_count;
    var tiles = places.strips;
    var first = shape.partials;
    if group.kind == 1u {{
        count = places.column_count;
        tiles = places.chunks;
        first = places.columns;
    }} else if group.kind == 2u {{
        count = shape.matrices;
        tiles = places.strips * places.chunks;
        first = places.matrices;
    }}
    let lines_here = {LINES_PER_GROUP}u >> group.log_team;
    let line = group.first + lane % lines_here;
    let is_settled = number < arrayLength(&groups) && its.is_active == 1u && line < count;
    var total = {rule_shell.nothing(module, "LineMeasured")};
    if is_settled {{
        for (var part = lane / lines_here; part < shape.turns * tiles; part += 1u << group.log_team) {{
            total = combine(total, line_partials[first + part * count + line]);
        }}
    }}
    totals[lane] = total;
    for (var half = {LINES_PER_GROUP // 2}u; half > 0u; half /= 2u) {{
        workgroupBarrier();
        if lane < half && half >= lines_here {{
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }}
    }}
    if is_settled && lane < lines_here {{
        switch group.kind {{{settled}
            default: {{
            }}
        }}
    }}
}}
"""

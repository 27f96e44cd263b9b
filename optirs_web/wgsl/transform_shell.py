"""The generated part of the kernels that measure gradients for transforms; see `transform_glue` and `rule_shell`."""

from __future__ import annotations

from . import syntax, transform_lookup
from .rule_shell import Bindings, combine, nothing, reduce_partials, tables
from .shell import BLOCK, GRID_PARAMETERS, function_of, storage

__all__ = ["ROW", "ROW_WORDS", "measure", "measure_bindings", "rows", "rows_bindings", "settle", "settle_bindings"]

ROW = """
// One per row of a tensor: the tensor, the first element in the arena and in the tensor, and the length.
struct RowEntry { tensor: u32, at: u32, index: u32, size: u32 }
"""
ROW_WORDS = 4

# As in `rule_shell`, a group of _GROUP_SIZE invocations computes a block.
_LANES = "xyzw"
_WORKGROUP = 64
_GROUP_SIZE = 8
_VECTORS = BLOCK // 4
_WIDE_WORKGROUP = 256


def _uses(module: syntax.Module, function: str, parameter: str) -> bool:
    return any(declared.name == parameter for declared in function_of(module, function).parameters)


def measure_bindings(module: syntax.Module, number: int, is_first: bool) -> Bindings:
    """Return the bindings of the kernel that measures for transform `number`; `is_first`: before `advance`."""
    function = f"measure_transform_{number}"
    params = [("params", "read", "array<vec4<f32>>")] if _uses(module, function, "param") else []
    before_advance = [("tensors", "read", "array<TensorEntry>"), ("transforms", "read", "array<Transforms>")]
    if transform_lookup.scales(module):
        before_advance.append(("scaler", "read", "array<f32>"))
    return [
        *params,
        ("grads", "read", "array<vec4<f32>>"),
        *transform_lookup.bindings(module, [function]),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        *(before_advance if is_first else []),
        ("partials", "read_write", f"array<Partial{number}>"),
    ]


def measure(module: syntax.Module, number: int, is_first: bool) -> str:
    """Return the shell of a measure over each block; before `advance` it computes the transforms' structs itself."""
    function, struct = f"measure_transform_{number}", f"Partial{number}"
    lines = ["let param = params[at];"] if _uses(module, function, "param") else []
    lines += transform_lookup.loads(module, [function])
    for index, lane in enumerate(_LANES):
        call = transform_lookup.call(module, function, lane, "raw", "t", "on")
        lines.append(f"if vector * 4u + {index}u < block.size {{ total = combine(total, {call}); }}")
    indented = "\n                ".join(lines)
    on, t = "its.on", "its.t"
    if is_first:
        scale = "scaler[0]" if transform_lookup.scales(module) else "1.0"
        on, t = "tensors[block.tensor].live", f"begin_transforms(its.t, transforms[0], {scale}, f32(on & 1u))"
    return f"""{tables(module)}
{combine(module, struct)}
{storage(measure_bindings(module, number, is_first))}
var<workgroup> totals: array<{struct}, {_WORKGROUP}>;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {_WORKGROUP}u + lane;
    let number = member / {_GROUP_SIZE}u;
    var total = {nothing(module, struct)};
    if number < arrayLength(&blocks) {{
        let block = blocks[number];
        let its = tensor_scalars[block.tensor];
        let on = {on};
        if {transform_lookup.takes_part(module, "on")} {{
            let t = {t};
            for (var vector = member % {_GROUP_SIZE}u; vector < {_VECTORS}u; vector += {_GROUP_SIZE}u) {{
                let at = number * {_VECTORS}u + vector;
                {indented}
            }}
        }}
    }}
    totals[lane] = total;
    workgroupBarrier();
    if member % {_GROUP_SIZE}u == 0u && number < arrayLength(&blocks) {{
        for (var other = 1u; other < {_GROUP_SIZE}u; other++) {{
            total = combine(total, totals[lane + other]);
        }}
        partials[number] = total;
    }}
}}
"""


def settle_bindings(number: int) -> Bindings:
    """Return the bindings of the kernel that settles transform `number`."""
    return [
        ("tensors", "read", "array<TensorEntry>"),
        ("partials", "read", f"array<Partial{number}>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]


def settle(module: syntax.Module, number: int, over_all: bool) -> str:
    """Return the shell that settles a transform: a workgroup for each tensor, or one for a measure over all tensors."""
    struct = f"Partial{number}"
    call = (
        f"tensor_scalars[tensor].t = settle_transform_{number}("
        "tensor_scalars[tensor].t, measured, f32(tensors[tensor].size));"
    )
    condition = transform_lookup.takes_part(module, "tensor_scalars[tensor].on")
    if over_all:
        declared, start, end = "", "0u", "arrayLength(&partials)"
        result = f"""for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WIDE_WORKGROUP}u) {{
        if {condition} {{
            {call}
        }}
    }}"""
    else:
        declared = "let tensor = workgroup.x + workgroup.y * grid.x;\n    let entry = tensors[tensor];"
        start, end = "entry.first_block", "entry.first_block + entry.blocks"
        result = f"""if lane == 0u && tensor < arrayLength(&tensors) && {condition} {{
        {call}
    }}"""
    return f"""{tables(module)}
{combine(module, struct)}
{storage(settle_bindings(number))}
var<workgroup> totals: array<{struct}, {_WIDE_WORKGROUP}>;

@compute @workgroup_size({_WIDE_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    {declared}
    {reduce_partials(module, start, end, struct)}
    {result}
}}
"""


def rows_bindings(module: syntax.Module, number: int) -> Bindings:
    """Return the bindings of the kernel that measures and settles rows for transform `number`, by single elements."""
    function = f"measure_transform_{number}"
    names = transform_lookup.parameters_of(module, function)
    scalar = [name for name in ("params", "grads", "kept") if name == "grads" or name.removesuffix("s") in names]
    other_rows = [f"rows{name.removeprefix('row')}" for name in names if name.startswith("row")]
    return [
        *((name, "read", "array<f32>") for name in scalar),
        ("row_entries", "read", "array<RowEntry>"),
        *((name, "read", "array<f32>") for name in other_rows),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        (f"rows{number}", "read_write", "array<f32>"),
    ]


def rows(module: syntax.Module, number: int) -> str:
    """Return the shell that measures and settles rows, with a workgroup for each."""
    function, struct = f"measure_transform_{number}", f"Partial{number}"
    values = {
        "grad": "grads[at]", "param": "params[at]", "kept": "kept[at]", "index": "index", "tensor": "row.tensor",
        "t": "its.t", "on": "its.on",
    }  # fmt: skip
    arguments = [
        values.get(name, f"rows{name.removeprefix('row')}[number]")
        for name in transform_lookup.parameters_of(module, function)
    ]
    return f"""{tables(module)}
{ROW}
{combine(module, struct)}
{storage(rows_bindings(module, number))}
var<workgroup> totals: array<{struct}, {_WORKGROUP}>;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let number = workgroup.x + workgroup.y * grid.x;
    let row = row_entries[number];
    let its = tensor_scalars[row.tensor];
    var total = {nothing(module, struct)};
    if number < arrayLength(&row_entries) && {transform_lookup.takes_part(module, "its.on")} {{
        for (var element = lane; element < row.size; element += {_WORKGROUP}u) {{
            let at = row.at + element;
            let index = row.index + element;
            total = combine(total, {function}({", ".join(arguments)}));
        }}
    }}
    totals[lane] = total;
    workgroupBarrier();
    for (var half = {_WORKGROUP // 2}u; half > 0u; half /= 2u) {{
        if lane < half {{
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }}
        workgroupBarrier();
    }}
    if lane == 0u && number < arrayLength(&row_entries) {{
        rows{number}[number] = settle_transform_{number}(its.t, totals[0], f32(row.size));
    }}
}}
"""

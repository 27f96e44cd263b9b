"""The generated parts of the shaders of a rule's ``measure`` and ``settle``; see `rule_shell`."""

from __future__ import annotations

from collections.abc import Mapping

from . import line_lookup, param_storage, slot_storage, syntax
from .rule_shell import (
    GROUP_SIZE,
    LANES,
    VECTORS,
    WIDE_WORKGROUP,
    WORKGROUP,
    Bindings,
    call,
    combine,
    element,
    grad_bindings,
    loads,
    nothing,
    reduce_partials,
    tables,
    uses,
)
from .shell import GRID_PARAMETERS, storage

__all__ = ["measure", "measure_bindings", "settle", "settle_bindings"]


def measure_bindings(module: syntax.Module, slots: Mapping[str, str], param_kind: str = "") -> Bindings:
    """Return the bindings of the `measure` kernel; `partials` has an entry for each block."""
    bound = slots if uses(module, "measure", "state") else {}
    return [
        ("params", "read", "array<vec4<f32>>"),
        *(param_storage.bindings(param_kind, "read") if uses(module, "measure", "param") else []),
        *grad_bindings(module, "measure"),
        *(binding for name, kind in bound.items() for binding in slot_storage.bindings(name, kind, "read")),
        *line_lookup.bindings(module, "measure"),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        ("partials", "read_write", "array<Measured>"),
    ]


def measure(module: syntax.Module, slots: Mapping[str, str], negate: bool, param_kind: str = "") -> str:
    """Return the shell of ``measure``, which sums it over each block. `param_kind` is one of `param_storage`."""
    lines = loads(module, "measure", slots, negate, param_kind)
    for number, lane in enumerate(LANES):
        value = call(module, "measure", element(module, slots, lane, param_storage.whole(param_kind)))
        lines.append(f"if vector * 4u + {number}u < block.size {{ total = combine(total, {value}); }}")
    indented = "\n                ".join(lines)
    return f"""{tables(module)}
{combine(module)}
{storage(measure_bindings(module, slots, param_kind))}
{line_lookup.tables(module, "measure")}
var<workgroup> totals: array<Measured, {WORKGROUP}>;

@compute @workgroup_size({WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {WORKGROUP}u + lane;
    let number = member / {GROUP_SIZE}u;
    var total = {nothing(module)};
    if number < arrayLength(&blocks) {{
        let block = blocks[number];
        let its = tensor_scalars[block.tensor];
        if its.is_active == 1u {{
            for (var vector = member % {GROUP_SIZE}u; vector < {VECTORS}u; vector += {GROUP_SIZE}u) {{
                let at = number * {VECTORS}u + vector;
                {indented}
            }}
        }}
    }}
    totals[lane] = total;
    workgroupBarrier();
    if member % {GROUP_SIZE}u == 0u && number < arrayLength(&blocks) {{
        for (var other = 1u; other < {GROUP_SIZE}u; other++) {{
            total = combine(total, totals[lane + other]);
        }}
        partials[number] = total;
    }}
}}
"""


def settle_bindings() -> Bindings:
    """Return the bindings of the `settle` kernel."""
    return [
        ("tensors", "read", "array<TensorEntry>"),
        ("partials", "read", "array<Measured>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]


def settle(module: syntax.Module, over_all: bool) -> str:
    """Return the shell of ``settle``: a workgroup for each tensor, or one for a measure over all tensors."""
    values = {
        "s": "tensor_scalars[tensor].s",
        "h": "tensor_scalars[tensor].h",
        "measured": "measured",
        "size": "f32(tensors[tensor].size)",
    }
    settled = f"tensor_scalars[tensor].s = {call(module, 'settle', values)};"
    if over_all:
        declared, start, end = "", "0u", "arrayLength(&partials)"
        result = f"""for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {WIDE_WORKGROUP}u) {{
        if tensor_scalars[tensor].is_active != 0u {{
            {settled}
        }}
    }}"""
    else:
        declared = "let tensor = workgroup.x + workgroup.y * grid.x;\n    let entry = tensors[tensor];"
        start, end = "entry.first_block", "entry.first_block + entry.blocks"
        result = f"""if lane == 0u && tensor < arrayLength(&tensors) && tensor_scalars[tensor].is_active != 0u {{
        {settled}
    }}"""
    return f"""{tables(module)}
{combine(module)}
{storage(settle_bindings())}
var<workgroup> totals: array<Measured, {WIDE_WORKGROUP}>;

@compute @workgroup_size({WIDE_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    {declared}
    {reduce_partials(module, start, end)}
    {result}
}}
"""

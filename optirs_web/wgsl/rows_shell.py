"""The generated part of the shader of a rule's ``update`` over the rows that a sparse gradient has; see `rule_shell`.

`rows` has the sorted row of each entry, `sums` the sum of a row's gradients at the first entry of the row.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import rule_shell, slot_storage, syntax, transform_lookup, update_shell
from .shell import GRID_PARAMETERS, storage, struct_of

__all__ = ["PARAMETERS", "update_rows", "update_rows_bindings"]

PARAMETERS = tuple((name, "u32") for name in ("count", "rows", "length", "first", "tensor", "block"))
"""The numbers of entries, of rows of the tensor, and of elements of a row; the first element that is bound; the index
of the tensor, and its first block in the arena."""

_WORKGROUP = 256


def update_rows_bindings(module: syntax.Module, slots: Mapping[str, str]) -> rule_shell.Bindings:
    """Return the bindings of the kernel; `params` and the slots are those of one tensor, and no slot has 8 bits."""
    return [
        ("params", "read_write", "array<f32>"),
        ("rows", "read", "array<u32>"),
        ("sums", "read", "array<f32>"),
        *transform_lookup.rule_bindings(module),
        *((name, "read_write", slot_storage.scalar_type(kind)) for name, kind in slots.items()),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def update_rows(module: syntax.Module, slots: Mapping[str, str], negate: bool) -> str:
    """Return the shell: an invocation for each element of each entry; those of a row's first entry update it."""
    state_members = struct_of(module, "State").members
    state = ", ".join(f"old_{member.name}" if member.name in slots else "0.0" for member in state_members)
    values = {"param": "params[at]", "grad": "grad", "state": f"State({state})", "h": "its.h", "s": "its.s"}
    arguments = ", ".join(values[name] for name in rule_shell.arguments_of(module, "update", values))
    bindings = update_rows_bindings(module, slots)
    loads = "\n    ".join(statement for name, kind in slots.items() for statement in slot_storage.load_one(name, kind))
    stores = "\n    ".join(
        slot_storage.store_one(name, kind, f"updated.state.{name}", update_shell.seed(list(slots), name))
        for name, kind in slots.items()
    )
    members = ", ".join(f"{name}: {type_}" for name, type_ in PARAMETERS)
    return f"""{rule_shell.tables(module)}
struct RowsParameters {{ {members} }}

{storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: RowsParameters;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let value = (workgroup.x + workgroup.y * grid.x) * {_WORKGROUP}u + lane;
    let entry = value / parameters.length;
    if entry >= parameters.count {{
        return;
    }}
    let row = rows[entry];
    if row >= parameters.rows || (entry > 0u && rows[max(entry, 1u) - 1u] == row) {{
        return;
    }}
    let its = tensor_scalars[parameters.tensor];
    // An element before the first bound one has a large index.
    let at = row * parameters.length + value % parameters.length - parameters.first;
    if its.is_active != 1u || at >= arrayLength(&params) {{
        return;
    }}
    let index = at + parameters.first;
    let grad = {"-" if negate else ""}{transform_lookup.grad_of_row(module)};
    {loads}
    let updated = update({arguments});
    params[at] = updated.param;
    {stores}
}}
"""

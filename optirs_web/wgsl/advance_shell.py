"""The generated part of the shader of a rule's ``advance``, once per tensor; see `rule_shell`."""

from __future__ import annotations

from . import syntax, transform_lookup
from .rule_shell import WIDE_WORKGROUP, Bindings, call, combine, has_function, reduce_partials, tables
from .shell import storage

__all__ = ["advance", "advance_bindings"]


def advance_bindings(module: syntax.Module, checked: bool, measured: int | None) -> Bindings:
    """Return the bindings of the `advance` kernel; see `advance`."""
    bindings = [
        ("tensors", "read", "array<TensorEntry>"),
        ("hyper", "read", "array<Hyper>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]
    if checked:
        bindings.append(("found_inf", "read_write", "array<u32>"))
    return [*bindings, *transform_lookup.advance_bindings(module, measured)]


def advance(
    module: syntax.Module, checked: bool, over_all: bool, measured: int | None = None, settles: bool = False
) -> str:
    """Return the shell of an optimizer's ``advance``: one workgroup over all its tensors.

    A measure over all tensors is the same for each of them. With one, the scalars of all tensors are advanced; only
    the step count of those without a gradient stays.

    Args:
        module: the rule.
        checked: skip steps with gradients that are not finite.
        over_all: the rule measures over all tensors.
        measured: the number of the transform whose measure was computed before, which also counts the gradients that
            are not finite.
        settles: that transform measures over all tensors, and its ``settle`` function is called in this kernel.
    """
    skip, reset = "false", ""
    if checked:
        # found_inf[0] is set by the `nonfinite` kernel; found_inf[1] counts the steps skipped.
        skip = "found_inf[0] != 0u" + (f" || measured.{transform_lookup.BAD} != 0.0" if measured is not None else "")
        reset = """
    storageBarrier();
    if lane == 0u && skip {
        found_inf[0] = 0u;
        found_inf[1] = found_inf[1] + 1u;SCALER
    }""".replace("SCALER", transform_lookup.note_skip(module))
    values = {"s": "tensor_scalars[tensor].s", "h": "hyper[group]"}
    advanced = (
        call(module, "advance", values) if has_function(module, "advance") else f"Scalars({values['s']}.step + 1.0)"
    )
    declared, reduced = "", ""
    if measured is not None:
        struct = f"Partial{measured}"
        declared = f"{combine(module, struct)}\nvar<workgroup> totals: array<{struct}, {WIDE_WORKGROUP}>;\n"
        reduced = "\n    " + reduce_partials(module, "0u", "arrayLength(&partials)", struct)
    changes, keep_step = "is_active == 1u", ""
    if over_all:
        changes = "is_active != 0u"
        keep_step = f"""
            if is_active == 2u {{
                {values["s"]}.step = step;
            }}"""
    return f"""{tables(module)}
{storage(advance_bindings(module, checked, measured))}
{declared}
@compute @workgroup_size({WIDE_WORKGROUP})
fn main(@builtin(local_invocation_index) lane: u32) {{{reduced}
    let skip = {skip};
    for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {WIDE_WORKGROUP}u) {{
        let group = tensors[tensor].group;
        {transform_lookup.begin(module, 2 if over_all else 0, measured if settles else None)}
        if {changes} {{
            let step = {values["s"]}.step;
            tensor_scalars[tensor].s = {advanced};
            tensor_scalars[tensor].h = hyper[group];{keep_step}
        }}
        tensor_scalars[tensor].is_active = is_active;
    }}{reset}
}}
"""

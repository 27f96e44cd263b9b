"""The generated part of an optimizer's shaders: what stands around the map functions of a rule.

Here is what its shells share: tables, what functions are given, sums. The shells are `update_shell`, `advance_shell`,
`measure_shell` and more. Each function returns WGSL text, as in `shell`. A function of a rule is given what the names
of its parameters ask for:

    param, grad   the element, and its gradient
    state         the element's State
    h             the Hyper of the tensor's group
    s             the tensor's Scalars
    measured      what `measure` returned, summed over the tensor (or over all tensors); for `settle`
    size          elements of the tensor, as f32; for `settle`
    row, column   and more of the lines that an element lies in: see `line_lookup`

Of a rule that measures over all tensors, all scalars but `step` follow from what is the same for every tensor:
`advance` and `settle` are then called for tensors without a gradient too, whose `step` stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ShaderError
from . import line_lookup, param_storage, slot_storage, syntax, transform_lookup
from .shell import BLOCK, function_of, struct_of

__all__ = [
    "ELEMENTS_PER_WORKGROUP",
    "ENTRY_WORDS",
    "LANES",
    "MAXIMUM",
    "RESERVED",
    "STEP_PARTS",
    "TEAM",
    "VECTORS",
    "WIDE_WORKGROUP",
    "WORKGROUP",
    "Bindings",
    "arguments_of",
    "call",
    "combine",
    "element",
    "grad_bindings",
    "has_function",
    "loads",
    "nothing",
    "reduce_partials",
    "tables",
    "uses",
]

MAXIMUM = "max_"
"""What the name of a measured member begins with that is not summed: of it the largest value is taken, 0 at least."""

STEP_PARTS = ("update", "prepare", "adapt")
"""Parts over every element that belong to a step: a layout runs `prepare` and `adapt`, and others, before `update`."""

RESERVED = frozenset(
    ("accumulated", "at", "block", "blocks", "grad", "grads", "grid", "is_inside", "is_updated", "its", "kahan_comp",
     "kept", "lane", "master", "master_low", "member", "most", "number", "param", "params", "place", "rounded",
     "tensor_scalars", "total", "vector", "whole", "workgroup")
)  # fmt: skip
"""Names that the generated shaders or state dicts use themselves, and that a member of State cannot have."""

LANES = "xyzw"
VECTORS = BLOCK // len(LANES)

# So many invocations share a block. Each looks its tensor up once, and then takes every eighth vector.
WORKGROUP = 64
TEAM = 8
ELEMENTS_PER_WORKGROUP = WORKGROUP // TEAM * BLOCK

WIDE_WORKGROUP = 256  # for tables, and for what is summed

# The tables that the kernels read, and the bindings of each kernel by name: whoever dispatches one, and whoever
# computes it without WGSL, goes by these names.
_TABLES = """
// One per block of an arena: its tensor, and how many of its elements belong to that; the rest stays zero.
struct Block { tensor: u32, size: u32 }
// One per tensor: the group whose hyper-parameters it uses, whether it has a gradient, and where its blocks are among
// those of all arenas.
struct TensorEntry { group: u32, live: u32, first_block: u32, blocks: u32, size: u32 }
// One per tensor: written by `advance` and `settle`, read by `update` and `measure`. is_active is 1 where this step is
// the tensor's; 2 where it has no gradient, but its scalars go along, since they are those of all tensors.
struct TensorScalars { is_active: u32, h: Hyper, s: Scalars }
"""
_STEP = "struct Scalars { step: f32 }\n"

ENTRY_WORDS = 5
"""Words of a TensorEntry."""

Bindings = list[tuple[str, str, str]]
"""Name, access and type of each storage binding."""


def has_function(module: syntax.Module, name: str) -> bool:
    """Whether the module declares it."""
    return any(isinstance(one, syntax.Function) and one.name == name for one in module.declarations)


def arguments_of(module: syntax.Module, function: str, values: Mapping[str, str]) -> list[str]:
    """The names of a function's parameters.

    Raises:
        ShaderError: a parameter has a name that the function is given nothing for.
    """
    declared = function_of(module, function)
    for one in declared.parameters:
        if one.name not in values:
            known = ", ".join(values)
            place = one.position
            raise ShaderError(
                f"'{function}' of a rule is given {known}, and has a parameter '{one.name}'",
                file=place.file, line=place.line, column=place.column,
            )  # fmt: skip
    return [one.name for one in declared.parameters]


def call(module: syntax.Module, function: str, values: Mapping[str, str]) -> str:
    """The call of a function of the rule, given what the names of its parameters ask for."""
    return f"{function}({', '.join(values[name] for name in arguments_of(module, function, values))})"


def tables(module: syntax.Module) -> str:
    """The tables; a rule without Scalars has its steps counted."""
    declared = transform_lookup.tables(_TABLES, module)
    return declared if struct_of(module, "Scalars").members else _STEP + declared


def element(module: syntax.Module, slots: Mapping[str, str], lane: str, param: str = "param") -> dict[str, str]:
    """What a function is given for one of the four elements of a vector; `param` is what the parameter is called."""
    members = struct_of(module, "State").members
    state = ", ".join(f"old_{one.name}.{lane}" if one.name in slots else "0.0" for one in members)
    values = {
        "param": f"{param}.{lane}",
        "grad": f"grad.{lane}",
        "state": f"State({state})",
        "h": "its.h",
        "s": "its.s",
    }
    return {**values, **line_lookup.values(module, lane)}


def loads(
    module: syntax.Module, function: str, slots: Mapping[str, str], negate: bool, param_kind: str = ""
) -> list[str]:
    """Statements that load what a function asks for of the vector at `at`.

    Args:
        module: the rule.
        function: of it.
        slots: the members of State that exist, and how each is stored.
        negate: the gradient.
        param_kind: of `param_storage`. Transforms are given the parameter that the model sees, not the whole.
    """
    lines = ["let param = params[at];"]
    if uses(module, function, "grad"):
        lines += transform_lookup.grad_lines(module, negate)
    if uses(module, function, "param"):
        lines += param_storage.load(param_kind)
    if uses(module, function, "state"):
        lines += [line for name, kind in slots.items() for line in slot_storage.load(name, kind)]
    return lines + line_lookup.loads(module, function, LANES)


def uses(module: syntax.Module, function: str, parameter: str) -> bool:
    """Whether a function has a parameter of that name."""
    return any(one.name == parameter for one in function_of(module, function).parameters)


def grad_bindings(module: syntax.Module, function: str) -> Bindings:
    """What a function that asks for the gradient is bound to."""
    if not uses(module, function, "grad"):
        return []
    return [("grads", "read", "array<vec4<f32>>"), *transform_lookup.rule_bindings(module)]


# Sums.


def combine(module: syntax.Module, struct: str = "Measured") -> str:
    """The function that adds two measures, or takes the larger of members that ask for it."""
    members = ", ".join(
        f"max(a.{one.name}, b.{one.name})" if one.name.startswith(MAXIMUM) else f"a.{one.name} + b.{one.name}"
        for one in struct_of(module, struct).members
    )
    return f"fn combine(a: {struct}, b: {struct}) -> {struct} {{\n    return {struct}({members});\n}}"


def nothing(module: syntax.Module, struct: str = "Measured") -> str:
    """The measure of no elements."""
    return f"{struct}({', '.join('0.0' for _ in struct_of(module, struct).members)})"


def reduce_partials(module: syntax.Module, first: str, end: str, struct: str = "Measured") -> str:
    """Statements of a wide workgroup that end in ``let measured``: what is in the partials from first to end."""
    return f"""var total = {nothing(module, struct)};
    for (var block = {first} + lane; block < {end}; block += {WIDE_WORKGROUP}u) {{
        total = combine(total, partials[block]);
    }}
    totals[lane] = total;
    workgroupBarrier();
    for (var half = {WIDE_WORKGROUP // 2}u; half > 0u; half /= 2u) {{
        if lane < half {{
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }}
        workgroupBarrier();
    }}
    let measured = totals[0];"""

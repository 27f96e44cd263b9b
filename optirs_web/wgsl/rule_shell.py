"""The generated part of an optimizer's shaders, around the map functions of a rule.

This module has the parts that the shells share: tables, arguments of functions, sums. The shells are `update_shell`,
`advance_shell`, `measure_shell` and more. Each function returns WGSL text, as in `shell`. The arguments of a rule's
functions are chosen by the names of its parameters:

    param, grad   the element, and its gradient
    state         the element's State
    h             the Hyper of the tensor's group
    s             the tensor's Scalars
    measured      what `measure` returned, summed over the tensor (or over all tensors); for `settle`
    size          elements of the tensor, as f32; for `settle`
    row, column   and more, of the row, column and matrix of an element: see `line_lookup`

If a rule measures over all tensors, all its scalars except `step` are the same for every tensor: `advance` and `settle`
are then called for tensors without a gradient too, whose `step` is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ShaderError
from . import line_lookup, param_storage, slot_storage, syntax, transform_lookup
from .shell import BLOCK, function_of, struct_of

__all__ = [
    "ELEMENTS_PER_WORKGROUP",
    "ENTRY_WORDS",
    "GROUP_SIZE",
    "LANES",
    "MAXIMUM",
    "RESERVED",
    "STEP_PARTS",
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
"""The prefix of measured members that are not summed: their maximum is computed, which is at least 0."""

STEP_PARTS = ("update", "prepare", "adapt")
"""Functions over every element that belong to a step; `prepare` and `adapt` run before `update`."""

RESERVED = frozenset(
    ("accumulated", "at", "block", "blocks", "grad", "grads", "grid", "is_inside", "is_updated", "its", "kahan_comp",
     "kept", "lane", "master", "master_low", "member", "most", "number", "param", "params", "place", "rounded",
     "tensor_scalars", "total", "vector", "whole", "workgroup")
)  # fmt: skip
"""Names that the generated shaders or state dicts use, and that a member of State cannot have."""

LANES = "xyzw"
VECTORS = BLOCK // len(LANES)

# A group of invocations shares a block. Each looks up its tensor once, and then takes every eighth vector.
WORKGROUP = 64
GROUP_SIZE = 8
ELEMENTS_PER_WORKGROUP = WORKGROUP // GROUP_SIZE * BLOCK

WIDE_WORKGROUP = 256  # for tables and sums

# The tables that the kernels read. Code that dispatches a kernel, or computes it without WGSL, relies on the names of
# their bindings.
_TABLES = """
// One per block of an arena: its tensor, and the number of its elements; the other elements are zero.
struct Block { tensor: u32, size: u32 }
// One per tensor: the group of its hyper-parameters, a flag for a gradient, and its range of the blocks of all arenas.
// `size` is its number of elements.
struct TensorEntry { group: u32, live: u32, first_block: u32, blocks: u32, size: u32 }
// One per tensor: written by `advance` and `settle`, read by `update` and `measure`. is_active is 1 if the tensor takes
// this step; 2 if it has no gradient, but its scalars are advanced, as they are the same for all tensors.
struct TensorScalars { is_active: u32, h: Hyper, s: Scalars }
"""
_STEP = "struct Scalars { step: f32 }\n"

ENTRY_WORDS = 5
"""Size of a TensorEntry in 32-bit words."""

Bindings = list[tuple[str, str, str]]
"""Name, access and type of each storage binding."""


def has_function(module: syntax.Module, name: str) -> bool:
    """Return True if a module declares a function of that name."""
    return any(
        isinstance(declaration, syntax.Function) and declaration.name == name for declaration in module.declarations
    )


def arguments_of(module: syntax.Module, function: str, values: Mapping[str, str]) -> list[str]:
    """Return the names of a function's parameters.

    Raises:
        ShaderError: a parameter has a name that is not in `values`.
    """
    declared = function_of(module, function)
    for parameter in declared.parameters:
        if parameter.name not in values:
            known = ", ".join(values)
            position = parameter.position
            raise ShaderError(
                f"'{function}' of a rule is given {known}, and has a parameter '{parameter.name}'",
                file=position.file, line=position.line, column=position.column,
            )  # fmt: skip
    return [parameter.name for parameter in declared.parameters]


def call(module: syntax.Module, function: str, values: Mapping[str, str]) -> str:
    """Return the call of a function of the rule, with the value for each parameter's name."""
    return f"{function}({', '.join(values[name] for name in arguments_of(module, function, values))})"


def tables(module: syntax.Module) -> str:
    """Return the declarations of tables; a rule without Scalars has a step count."""
    declared = transform_lookup.tables(_TABLES, module)
    return declared if struct_of(module, "Scalars").members else _STEP + declared


def element(module: syntax.Module, slots: Mapping[str, str], lane: str, param: str = "param") -> dict[str, str]:
    """Return the arguments for an element of a vector, by parameter; `param` is the name of the parameters' vector."""
    members = struct_of(module, "State").members
    state = ", ".join(f"old_{member.name}.{lane}" if member.name in slots else "0.0" for member in members)
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
    """Return statements that load the vectors at `at` that a function needs.

    Args:
        module: the rule.
        function: the name of one of its functions.
        slots: the members of State that exist, and how each is stored.
        negate: negate the gradient.
        param_kind: a kind of `param_storage`. Transforms receive the parameter that the model uses, not the float32.
    """
    lines = ["let param = params[at];"]
    if uses(module, function, "grad"):
        lines += transform_lookup.grad_lines(module, negate)
    if uses(module, function, "param"):
        lines += param_storage.load(param_kind)
    if uses(module, function, "state"):
        lines += [statement for name, kind in slots.items() for statement in slot_storage.load(name, kind)]
    return lines + line_lookup.loads(module, function, LANES)


def uses(module: syntax.Module, function: str, parameter: str) -> bool:
    """Return True if a function has a parameter of that name."""
    return any(declared.name == parameter for declared in function_of(module, function).parameters)


def grad_bindings(module: syntax.Module, function: str) -> Bindings:
    """Return the bindings for the gradient of a function; none if it does not use it."""
    if not uses(module, function, "grad"):
        return []
    return [("grads", "read", "array<vec4<f32>>"), *transform_lookup.rule_bindings(module)]


# Sums.


def combine(module: syntax.Module, struct: str = "Measured") -> str:
    """Return the function that adds two measures, and takes the larger of members with the prefix of a maximum."""
    members = ", ".join(
        f"max(a.{member.name}, b.{member.name})"
        if member.name.startswith(MAXIMUM)
        else f"a.{member.name} + b.{member.name}"
        for member in struct_of(module, struct).members
    )
    return f"fn combine(a: {struct}, b: {struct}) -> {struct} {{\n    return {struct}({members});\n}}"


def nothing(module: syntax.Module, struct: str = "Measured") -> str:
    """Return the measure of no elements."""
    return f"{struct}({', '.join('0.0' for _ in struct_of(module, struct).members)})"


def reduce_partials(module: syntax.Module, start: str, end: str, struct: str = "Measured") -> str:
    """Return statements of a wide workgroup that declare ``measured``, the sum of partials from `first` to `end`."""
    return f"""var total = {nothing(module, struct)};
    for (var block = {start} + lane; block < {end}; block += {WIDE_WORKGROUP}u) {{
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

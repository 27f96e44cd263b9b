"""The generated part of a shader: what stands around a map function.

Each function here returns WGSL text: bindings, parameters and the entry point ``main``. Joined to the
printed map functions it is a complete module, which every target is emitted from.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import syntax, types

__all__ = [
    "BLOCK",
    "ELEMENTWISE_PER_WORKGROUP",
    "GRID_PARAMETERS",
    "LOOP",
    "element_loop",
    "elementwise",
    "elementwise_bindings",
    "elementwise_parameters",
    "function_of",
    "member_names",
    "storage",
    "struct_of",
]

BLOCK = 256
"""Elements of an arena that belong to one tensor; a tensor begins at a multiple of it."""

LOOP = 256, 4
"""Invocations of a workgroup of an elementwise kernel, and elements that each takes."""

ELEMENTWISE_PER_WORKGROUP = LOOP[0] * LOOP[1]

GRID_PARAMETERS = (
    "@builtin(workgroup_id) workgroup: vec3<u32>, "
    "@builtin(num_workgroups) grid: vec3<u32>, "
    "@builtin(local_invocation_index) lane: u32"
)


def struct_of(module: syntax.Module, name: str) -> types.Struct:
    """The struct of that name; empty if the module declares none."""
    for one in module.declarations:
        if isinstance(one, syntax.StructDeclaration) and one.name == name and one.type is not None:
            return one.type
    return types.Struct(name, ())


def member_names(module: syntax.Module, name: str) -> list[str]:
    """The names of its members."""
    return [one.name for one in struct_of(module, name).members]


def function_of(module: syntax.Module, name: str) -> syntax.Function:
    """The function of that name."""
    return next(one for one in module.declarations if isinstance(one, syntax.Function) and one.name == name)


def storage(names_and_types: Sequence[tuple[str, str, str]], first: int = 0) -> str:
    """Storage bindings from number `first` on, given by name, access and type."""
    return "\n".join(
        f"@group(0) @binding({number}) var<storage, {access}> {name}: {type_};"
        for number, (name, access, type_) in enumerate(names_and_types, first)
    )


def _split_operands(
    declared: syntax.Function, operands: Sequence[str]
) -> tuple[list[syntax.Parameter], list[syntax.Parameter]]:
    parameters = [one for one in declared.parameters if one.name != "index"]
    pairs = list(zip(parameters, operands, strict=True))
    return [one for one, kind in pairs if kind == "tensor"], [one for one, kind in pairs if kind == "scalar"]


def elementwise_parameters(
    module: syntax.Module, function: str, operands: Sequence[str], rank: int
) -> tuple[tuple[str, str], ...]:
    """Name and type of each parameter of the shell that `elementwise` makes."""
    tensors, scalars = _split_operands(function_of(module, function), operands)
    names = ["size", *(f"dim{axis}" for axis in range(rank))]
    if rank:
        names += [f"{one.name}_start" for one in tensors]
    names += [f"{one.name}_stride{axis}" for one in tensors for axis in range(rank)]
    return (*((name, "u32") for name in names), *((one.name, str(one.type)) for one in scalars))


def elementwise_bindings(module: syntax.Module, function: str, operands: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, access and type of each storage binding of that shell, in order."""
    declared = function_of(module, function)
    tensors, _ = _split_operands(declared, operands)
    result_type = "u32" if declared.return_type == types.BOOL else str(declared.return_type)
    bindings = [(f"{one.name}_values", "read", f"array<{one.type}>") for one in tensors]
    return [*bindings, ("result_values", "read_write", f"array<{result_type}>")]


def elementwise(
    module: syntax.Module, function: str, operands: Sequence[str], rank: int, loop: tuple[int, int] = LOOP
) -> str:
    """The shell that applies `function` to every element of a result; see `ElementwiseKernel`."""
    declared = function_of(module, function)
    tensors, _ = _split_operands(declared, operands)
    is_bool = declared.return_type == types.BOOL
    bindings = elementwise_bindings(module, function, operands)

    members = [f"{name}: {type_}" for name, type_ in elementwise_parameters(module, function, operands, rank)]

    body = []
    if rank:
        body.append("var rest = index;")
        for axis in reversed(range(rank)):
            body.append(f"let at{axis} = rest % parameters.dim{axis};" if axis else "let at0 = rest;")
            if axis:
                body.append(f"rest = rest / parameters.dim{axis};")
        for one in tensors:
            terms = " + ".join(f"at{axis} * parameters.{one.name}_stride{axis}" for axis in range(rank))
            body.append(f"let {one.name}_at = parameters.{one.name}_start + {terms};")
    arguments = []
    kinds = iter(operands)
    for one in declared.parameters:
        if one.name == "index":
            arguments.append("index")
        elif next(kinds) == "result":
            arguments.append("result_values[index]")
        elif one in tensors:
            arguments.append(f"{one.name}_values[{one.name}_at]" if rank else f"{one.name}_values[index]")
        else:
            arguments.append(f"parameters.{one.name}")
    call = f"{function}({', '.join(arguments)})"
    body.append(f"result_values[index] = {f'u32({call})' if is_bool else call};")
    return element_loop(", ".join(members), bindings, body, loop)


def element_loop(
    members: str, bindings: Sequence[tuple[str, str, str]], body: Sequence[str], loop: tuple[int, int] = LOOP
) -> str:
    """Bindings, parameters and the entry point of a kernel that does `body` for each `index` below `size`."""
    invocations, turns = loop
    indented = "\n            ".join(body)
    return f"""
struct ElementwiseParameters {{ {members} }}

{storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: ElementwiseParameters;

@compute @workgroup_size({invocations})
fn main({GRID_PARAMETERS}) {{
    let first = (workgroup.x + workgroup.y * grid.x) * {invocations * turns}u + lane;
    for (var turn = 0u; turn < {turns}u; turn++) {{
        let index = first + turn * {invocations}u;
        if index < parameters.size {{
            {indented}
        }}
    }}
}}
"""

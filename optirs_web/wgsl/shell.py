"""The generated part of an elementwise shader, around a map function, and the helpers of all generated shaders.

A shell is WGSL text: bindings, parameters and the entry point ``main``. Joined to the printed map functions it
is a complete module, from which the code for every target is emitted.
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
"""Number of elements of a block, which belongs to one tensor; a tensor begins at a multiple of it."""

LOOP = 256, 4
"""Number of invocations of a workgroup of an elementwise kernel, and of elements per invocation."""

ELEMENTWISE_PER_WORKGROUP = LOOP[0] * LOOP[1]

GRID_PARAMETERS = (
    "@builtin(workgroup_id) workgroup: vec3<u32>, "
    "@builtin(num_workgroups) grid: vec3<u32>, "
    "@builtin(local_invocation_index) lane: u32"
)


def struct_of(module: syntax.Module, name: str) -> types.Struct:
    """Return the struct of that name; an empty one if the module declares none."""
    for declaration in module.declarations:
        if (
            isinstance(declaration, syntax.StructDeclaration)
            and declaration.name == name
            and declaration.type is not None
        ):
            return declaration.type
    return types.Struct(name, ())


def member_names(module: syntax.Module, name: str) -> list[str]:
    """Return the names of the members of a struct."""
    return [member.name for member in struct_of(module, name).members]


def function_of(module: syntax.Module, name: str) -> syntax.Function:
    """Return the function of that name."""
    return next(
        declaration
        for declaration in module.declarations
        if isinstance(declaration, syntax.Function) and declaration.name == name
    )


def storage(names_and_types: Sequence[tuple[str, str, str]], first: int = 0) -> str:
    """Return the declarations of storage bindings, numbered from `first`, by name, access and type."""
    return "\n".join(
        f"@group(0) @binding({number}) var<storage, {access}> {name}: {type_};"
        for number, (name, access, type_) in enumerate(names_and_types, first)
    )


def _split_operands(
    declared: syntax.Function, operands: Sequence[str]
) -> tuple[list[syntax.Parameter], list[syntax.Parameter]]:
    parameters = [parameter for parameter in declared.parameters if parameter.name != "index"]
    pairs = list(zip(parameters, operands, strict=True))
    tensors = [parameter for parameter, kind in pairs if kind == "tensor"]
    scalars = [parameter for parameter, kind in pairs if kind == "scalar"]
    return tensors, scalars


def elementwise_parameters(
    module: syntax.Module, function: str, operands: Sequence[str], rank: int
) -> tuple[tuple[str, str], ...]:
    """Return name and type of each parameter of the shell that `elementwise` returns."""
    tensors, scalars = _split_operands(function_of(module, function), operands)
    names = ["size", *(f"dim{axis}" for axis in range(rank))]
    if rank:
        names += [f"{tensor.name}_start" for tensor in tensors]
    names += [f"{tensor.name}_stride{axis}" for tensor in tensors for axis in range(rank)]
    return (*((name, "u32") for name in names), *((scalar.name, str(scalar.type)) for scalar in scalars))


def elementwise_bindings(module: syntax.Module, function: str, operands: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return name, access and type of each storage binding of that shell, in order."""
    declared = function_of(module, function)
    tensors, _ = _split_operands(declared, operands)
    result_type = "u32" if declared.return_type == types.BOOL else str(declared.return_type)
    bindings = [(f"{tensor.name}_values", "read", f"array<{tensor.type}>") for tensor in tensors]
    return [*bindings, ("result_values", "read_write", f"array<{result_type}>")]


def elementwise(
    module: syntax.Module, function: str, operands: Sequence[str], rank: int, loop: tuple[int, int] = LOOP
) -> str:
    """Return the shell that applies `function` to every element of a result; see `ElementwiseKernel`."""
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
        for tensor in tensors:
            terms = " + ".join(f"at{axis} * parameters.{tensor.name}_stride{axis}" for axis in range(rank))
            body.append(f"let {tensor.name}_at = parameters.{tensor.name}_start + {terms};")
    arguments = []
    kinds = iter(operands)
    for parameter in declared.parameters:
        if parameter.name == "index":
            arguments.append("index")
        elif next(kinds) == "result":
            arguments.append("result_values[index]")
        elif parameter in tensors:
            arguments.append(
                f"{parameter.name}_values[{parameter.name}_at]" if rank else f"{parameter.name}_values[index]"
            )
        else:
            arguments.append(f"parameters.{parameter.name}")
    call = f"{function}({', '.join(arguments)})"
    body.append(f"result_values[index] = {f'u32({call})' if is_bool else call};")
    return element_loop(", ".join(members), bindings, body, loop)


def element_loop(
    members: str, bindings: Sequence[tuple[str, str, str]], body: Sequence[str], loop: tuple[int, int] = LOOP
) -> str:
    """Return the bindings, parameters and entry point of a kernel that runs `body` for each `index` below `size`."""
    invocations, iterations = loop
    indented = "\n            ".join(body)
    return f"""
struct ElementwiseParameters {{ {members} }}

{storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: ElementwiseParameters;

@compute @workgroup_size({invocations})
fn main({GRID_PARAMETERS}) {{
    let first = (workgroup.x + workgroup.y * grid.x) * {invocations * iterations}u + lane;
    for (var iteration = 0u; iteration < {iterations}u; iteration++) {{
        let index = first + iteration * {invocations}u;
        if index < parameters.size {{
            {indented}
        }}
    }}
}}
"""

"""The generated part of an elementwise shader, around a map function, and the helpers of all generated shaders.

A shell is WGSL text: bindings, parameters and the entry point ``main``. Joined to the printed map functions it
is a complete module, from which the code for every target is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import syntax, types

__all__ = [
    "BLOCK",
    "ELEMENTWISE_PER_WORKGROUP",
    "GRID_PARAMETERS",
    "LOOP",
    "Strided",
    "element_loop",
    "elementwise",
    "elementwise_bindings",
    "elementwise_parameters",
    "function_of",
    "member_names",
    "offsets",
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
    module: syntax.Module,
    function: str,
    operands: Sequence[str],
    rank: int,
    loop: tuple[int, int] = LOOP,
    adjacent: bool = False,
) -> str:
    """Return the shell that applies `function` to every element of a result; see `ElementwiseKernel`."""
    declared = function_of(module, function)
    tensors, _ = _split_operands(declared, operands)
    members = [f"{name}: {type_}" for name, type_ in elementwise_parameters(module, function, operands, rank)]
    arguments = []
    kinds = iter(operands)
    for parameter in declared.parameters:
        if parameter.name == "index":
            arguments.append("index")
        elif next(kinds) == "result":
            arguments.append("result_values[index]")
        elif parameter in tensors:
            arguments.append(f"{parameter.name}_values[{f'{parameter.name}_at' if rank else 'index'}]")
        else:
            arguments.append(f"parameters.{parameter.name}")
    call = f"{function}({', '.join(arguments)})"
    return element_loop(
        ", ".join(members),
        elementwise_bindings(module, function, operands),
        [f"result_values[index] = {f'u32({call})' if declared.return_type == types.BOOL else call};"],
        Strided(rank, [tensor.name for tensor in tensors]),
        loop,
        adjacent,
    )


class Strided(NamedTuple):
    """The axes of a kernel's strided tensors, and the names of these tensors.

    A tensor's parameters are NAME_start and NAME_strideAXIS, and the lengths of axes dimAXIS. With rank 0 no tensor is
    strided, and none has an offset.
    """

    rank: int
    names: Sequence[str]


def offsets(strided: Strided, index: str, keyword: str = "let") -> list[str]:
    """Return the statements that declare the position of the element `index` along each axis and its offsets, NAME_at.

    `keyword` is "var" if they will change.
    """
    if not strided.rank:
        return []
    axes = range(strided.rank)
    lines = [f"var rest = {index};"]
    for axis in reversed(axes[1:]):
        lines += [f"{keyword} at{axis} = rest % parameters.dim{axis};", f"rest = rest / parameters.dim{axis};"]
    lines.append("let at0 = rest;")
    return [*lines, *offsets_of_place(strided, [f"at{axis}" for axis in axes], keyword)]


def offsets_of_place(strided: Strided, place: Sequence[str], keyword: str = "let") -> list[str]:
    """Return the statements that declare the offsets, as `offsets` does, of the element at these positions."""
    lines = []
    for name in strided.names:
        terms = " + ".join(f"{position} * parameters.{name}_stride{axis}" for axis, position in enumerate(place))
        lines.append(f"{keyword} {name}_at = parameters.{name}_start + {terms};")
    return lines


def _steps(strided: Strided) -> list[str]:
    """Return the statements that declare NAME_stepAXIS.

    It is the distance from an element that is the last one along all axes after this axis to the element that follows.
    """
    lines = []
    for name in strided.names:
        step = f"parameters.{name}_stride{strided.rank - 1}"
        for axis in reversed(range(strided.rank - 1)):
            inner = f"parameters.dim{axis + 1} * parameters.{name}_stride{axis + 1}"
            lines.append(f"let {name}_step{axis} = {step} + parameters.{name}_stride{axis} - {inner};")
            step = f"{name}_step{axis}"
    return lines


def _next_offsets(strided: Strided) -> list[str]:
    """Return the statements that change offsets to those of the next element, without dividing.

    They change the positions too, but for that along the first axis, on which no step depends.
    """
    lines, carry, axes = [], "1u", range(strided.rank - 1, 0, -1)
    for axis in axes:
        lines += [
            f"at{axis} += {carry};",
            f"let ends{axis} = at{axis} == parameters.dim{axis};",
            f"at{axis} = select(at{axis}, 0u, ends{axis});",
        ]
        carry = f"select(0u, 1u, ends{axis})"
    for name in strided.names:
        step = f"parameters.{name}_stride{strided.rank - 1}"
        for axis in axes:
            step = f"select({step}, {name}_step{axis - 1}, ends{axis})"
        lines.append(f"{name}_at += {step};")
    return lines


def element_loop(
    members: str,
    bindings: Sequence[tuple[str, str, str]],
    body: Sequence[str],
    strided: Strided,
    loop: tuple[int, int] = LOOP,
    adjacent: bool = False,
) -> str:
    """Return the bindings, parameters and entry point of a kernel that runs `body` for each `index` below `size`.

    Args:
        members: of the struct of parameters, after which the bindings follow.
        bindings: name, access and type of each.
        body: statements; they have the offsets in strided tensors as NAME_at.
        strided: the strided tensors.
        loop: invocations of a workgroup, and iterations of each.
        adjacent: the elements of an invocation are adjacent, and the offsets of all but the first are found without
            dividing. This takes half of the time where divisions take longest, on software adapters; GPUs read memory
            fastest if it is adjacent invocations that have adjacent elements.
    """
    invocations, iterations = loop
    start = f"(workgroup.x + workgroup.y * grid.x) * {invocations * iterations}u"
    if adjacent and strided.rank:
        lines = [
            f"let first = {start} + lane * {iterations}u;",
            *offsets(strided, "first", "var"),
            *_steps(strided),
            f"for (var iteration = 0u; iteration < {iterations}u; iteration++) {{",
            "    let index = first + iteration;",
            "    if index < parameters.size {",
            *_indented(_indented(body)),
            "    }",
            *_indented(_next_offsets(strided)),
            "}",
        ]
    else:
        lines = [
            f"let first = {start} + lane;",
            f"for (var iteration = 0u; iteration < {iterations}u; iteration++) {{",
            f"    let index = first + iteration * {invocations}u;",
            "    if index < parameters.size {",
            *_indented(_indented([*offsets(strided, "index"), *body])),
            "    }",
            "}",
        ]
    text = "\n".join(_indented(lines))
    return f"""
struct ElementwiseParameters {{ {members} }}

{storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: ElementwiseParameters;

@compute @workgroup_size({invocations})
fn main({GRID_PARAMETERS}) {{
{text}
}}
"""


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]

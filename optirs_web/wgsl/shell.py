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
    "UPDATE_PER_WORKGROUP",
    "advance",
    "advance_bindings",
    "elementwise",
    "elementwise_bindings",
    "elementwise_parameters",
    "function_of",
    "struct_of",
    "update",
    "update_bindings",
]

BLOCK = 256
"""Elements of an arena that belong to one tensor; a tensor begins at a multiple of it."""

_WORKGROUP = 256
_TURNS = 4
_LANES = "xyzw"

ELEMENTWISE_PER_WORKGROUP = _WORKGROUP * _TURNS

# Of an update: so many invocations share a block. Each looks its tensor up once, and then takes every eighth vector.
_UPDATE_WORKGROUP = 64
_TEAM = 8
UPDATE_PER_WORKGROUP = _UPDATE_WORKGROUP // _TEAM * BLOCK

_GRID_PARAMETERS = (
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


def function_of(module: syntax.Module, name: str) -> syntax.Function:
    """The function of that name."""
    return next(one for one in module.declarations if isinstance(one, syntax.Function) and one.name == name)


def _storage(names_and_types: Sequence[tuple[str, str, str]]) -> str:
    return "\n".join(
        f"@group(0) @binding({number}) var<storage, {access}> {name}: {type_};"
        for number, (name, access, type_) in enumerate(names_and_types)
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
    names += [f"{one.name}_stride{axis}" for one in tensors for axis in range(rank)]
    return (*((name, "u32") for name in names), *((one.name, str(one.type)) for one in scalars))


def elementwise_bindings(module: syntax.Module, function: str, operands: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, access and type of each storage binding of that shell, in order."""
    declared = function_of(module, function)
    tensors, _ = _split_operands(declared, operands)
    result_type = "u32" if declared.return_type == types.BOOL else str(declared.return_type)
    bindings = [(f"{one.name}_values", "read", f"array<{one.type}>") for one in tensors]
    return [*bindings, ("result_values", "read_write", f"array<{result_type}>")]


def elementwise(module: syntax.Module, function: str, operands: Sequence[str], rank: int) -> str:
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
            body.append(f"let {one.name}_at = {terms};")
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
    indented = "\n            ".join(body)

    return f"""
struct ElementwiseParameters {{ {", ".join(members)} }}

{_storage(bindings)}
@group(0) @binding({len(bindings)}) var<uniform> parameters: ElementwiseParameters;

@compute @workgroup_size({_WORKGROUP})
fn main({_GRID_PARAMETERS}) {{
    let first = (workgroup.x + workgroup.y * grid.x) * {ELEMENTWISE_PER_WORKGROUP}u + lane;
    for (var turn = 0u; turn < {_TURNS}u; turn++) {{
        let index = first + turn * {_WORKGROUP}u;
        if index < parameters.size {{
            {indented}
        }}
    }}
}}
"""


# Optimizers. The tables that their kernels read, and the bindings of each kernel by name: whoever dispatches one, and
# whoever computes it without WGSL, goes by these names.

_TABLES = """
// One per block of an arena: its tensor, and how many of its elements belong to that; the rest stays zero.
struct Block { tensor: u32, size: u32 }
// One per tensor: the group whose hyper-parameters it uses, and whether it has a gradient.
struct TensorEntry { group: u32, live: u32 }
// One per tensor: written by `advance`, read by `update`.
struct TensorScalars { is_active: u32, group: u32, scalars: Scalars }
"""


def update_bindings(slots: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, access and type of each binding of the `update` kernel; `slots` are those of the rule's state."""
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        ("grads", "read", "array<vec4<f32>>"),
        *((name, "read_write", "array<vec4<f32>>") for name in slots),
        ("blocks", "read", "array<Block>"),
        ("hyper", "read", "array<Hyper>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def advance_bindings(checked: bool) -> list[tuple[str, str, str]]:
    """Name, access and type of each binding of the `advance` kernel."""
    bindings = [
        ("tensors", "read", "array<TensorEntry>"),
        ("hyper", "read", "array<Hyper>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]
    return [*bindings, ("found_inf", "read_write", "array<u32>")] if checked else bindings


def update(module: syntax.Module, slots: Sequence[str]) -> str:
    """The shell of an optimizer's ``update``: a team of invocations for a block, which belongs to one tensor."""
    state = struct_of(module, "State")
    lines = [f"let old_{name} = {name}[at];" for name in slots]
    for lane in _LANES:
        members = ", ".join(f"old_{one.name}.{lane}" if one.name in slots else "0.0" for one in state.members)
        lines.append(f"let {lane} = update(param.{lane}, grad.{lane}, State({members}), h, its.scalars);")
    lines.append(f"params[at] = {_kept('param')};")
    lines += [f"{name}[at] = {_kept(f'state.{name}')};" for name in slots]
    indented = "\n        ".join(lines)
    vectors = BLOCK // len(_LANES)
    return f"""{_TABLES}
{_storage(update_bindings(slots))}

@compute @workgroup_size({_UPDATE_WORKGROUP})
fn main({_GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {_UPDATE_WORKGROUP}u + lane;
    let number = member / {_TEAM}u;
    if number >= arrayLength(&blocks) {{
        return;
    }}
    let block = blocks[number];
    let its = tensor_scalars[block.tensor];
    if its.is_active == 0u {{
        return;
    }}
    let h = hyper[its.group];
    for (var vector = member % {_TEAM}u; vector < {vectors}u; vector += {_TEAM}u) {{
        let at = number * {vectors}u + vector;
        let is_inside = vec4<u32>(vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(block.size);
        let param = params[at];
        let grad = grads[at];
        {indented}
    }}
}}
"""


def _kept(member: str) -> str:
    """That member of the four results, zero beyond the end of the tensor."""
    return f"select(vec4<f32>(0.0), vec4<f32>({', '.join(f'{lane}.{member}' for lane in _LANES)}), is_inside)"


def advance(module: syntax.Module, checked: bool) -> str:
    """The shell of an optimizer's ``advance``: one workgroup over all its tensors."""
    skip, reset = "false", ""
    if checked:
        # found_inf[0] is set by the `nonfinite` kernel; found_inf[1] counts the steps skipped.
        skip = "found_inf[0] != 0u"
        reset = """
    storageBarrier();
    if lane == 0u && skip {
        found_inf[0] = 0u;
        found_inf[1] = found_inf[1] + 1u;
    }"""
    return f"""{_TABLES}
{_storage(advance_bindings(checked))}

@compute @workgroup_size({_WORKGROUP})
fn main(@builtin(local_invocation_index) lane: u32) {{
    let skip = {skip};
    for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WORKGROUP}u) {{
        let group = tensors[tensor].group;
        let is_active = tensors[tensor].live != 0u && !skip;
        if is_active {{
            tensor_scalars[tensor].scalars = advance(tensor_scalars[tensor].scalars, hyper[group]);
        }}
        tensor_scalars[tensor].is_active = u32(is_active);
        tensor_scalars[tensor].group = group;
    }}{reset}
}}
"""

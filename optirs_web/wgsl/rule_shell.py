"""The generated part of an optimizer's shaders: what stands around the map functions of a rule.

Each function here returns WGSL text, as in `shell`. A function of a rule is given what the names of its parameters
ask for:

    param, grad   the element, and its gradient
    state         the element's State
    h             the Hyper of the tensor's group
    s             the tensor's Scalars
    measured      what `measure` returned, summed over the tensor (or over all tensors); for `settle`
    size          elements of the tensor, as f32; for `settle`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ShaderError
from . import syntax
from .shell import BLOCK, GRID_PARAMETERS, function_of, storage, struct_of

__all__ = [
    "ELEMENTS_PER_WORKGROUP",
    "ENTRY_WORDS",
    "MAXIMUM",
    "Bindings",
    "advance",
    "advance_bindings",
    "arguments_of",
    "has_function",
    "measure",
    "measure_bindings",
    "settle",
    "settle_bindings",
    "update",
    "update_bindings",
]

MAXIMUM = "max_"
"""What the name of a measured member begins with that is not summed: of it the largest value is taken, 0 at least."""

_LANES = "xyzw"
_VECTORS = BLOCK // len(_LANES)

# So many invocations share a block. Each looks its tensor up once, and then takes every eighth vector.
_WORKGROUP = 64
_TEAM = 8
ELEMENTS_PER_WORKGROUP = _WORKGROUP // _TEAM * BLOCK

_WIDE_WORKGROUP = 256  # for tables, and for what is summed

# The tables that the kernels read, and the bindings of each kernel by name: whoever dispatches one, and whoever
# computes it without WGSL, goes by these names.
_TABLES = """
// One per block of an arena: its tensor, and how many of its elements belong to that; the rest stays zero.
struct Block { tensor: u32, size: u32 }
// One per tensor: the group whose hyper-parameters it uses, whether it has a gradient, and where its blocks are among
// those of all arenas.
struct TensorEntry { group: u32, live: u32, first_block: u32, blocks: u32, size: u32 }
// One per tensor: written by `advance` and `settle`, read by `update` and `measure`.
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


def _call(module: syntax.Module, function: str, values: Mapping[str, str]) -> str:
    return f"{function}({', '.join(values[name] for name in arguments_of(module, function, values))})"


def _tables(module: syntax.Module) -> str:
    """The tables; a rule without Scalars has its steps counted."""
    return _TABLES if struct_of(module, "Scalars").members else _STEP + _TABLES


def _element(module: syntax.Module, slots: Sequence[str], lane: str) -> dict[str, str]:
    """What a function is given for one of the four elements of a vector."""
    members = struct_of(module, "State").members
    state = ", ".join(f"old_{one.name}.{lane}" if one.name in slots else "0.0" for one in members)
    return {"param": f"param.{lane}", "grad": f"grad.{lane}", "state": f"State({state})", "h": "its.h", "s": "its.s"}


def _loads(module: syntax.Module, function: str, slots: Sequence[str], negate: bool) -> list[str]:
    lines = ["let param = params[at];"]
    if _uses(module, function, "grad"):
        lines.append(f"let grad = {'-' if negate else ''}grads[at];")
    if _uses(module, function, "state"):
        lines += [f"let old_{name} = {name}[at];" for name in slots]
    return lines


def _uses(module: syntax.Module, function: str, parameter: str) -> bool:
    return any(one.name == parameter for one in function_of(module, function).parameters)


# update, and the parts of a rule that run on call.


def update_bindings(module: syntax.Module, function: str, slots: Sequence[str]) -> Bindings:
    """Those of the `update` kernel; `slots` are the members of the rule's state that exist."""
    grads = [("grads", "read", "array<vec4<f32>>")] if _uses(module, function, "grad") else []
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *grads,
        *((name, "read_write", "array<vec4<f32>>") for name in slots),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def update(module: syntax.Module, function: str, slots: Sequence[str], negate: bool) -> str:
    """The shell of an optimizer's ``update``: a team of invocations for a block, which belongs to one tensor.

    Args:
        module: the rule.
        function: ``update``, for tensors with a gradient; or a part on call, for those that have taken a step.
        slots: the members of State that exist.
        negate: the gradient (to maximize).
    """
    lines = _loads(module, function, slots, negate)
    for lane in _LANES:
        lines.append(f"let {lane} = {_call(module, function, _element(module, slots, lane))};")
    lines.append(f"params[at] = {_kept('param')};")
    if _uses(module, function, "state"):
        lines += [f"{name}[at] = {_kept(f'state.{name}')};" for name in slots]
    indented = "\n        ".join(lines)
    is_left_alone = "its.is_active == 0u" if function == "update" else "its.s.step == 0.0"
    return f"""{_tables(module)}
{storage(update_bindings(module, function, slots))}

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {_WORKGROUP}u + lane;
    let number = member / {_TEAM}u;
    if number >= arrayLength(&blocks) {{
        return;
    }}
    let block = blocks[number];
    let its = tensor_scalars[block.tensor];
    if {is_left_alone} {{
        return;
    }}
    for (var vector = member % {_TEAM}u; vector < {_VECTORS}u; vector += {_TEAM}u) {{
        let at = number * {_VECTORS}u + vector;
        let is_inside = vec4<u32>(vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(block.size);
        {indented}
    }}
}}
"""


def _kept(member: str) -> str:
    """That member of the four results, zero beyond the end of the tensor."""
    return f"select(vec4<f32>(0.0), vec4<f32>({', '.join(f'{lane}.{member}' for lane in _LANES)}), is_inside)"


# advance.


def advance_bindings(checked: bool) -> Bindings:
    """Those of the `advance` kernel."""
    bindings = [
        ("tensors", "read", "array<TensorEntry>"),
        ("hyper", "read", "array<Hyper>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]
    return [*bindings, ("found_inf", "read_write", "array<u32>")] if checked else bindings


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
    values = {"s": "tensor_scalars[tensor].s", "h": "hyper[group]"}
    advanced = (
        _call(module, "advance", values) if has_function(module, "advance") else f"Scalars({values['s']}.step + 1.0)"
    )
    return f"""{_tables(module)}
{storage(advance_bindings(checked))}

@compute @workgroup_size({_WIDE_WORKGROUP})
fn main(@builtin(local_invocation_index) lane: u32) {{
    let skip = {skip};
    for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WIDE_WORKGROUP}u) {{
        let group = tensors[tensor].group;
        let is_active = tensors[tensor].live != 0u && !skip;
        if is_active {{
            tensor_scalars[tensor].s = {advanced};
            tensor_scalars[tensor].h = hyper[group];
        }}
        tensor_scalars[tensor].is_active = u32(is_active);
    }}{reset}
}}
"""


# measure and settle.


def measure_bindings(module: syntax.Module, slots: Sequence[str]) -> Bindings:
    """Those of the `measure` kernel; `partials` has one entry for each block."""
    reading = [("grads", "grad", ["grads"]), ("state", "state", list(slots))]
    bound = [name for _, parameter, names in reading if _uses(module, "measure", parameter) for name in names]
    return [
        ("params", "read", "array<vec4<f32>>"),
        *((name, "read", "array<vec4<f32>>") for name in bound),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        ("partials", "read_write", "array<Measured>"),
    ]


def measure(module: syntax.Module, slots: Sequence[str], negate: bool) -> str:
    """The shell of ``measure``: its sum over each block."""
    lines = _loads(module, "measure", slots, negate)
    for number, lane in enumerate(_LANES):
        call = _call(module, "measure", _element(module, slots, lane))
        lines.append(f"if vector * 4u + {number}u < block.size {{ total = combine(total, {call}); }}")
    indented = "\n                ".join(lines)
    return f"""{_tables(module)}
{_combine(module)}
{storage(measure_bindings(module, slots))}
var<workgroup> totals: array<Measured, {_WORKGROUP}>;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {_WORKGROUP}u + lane;
    let number = member / {_TEAM}u;
    var total = {_nothing(module)};
    if number < arrayLength(&blocks) {{
        let block = blocks[number];
        let its = tensor_scalars[block.tensor];
        if its.is_active != 0u {{
            for (var vector = member % {_TEAM}u; vector < {_VECTORS}u; vector += {_TEAM}u) {{
                let at = number * {_VECTORS}u + vector;
                {indented}
            }}
        }}
    }}
    totals[lane] = total;
    workgroupBarrier();
    if member % {_TEAM}u == 0u && number < arrayLength(&blocks) {{
        for (var other = 1u; other < {_TEAM}u; other++) {{
            total = combine(total, totals[lane + other]);
        }}
        partials[number] = total;
    }}
}}
"""


def _combine(module: syntax.Module) -> str:
    members = ", ".join(
        f"max(a.{one.name}, b.{one.name})" if one.name.startswith(MAXIMUM) else f"a.{one.name} + b.{one.name}"
        for one in struct_of(module, "Measured").members
    )
    return f"fn combine(a: Measured, b: Measured) -> Measured {{\n    return Measured({members});\n}}"


def _nothing(module: syntax.Module) -> str:
    return f"Measured({', '.join('0.0' for _ in struct_of(module, 'Measured').members)})"


def settle_bindings() -> Bindings:
    """Those of the `settle` kernel."""
    return [
        ("tensors", "read", "array<TensorEntry>"),
        ("partials", "read", "array<Measured>"),
        ("tensor_scalars", "read_write", "array<TensorScalars>"),
    ]


def settle(module: syntax.Module, over_all: bool) -> str:
    """The shell of ``settle``: a workgroup for each tensor, or one workgroup for what is measured over all tensors."""
    values = {
        "s": "tensor_scalars[tensor].s",
        "h": "tensor_scalars[tensor].h",
        "measured": "measured",
        "size": "f32(tensors[tensor].size)",
    }
    call = f"tensor_scalars[tensor].s = {_call(module, 'settle', values)};"
    if over_all:
        which, first, end = "", "0u", "arrayLength(&partials)"
        result = f"""for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WIDE_WORKGROUP}u) {{
        if tensor_scalars[tensor].is_active != 0u {{
            {call}
        }}
    }}"""
    else:
        which = "let tensor = workgroup.x + workgroup.y * grid.x;\n    let entry = tensors[tensor];"
        first, end = "entry.first_block", "entry.first_block + entry.blocks"
        result = f"""if lane == 0u && tensor < arrayLength(&tensors) && tensor_scalars[tensor].is_active != 0u {{
        {call}
    }}"""
    return f"""{_tables(module)}
{_combine(module)}
{storage(settle_bindings())}
var<workgroup> totals: array<Measured, {_WIDE_WORKGROUP}>;

@compute @workgroup_size({_WIDE_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    {which}
    var total = {_nothing(module)};
    for (var block = {first} + lane; block < {end}; block += {_WIDE_WORKGROUP}u) {{
        total = combine(total, partials[block]);
    }}
    totals[lane] = total;
    workgroupBarrier();
    for (var half = {_WIDE_WORKGROUP // 2}u; half > 0u; half /= 2u) {{
        if lane < half {{
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }}
        workgroupBarrier();
    }}
    let measured = totals[0];
    {result}
}}
"""

"""The generated part of an optimizer's shaders: what stands around the map functions of a rule.

Each function here returns WGSL text, as in `shell`. A function of a rule is given what the names of its parameters
ask for:

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
from . import line_lookup, slot_storage, syntax, transform_lookup
from .shell import BLOCK, GRID_PARAMETERS, function_of, storage, struct_of
from .transform_glue import BAD

__all__ = [
    "ELEMENTS_PER_WORKGROUP",
    "ENTRY_WORDS",
    "MAXIMUM",
    "RESERVED",
    "STEP_PARTS",
    "Bindings",
    "advance",
    "advance_bindings",
    "arguments_of",
    "call",
    "combine",
    "elements_per_workgroup",
    "has_function",
    "measure",
    "measure_bindings",
    "nothing",
    "reduce_partials",
    "settle",
    "settle_bindings",
    "tables",
    "update",
    "update_bindings",
    "uses",
]

MAXIMUM = "max_"
"""What the name of a measured member begins with that is not summed: of it the largest value is taken, 0 at least."""

STEP_PARTS = ("update", "prepare", "adapt")
"""Parts over every element that belong to a step: a layout runs `prepare` and `adapt`, and others, before `update`."""

RESERVED = frozenset(
    ("at", "block", "blocks", "grad", "grads", "grid", "is_inside", "is_updated", "its", "kept", "lane", "member",
     "most", "number", "param", "params", "place", "tensor_scalars", "total", "vector", "workgroup")
)  # fmt: skip
"""Names that the generated shaders use themselves, and that a member of State cannot have."""

_LANES = "xyzw"
_VECTORS = BLOCK // len(_LANES)

# So many invocations share a block. Each looks its tensor up once, and then takes every eighth vector.
_WORKGROUP = 64
_TEAM = 8
ELEMENTS_PER_WORKGROUP = _WORKGROUP // _TEAM * BLOCK

_BLOCKWISE = 4  # blocks of a workgroup where state is stored in 8 bits

_WIDE_WORKGROUP = 256  # for tables, and for what is summed

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


def _element(module: syntax.Module, slots: Mapping[str, str], lane: str) -> dict[str, str]:
    """What a function is given for one of the four elements of a vector."""
    members = struct_of(module, "State").members
    state = ", ".join(f"old_{one.name}.{lane}" if one.name in slots else "0.0" for one in members)
    values = {"param": f"param.{lane}", "grad": f"grad.{lane}", "state": f"State({state})", "h": "its.h", "s": "its.s"}
    return {**values, **line_lookup.values(module, lane)}


def _loads(module: syntax.Module, function: str, slots: Mapping[str, str], negate: bool) -> list[str]:
    lines = ["let param = params[at];"]
    if uses(module, function, "grad"):
        lines += transform_lookup.grad_lines(module, negate)
    if uses(module, function, "state"):
        lines += [line for name, kind in slots.items() for line in slot_storage.load(name, kind)]
    return lines + line_lookup.loads(module, function, _LANES)


def uses(module: syntax.Module, function: str, parameter: str) -> bool:
    """Whether a function has a parameter of that name."""
    return any(one.name == parameter for one in function_of(module, function).parameters)


def _grad_bindings(module: syntax.Module, function: str) -> Bindings:
    if not uses(module, function, "grad"):
        return []
    return [("grads", "read", "array<vec4<f32>>"), *transform_lookup.rule_bindings(module)]


# update, and the parts of a rule that run on call.


def update_bindings(module: syntax.Module, function: str, slots: Mapping[str, str]) -> Bindings:
    """Those of the `update` kernel; `slots` are the members of the rule's state that exist, and how they are stored."""
    grads = _grad_bindings(module, function)
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *grads,
        *(one for name, kind in slots.items() for one in slot_storage.bindings(name, kind, "read_write")),
        *line_lookup.bindings(module, function),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def elements_per_workgroup(slots: Mapping[str, str]) -> int:
    """Elements of an arena that a workgroup of `update` takes."""
    return _BLOCKWISE * BLOCK if slot_storage.is_blockwise(slots.values()) else ELEMENTS_PER_WORKGROUP


def update(module: syntax.Module, function: str, slots: Mapping[str, str], negate: bool) -> str:
    """The shell of an optimizer's ``update``: a team of invocations for a block, which belongs to one tensor.

    Args:
        module: the rule.
        function: ``update``, for tensors with a gradient; or a part on call, for those that have taken a step.
        slots: the members of State that exist, and how each is stored.
        negate: the gradient (to maximize).
    """
    is_blockwise = slot_storage.is_blockwise(slots.values())
    lines = _loads(module, function, slots, negate)
    for lane in _LANES:
        lines.append(f"let updated_{lane} = {call(module, function, _element(module, slots, lane))};")
    lines.append(f"params[at] = {_kept('param')};")
    kept = {name: _kept(f"state.{name}") for name in slots} if uses(module, function, "state") else {}
    if is_blockwise:
        lines += [f"new_{name} = {value};" for name, value in kept.items()]
    else:
        lines += [line for name, value in kept.items() for line in _stores(slots, name, value)]
    indented = "\n        ".join(lines)
    is_left_alone = "its.is_active != 1u" if function in STEP_PARTS else "its.s.step == 0.0"
    is_left_alone = transform_lookup.is_left_alone(module, is_left_alone)
    if is_blockwise:
        return _update_blockwise(module, function, slots, indented, is_left_alone)
    return f"""{tables(module)}
{storage(update_bindings(module, function, slots))}
{line_lookup.tables(module, function)}

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


def _stores(slots: Mapping[str, str], name: str, value: str) -> list[str]:
    seed = f"u32(its.s.step) * {len(slots)}u + {list(slots).index(name)}u"
    return slot_storage.store(name, slots[name], value, seed)


def _update_blockwise(
    module: syntax.Module, function: str, slots: Mapping[str, str], computed: str, is_left_alone: str
) -> str:
    """Of slots in 8 bits: an invocation for a vector, since a block's largest magnitude comes before what is stored."""
    in_8_bits = [name for name, kind in slots.items() if slot_storage.is_blockwise([kind])]
    noted = "\n        ".join(
        f"atomicMax(&most[{number * _BLOCKWISE}u + lane / {_VECTORS}u], bitcast<u32>(largest_of(abs(new_{name}))));"
        for number, name in enumerate(in_8_bits)
    )
    found = "\n        ".join(
        f"let {name}_most = bitcast<f32>(atomicLoad(&most[{number * _BLOCKWISE}u + lane / {_VECTORS}u]));"
        for number, name in enumerate(in_8_bits)
    )
    stores = "\n        ".join(line for name in slots for line in _stores(slots, name, f"new_{name}"))
    tops = "\n            ".join(f"{name}_largest[number] = {name}_most;" for name in in_8_bits)
    return f"""{tables(module)}
{storage(update_bindings(module, function, slots))}
{line_lookup.tables(module, function)}
var<workgroup> most: array<atomic<u32>, {_BLOCKWISE * len(in_8_bits)}>;

// Not negative, so that bits are in the order of the numbers.
fn largest_of(x: vec4<f32>) -> f32 {{
    return max(max(x.x, x.y), max(x.z, x.w));
}}

@compute @workgroup_size({_BLOCKWISE * _VECTORS})
fn main({GRID_PARAMETERS}) {{
    let at = (workgroup.x + workgroup.y * grid.x) * {_BLOCKWISE * _VECTORS}u + lane;
    let number = at / {_VECTORS}u;
    let vector = at % {_VECTORS}u;
    let block = blocks[min(number, arrayLength(&blocks) - 1u)];
    let its = tensor_scalars[block.tensor];
    let is_updated = number < arrayLength(&blocks) && !({is_left_alone});
    // Not every adapter begins with zeros.
    if lane < {_BLOCKWISE * len(in_8_bits)}u {{
        atomicStore(&most[lane], 0u);
    }}
    workgroupBarrier();
    {" ".join(f"var new_{name} = vec4<f32>(0.0);" for name in slots)}
    if is_updated {{
        let is_inside = vec4<u32>(vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(block.size);
        {computed}
        {noted}
    }}
    storageBarrier();
    workgroupBarrier();
    if is_updated {{
        {found}
        {stores}
        if vector == 0u {{
            {tops}
        }}
    }}
}}
"""


def _kept(member: str) -> str:
    """That member of the four results, zero beyond the end of the tensor."""
    return f"select(vec4<f32>(0.0), vec4<f32>({', '.join(f'updated_{lane}.{member}' for lane in _LANES)}), is_inside)"


# advance.


def advance_bindings(module: syntax.Module, checked: bool, measured: int | None) -> Bindings:
    """Those of the `advance` kernel; see `advance`."""
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
    """The shell of an optimizer's ``advance``: one workgroup over all its tensors.

    What is measured over all tensors is the same for each, so that then the scalars of all of them go along, but for
    the step count of those without a gradient.

    Args:
        module: the rule.
        checked: steps with gradients that are not finite are left out.
        over_all: the rule measures over all tensors.
        measured: the number of the transform that has measured already; whether a gradient is not finite it knows too.
        settles: it measures over all tensors, and what follows is done here.
    """
    skip, reset = "false", ""
    if checked:
        # found_inf[0] is set by the `nonfinite` kernel; found_inf[1] counts the steps skipped.
        skip = "found_inf[0] != 0u" + (f" || measured.{BAD} != 0.0" if measured is not None else "")
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
        declared = f"{combine(module, struct)}\nvar<workgroup> totals: array<{struct}, {_WIDE_WORKGROUP}>;\n"
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
@compute @workgroup_size({_WIDE_WORKGROUP})
fn main(@builtin(local_invocation_index) lane: u32) {{{reduced}
    let skip = {skip};
    for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WIDE_WORKGROUP}u) {{
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


# measure and settle.


def measure_bindings(module: syntax.Module, slots: Mapping[str, str]) -> Bindings:
    """Those of the `measure` kernel; `partials` has one entry for each block."""
    bound = slots if uses(module, "measure", "state") else {}
    return [
        ("params", "read", "array<vec4<f32>>"),
        *_grad_bindings(module, "measure"),
        *(one for name, kind in bound.items() for one in slot_storage.bindings(name, kind, "read")),
        *line_lookup.bindings(module, "measure"),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
        ("partials", "read_write", "array<Measured>"),
    ]


def measure(module: syntax.Module, slots: Mapping[str, str], negate: bool) -> str:
    """The shell of ``measure``: its sum over each block."""
    lines = _loads(module, "measure", slots, negate)
    for number, lane in enumerate(_LANES):
        value = call(module, "measure", _element(module, slots, lane))
        lines.append(f"if vector * 4u + {number}u < block.size {{ total = combine(total, {value}); }}")
    indented = "\n                ".join(lines)
    return f"""{tables(module)}
{combine(module)}
{storage(measure_bindings(module, slots))}
{line_lookup.tables(module, "measure")}
var<workgroup> totals: array<Measured, {_WORKGROUP}>;

@compute @workgroup_size({_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {_WORKGROUP}u + lane;
    let number = member / {_TEAM}u;
    var total = {nothing(module)};
    if number < arrayLength(&blocks) {{
        let block = blocks[number];
        let its = tensor_scalars[block.tensor];
        if its.is_active == 1u {{
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
    let measured = totals[0];"""


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
    settled = f"tensor_scalars[tensor].s = {call(module, 'settle', values)};"
    if over_all:
        which, first, end = "", "0u", "arrayLength(&partials)"
        result = f"""for (var tensor = lane; tensor < arrayLength(&tensors); tensor += {_WIDE_WORKGROUP}u) {{
        if tensor_scalars[tensor].is_active != 0u {{
            {settled}
        }}
    }}"""
    else:
        which = "let tensor = workgroup.x + workgroup.y * grid.x;\n    let entry = tensors[tensor];"
        first, end = "entry.first_block", "entry.first_block + entry.blocks"
        result = f"""if lane == 0u && tensor < arrayLength(&tensors) && tensor_scalars[tensor].is_active != 0u {{
        {settled}
    }}"""
    return f"""{tables(module)}
{combine(module)}
{storage(settle_bindings())}
var<workgroup> totals: array<Measured, {_WIDE_WORKGROUP}>;

@compute @workgroup_size({_WIDE_WORKGROUP})
fn main({GRID_PARAMETERS}) {{
    {which}
    {reduce_partials(module, first, end)}
    {result}
}}
"""

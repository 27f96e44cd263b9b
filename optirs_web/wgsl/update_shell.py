"""The generated part of the shader of a rule's ``update``, and of the parts that run on call; see `rule_shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import line_lookup, param_storage, slot_storage, syntax, transform_lookup
from .dependence import passed_through
from .rule_shell import (
    ELEMENTS_PER_WORKGROUP,
    LANES,
    STEP_PARTS,
    TEAM,
    VECTORS,
    WORKGROUP,
    Bindings,
    call,
    element,
    grad_bindings,
    loads,
    tables,
    uses,
)
from .shell import BLOCK, GRID_PARAMETERS, storage

__all__ = [
    "block_loop",
    "changed_slots",
    "elements_per_workgroup",
    "round_params",
    "round_params_bindings",
    "update",
    "update_bindings",
]

_BLOCKWISE = 4  # blocks of a workgroup where state is stored in 8 bits


def update_bindings(
    module: syntax.Module, function: str, slots: Mapping[str, str], changed: Mapping[str, str], param_kind: str = ""
) -> Bindings:
    """Those of the `update` kernel; see `update`."""
    access = {name: "read_write" if name in changed else "read" for name in slots}
    grads = grad_bindings(module, function)
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *param_storage.bindings(param_kind, "read_write"),
        *grads,
        *(one for name, kind in slots.items() for one in slot_storage.bindings(name, kind, access[name])),
        *line_lookup.bindings(module, function),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def changed_slots(module: syntax.Module, function: str, slots: Mapping[str, str]) -> dict[str, str]:
    """The slots that the function returns otherwise than it was given them; only these are stored again.

    Storing in 8 bits what was loaded would change it: the map has 1 and not -1.
    """
    kept = passed_through(module, function) if uses(module, function, "state") else slots
    return {name: kind for name, kind in slots.items() if name not in kept}


def elements_per_workgroup(slots: Mapping[str, str]) -> int:
    """Elements of an arena that a workgroup of `update` takes, which stores these."""
    return _BLOCKWISE * BLOCK if slot_storage.is_blockwise(slots.values()) else ELEMENTS_PER_WORKGROUP


def update(
    module: syntax.Module,
    function: str,
    slots: Mapping[str, str],
    changed: Mapping[str, str],
    negate: bool,
    param_kind: str = "",
    workgroup: int = WORKGROUP,
    in_runs: bool = False,
) -> str:
    """The shell of an optimizer's ``update``: a team of invocations for a block, which belongs to one tensor.

    Args:
        module: the rule.
        function: ``update``, for tensors with a gradient; or a part on call, for those that have taken a step.
        slots: the members of State that exist, and how each is stored.
        changed: the `changed_slots` among them.
        negate: the gradient (to maximize).
        param_kind: how the parameters are kept, as in `param_storage`; "" for float32.
        workgroup: invocations of a workgroup, where none of the slots is stored in 8 bits.
        in_runs: see `block_loop`.
    """
    is_blockwise = slot_storage.is_blockwise(changed.values())
    lines = loads(module, function, slots, negate, param_kind)
    for lane in LANES:
        given = element(module, slots, lane, param_storage.whole(param_kind))
        lines.append(f"let updated_{lane} = {call(module, function, given)};")
    lines += param_storage.store(param_kind, _kept("param"), seed([*slots, "param"], "param"))
    kept = {name: _kept(f"state.{name}") for name in changed}
    if is_blockwise:
        lines += [f"new_{name} = {value};" for name, value in kept.items()]
    else:
        lines += [line for name, value in kept.items() for line in _stores(slots, name, value)]
    indented = "\n        ".join(lines)
    is_left_alone = "its.is_active != 1u" if function in STEP_PARTS else "its.s.step == 0.0"
    is_left_alone = transform_lookup.is_left_alone(module, is_left_alone)
    declared = f"""{tables(module)}
{storage(update_bindings(module, function, slots, changed, param_kind))}
{line_lookup.tables(module, function)}
"""
    if is_blockwise:
        return declared + _main_blockwise(slots, changed, indented, is_left_alone)
    return declared + block_loop(indented, is_left_alone, workgroup, in_runs)


def block_loop(computed: str, is_left_alone: str, workgroup: int = WORKGROUP, in_runs: bool = False) -> str:
    """The entry point of a kernel that does `computed` for each vector of the blocks that are not left alone.

    `in_runs`: an invocation takes neighbours, which processors like, and not every eighth, which GPUs do.
    """
    first, end, step = f"member % {TEAM}u", f"{VECTORS}u", f"{TEAM}u"
    if in_runs:
        first, end, step = f"{first} * {VECTORS // TEAM}u", f"(member % {TEAM}u + 1u) * {VECTORS // TEAM}u", "1u"
    return f"""
@compute @workgroup_size({workgroup})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {workgroup}u + lane;
    let number = member / {TEAM}u;
    if number >= arrayLength(&blocks) {{
        return;
    }}
    let block = blocks[number];
    let its = tensor_scalars[block.tensor];
    if {is_left_alone} {{
        return;
    }}
    for (var vector = {first}; vector < {end}; vector += {step}) {{
        let at = number * {VECTORS}u + vector;
        let is_inside = vec4<u32>(vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(block.size);
        {computed}
    }}
}}
"""


def round_params_bindings(param_kind: str) -> Bindings:
    """Those of the kernel that `round_params` makes."""
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *param_storage.bindings(param_kind, "read_write"),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def round_params(module: syntax.Module, param_kind: str) -> str:
    """The shell that rounds parameters to the nearest, but for vectors of bfloat16: a second time changes nothing."""
    bits = " | ".join(f"bitcast<u32>(param.{lane})" for lane in LANES)
    value = f"select(vec4<f32>(0.0), {param_storage.whole(param_kind)}, is_inside)"
    lines = [
        "let param = params[at];",
        f"if (({bits}) & 0xffffu) == 0u {{ continue; }}",
        *param_storage.load(param_kind),
        *param_storage.store(param_kind, value),
    ]
    # The last entry is that of tensors of others.
    is_anothers = "block.tensor + 1u >= arrayLength(&tensor_scalars)"
    declared = f"{tables(module)}\n{storage(round_params_bindings(param_kind))}\n"
    return declared + block_loop("\n        ".join(lines), is_anothers)


def seed(names: Sequence[str], name: str) -> str:
    """Of the rounding of what is stored at random, which are these."""
    return f"u32(its.s.step) * {len(names)}u + {names.index(name)}u"


def _stores(slots: Mapping[str, str], name: str, value: str) -> list[str]:
    return slot_storage.store(name, slots[name], value, seed(list(slots), name))


def _main_blockwise(slots: Mapping[str, str], changed: Mapping[str, str], computed: str, is_left_alone: str) -> str:
    """Of slots in 8 bits: an invocation for a vector, since a block's largest magnitude comes before what is stored."""
    in_8_bits = [name for name, kind in changed.items() if slot_storage.is_blockwise([kind])]
    noted = "\n        ".join(
        f"atomicMax(&most[{number * _BLOCKWISE}u + lane / {VECTORS}u], bitcast<u32>(largest_of(abs(new_{name}))));"
        for number, name in enumerate(in_8_bits)
    )
    found = "\n        ".join(
        f"let {name}_most = bitcast<f32>(atomicLoad(&most[{number * _BLOCKWISE}u + lane / {VECTORS}u]));"
        for number, name in enumerate(in_8_bits)
    )
    stores = "\n        ".join(line for name in changed for line in _stores(slots, name, f"new_{name}"))
    tops = "\n            ".join(f"{slot_storage.largest_name(name)}[number] = {name}_most;" for name in in_8_bits)
    return f"""var<workgroup> most: array<atomic<u32>, {_BLOCKWISE * len(in_8_bits)}>;

// Not negative, so that bits are in the order of the numbers.
fn largest_of(x: vec4<f32>) -> f32 {{
    return max(max(x.x, x.y), max(x.z, x.w));
}}

@compute @workgroup_size({_BLOCKWISE * VECTORS})
fn main({GRID_PARAMETERS}) {{
    let at = (workgroup.x + workgroup.y * grid.x) * {_BLOCKWISE * VECTORS}u + lane;
    let number = at / {VECTORS}u;
    let vector = at % {VECTORS}u;
    let block = blocks[min(number, arrayLength(&blocks) - 1u)];
    let its = tensor_scalars[block.tensor];
    let is_updated = number < arrayLength(&blocks) && !({is_left_alone});
    // Not every adapter begins with zeros.
    if lane < {_BLOCKWISE * len(in_8_bits)}u {{
        atomicStore(&most[lane], 0u);
    }}
    workgroupBarrier();
    {" ".join(f"var new_{name} = vec4<f32>(0.0);" for name in changed)}
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
    return f"select(vec4<f32>(0.0), vec4<f32>({', '.join(f'updated_{lane}.{member}' for lane in LANES)}), is_inside)"

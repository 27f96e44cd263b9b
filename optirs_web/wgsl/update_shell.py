"""The generated part of the shader of ``update``, and of functions such as ``train`` and ``eval``; see `rule_shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import line_lookup, param_storage, slot_storage, syntax, transform_lookup
from .dependence import passed_through
from .rule_shell import (
    ELEMENTS_PER_WORKGROUP,
    GROUP_SIZE,
    LANES,
    STEP_PARTS,
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
    """Return the bindings of the `update` kernel; see `update`."""
    access = {name: "read_write" if name in changed else "read" for name in slots}
    grads = grad_bindings(module, function)
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *param_storage.bindings(param_kind, "read_write"),
        *grads,
        *(binding for name, kind in slots.items() for binding in slot_storage.bindings(name, kind, access[name])),
        *line_lookup.bindings(module, function),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def changed_slots(module: syntax.Module, function: str, slots: Mapping[str, str]) -> dict[str, str]:
    """Return the slots that the function may change; only these are stored.

    Storing an unchanged value in 8 bits would change it, as the map has 1 and not -1.
    """
    unchanged = passed_through(module, function) if uses(module, function, "state") else slots
    return {name: kind for name, kind in slots.items() if name not in unchanged}


def elements_per_workgroup(slots: Mapping[str, str]) -> int:
    """Return the number of elements per workgroup of an `update` that stores these slots."""
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
    """Return the shell of an optimizer's ``update``: a group of invocations for a block, which belongs to one tensor.

    Args:
        module: the rule.
        function: ``update``, for tensors with a gradient; or one such as ``eval``, for tensors that have taken a step.
        slots: the members of State that exist, and how each is stored.
        changed: the `changed_slots` among them.
        negate: negate the gradient (to maximize).
        param_kind: the storage of parameters, as in `param_storage`; "" for float32.
        workgroup: invocations of a workgroup, if no slot is stored in 8 bits.
        in_runs: see `block_loop`.
    """
    is_blockwise = slot_storage.is_blockwise(changed.values())
    lines = loads(module, function, slots, negate, param_kind)
    for lane in LANES:
        arguments = element(module, slots, lane, param_storage.whole(param_kind))
        lines.append(f"let updated_{lane} = {call(module, function, arguments)};")
    lines += param_storage.store(param_kind, _result_vector("param"), seed([*slots, "param"], "param"))
    new_values = {name: _result_vector(f"state.{name}") for name in changed}
    if is_blockwise:
        lines += [f"new_{name} = {value};" for name, value in new_values.items()]
    else:
        lines += [statement for name, value in new_values.items() for statement in _stores(slots, name, value)]
    indented = "\n        ".join(lines)
    is_skipped = "its.is_active != 1u" if function in STEP_PARTS else "its.s.step == 0.0"
    is_skipped = transform_lookup.is_skipped(module, is_skipped)
    declared = f"""{tables(module)}
{storage(update_bindings(module, function, slots, changed, param_kind))}
{line_lookup.tables(module, function)}
"""
    if is_blockwise:
        return declared + _main_blockwise(slots, changed, indented, is_skipped)
    return declared + block_loop(indented, is_skipped, workgroup, in_runs)


def block_loop(computed: str, is_skipped: str, workgroup: int = WORKGROUP, in_runs: bool = False) -> str:
    """Return the entry point of a kernel that runs `computed` for each vector of the blocks that are not skipped.

    `in_runs`: an invocation takes adjacent vectors, which is fast on CPUs, and not every eighth, which is fast on GPUs.
    """
    start, end, step = f"member % {GROUP_SIZE}u", f"{VECTORS}u", f"{GROUP_SIZE}u"
    if in_runs:
        start, end, step = (
            f"{start} * {VECTORS // GROUP_SIZE}u",
            f"(member % {GROUP_SIZE}u + 1u) * {VECTORS // GROUP_SIZE}u",
            "1u",
        )
    return f"""
@compute @workgroup_size({workgroup})
fn main({GRID_PARAMETERS}) {{
    let member = (workgroup.x + workgroup.y * grid.x) * {workgroup}u + lane;
    let number = member / {GROUP_SIZE}u;
    if number >= arrayLength(&blocks) {{
        return;
    }}
    let block = blocks[number];
    let its = tensor_scalars[block.tensor];
    if {is_skipped} {{
        return;
    }}
    for (var vector = {start}; vector < {end}; vector += {step}) {{
        let at = number * {VECTORS}u + vector;
        let is_inside = vec4<u32>(vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(block.size);
        {computed}
    }}
}}
"""


def round_params_bindings(param_kind: str) -> Bindings:
    """Return the bindings of the kernel of `round_params`."""
    return [
        ("params", "read_write", "array<vec4<f32>>"),
        *param_storage.bindings(param_kind, "read_write"),
        ("blocks", "read", "array<Block>"),
        ("tensor_scalars", "read", "array<TensorScalars>"),
    ]


def round_params(module: syntax.Module, param_kind: str) -> str:
    """Return the shell that rounds parameters to the nearest bfloat16, and skips vectors that are bfloat16 already."""
    bits = " | ".join(f"bitcast<u32>(param.{lane})" for lane in LANES)
    value = f"select(vec4<f32>(0.0), {param_storage.whole(param_kind)}, is_inside)"
    lines = [
        "let param = params[at];",
        f"if (({bits}) & 0xffffu) == 0u {{ continue; }}",
        *param_storage.load(param_kind),
        *param_storage.store(param_kind, value),
    ]
    # The last entry is for tensors of other optimizers.
    is_foreign = "block.tensor + 1u >= arrayLength(&tensor_scalars)"
    declared = f"{tables(module)}\n{storage(round_params_bindings(param_kind))}\n"
    return declared + block_loop("\n        ".join(lines), is_foreign)


def seed(names: Sequence[str], name: str) -> str:
    """Return the seed of the random rounding of `name`, one of the `names` that a step rounds."""
    return f"u32(its.s.step) * {len(names)}u + {names.index(name)}u"


def _stores(slots: Mapping[str, str], name: str, value: str) -> list[str]:
    return slot_storage.store(name, slots[name], value, seed(list(slots), name))


def _main_blockwise(slots: Mapping[str, str], changed: Mapping[str, str], computed: str, is_skipped: str) -> str:
    """Return the entry point for slots in 8 bits, with an invocation for each vector.

    The largest magnitude of a block must be known before its values are stored.
    """
    in_8_bits = [name for name, kind in changed.items() if slot_storage.is_blockwise([kind])]
    noted = "\n        ".join(
        f"atomicMax(&most[{number * _BLOCKWISE}u + lane / {VECTORS}u], bitcast<u32>(largest_of(abs(new_{name}))));"
        for number, name in enumerate(in_8_bits)
    )
    largest = "\n        ".join(
        f"let {name}_most = bitcast<f32>(atomicLoad(&most[{number * _BLOCKWISE}u + lane / {VECTORS}u]));"
        for number, name in enumerate(in_8_bits)
    )
    stores = "\n        ".join(statement for name in changed for statement in _stores(slots, name, f"new_{name}"))
    tops = "\n            ".join(f"{slot_storage.largest_name(name)}[number] = {name}_most;" for name in in_8_bits)
    return f"""var<workgroup> most: array<atomic<u32>, {_BLOCKWISE * len(in_8_bits)}>;

// The numbers are not negative, so that their bits have the same order.
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
    let is_updated = number < arrayLength(&blocks) && !({is_skipped});
    // Not every adapter initializes workgroup memory to zero.
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
        {largest}
        {stores}
        if vector == 0u {{
            {tops}
        }}
    }}
}}
"""


def _result_vector(member: str) -> str:
    """Return a member of the four results as a vector, zero beyond the end of the tensor."""
    return f"select(vec4<f32>(0.0), vec4<f32>({', '.join(f'updated_{lane}.{member}' for lane in LANES)}), is_inside)"

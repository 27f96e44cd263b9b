"""The generated part of a kernel for Numba: loops over arrays that call its map functions.

Each text has the functions as `print_python` prints them, and `launch(parts, …)`: it divides the work among `parts`
threads (`prange`), each of which runs `part(number, parts, …)`; for little work, or if threads cannot be used,
`part(0, 1, …)` does all of it. Kernels over a table with a row for each tensor only have a `launch` without `parts`.

A tensor is looked up once for each sequence of its blocks. The loop over its elements is a separate function of slices,
which begin at 0, so that LLVM recognizes contiguous arrays and vectorizes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from . import rule_shell, syntax, transform_lookup
from .numba_dialect import NUMBA
from .param_storage import SLOTS
from .print_python import print_python, python_name
from .rule_shell import STEP_PARTS, arguments_of, has_function, uses
from .shell import BLOCK, struct_of

__all__ = [
    "Loops",
    "advance",
    "function_text",
    "has_loops",
    "in_parts",
    "indented",
    "measure",
    "measure_transform",
    "sees_elements_alone",
    "settle",
    "update",
]

_STATE_IN = {
    "float32": "{0}[at]",
    "bfloat16": "from_bfloat16(np.uint32({0}[at]))",
    "float16": "from_float16(np.uint32({0}[at]))",
}
_STATE_OUT = {
    "float32": "{1}",
    "bfloat16": "to_bfloat16_stochastic({1}, rounding_bits(np.uint32(first + at), {2}))",
    "float16": "to_float16({1})",
}
_PARAM_IN = {
    "": "params[at]",
    "master": "join_halves(params[at], np.uint32(master_low[at]))",
    "stochastic": "params[at]",
    "kahan": "add_cut_off(params[at], np.uint32(kahan_comp[at]))",
}
_PARAM_OUT = {
    "": ["params[at] = updated.param"],
    "master": ["params[at] = upper_half(updated.param)", "master_low[at] = lower_half(updated.param)"],
    "stochastic": [
        "random = rounding_bits(np.uint32(first + at), {seed})",
        "params[at] = from_bfloat16(to_bfloat16_stochastic(updated.param, random))",
    ],
    "kahan": [
        "rounded = from_bfloat16(to_bfloat16(updated.param))",
        "kahan_comp[at] = to_bfloat16(updated.param - rounded)",
        "params[at] = rounded",
    ],
}

_TABLES = ("blocks", "words", "floats")
_BY_TRANSFORMS = ("tensor", "t", "on")
"""The arguments of transforms that belong to a tensor."""

_PARALLEL = '@njit(parallel=True, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)'
_SERIAL = '@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)'
_SUMMING = '@njit(error_model="numpy", fastmath={"reassoc"})'  # of float64, in which nothing overflows


class Loops(NamedTuple):
    """The text of a kernel, and the parameters of its `launch`.

    Attributes:
        text: Python.
        parameters: those after `parts`, which are names of bindings: arrays of one dimension, except tables, which
            have a row for each entry. The table `tensor_scalars` is passed twice, as `words` (u32) and as `floats`; so
            is `transforms`, as `transform_words` and as `transform_floats`.
    """

    text: str
    parameters: tuple[str, ...]


def has_loops(slots: Mapping[str, str]) -> bool:
    """Return True if there is a loop for state with these kinds of storage."""
    return all(kind in _STATE_IN for kind in slots.values())


def sees_elements_alone(module: syntax.Module, function: str) -> bool:
    """Return True if a function of transforms uses no accumulated gradients, no indices and no rows."""
    return {*transform_lookup.parameters_of(module, function)} <= {"grad", "param", "tensor", "t", "on"}


def update(
    module: syntax.Module,
    function: str,
    slots: Mapping[str, str],
    changed: Mapping[str, str],
    negate: bool,
    param_kind: str = "",
) -> Loops:
    """Return the loops of ``update``, or of a function of the same form; arguments as in `update_shell.update`."""
    bound = [*_params(param_kind), *_bound(module, function, slots)]
    arrays = [_state(name) if name in slots else name for name in bound]
    values = _of_element(module, function, slots, negate, param_kind)
    lines = [f"updated = {_call(module, function, values)}"]
    for number, (name, kind) in enumerate(slots.items()):
        if name in changed:
            seed = f"np.uint32(steps * {len(slots)} + {number})"
            stored = _STATE_OUT[kind].format("", f"updated.state.{python_name(name)}", seed)
            lines.append(f"{_state(name)}[at] = {stored}")
    seed = f"np.uint32(steps * {len(slots) + 1} + {len(slots)})"
    lines += [line.format(seed=seed) for line in _PARAM_OUT[param_kind]]
    is_due = "words[tensor, 0] == 1" if function in STEP_PARTS else f"{_step(module)} != 0"
    rounds = "bfloat16" in changed.values() or param_kind == "stochastic"
    shared = [*(["first", "steps"] if rounds else []), *_shared(module, function)]
    elements = function_text("_elements", [*shared, *arrays], ["for at in range(params.size):", *indented(lines)])
    slices = [f"{name}[first:end]" for name in arrays]
    due = [*([f"steps = np.int64({_step(module)})"] if rounds else []), *_load_shared(module, function)]
    due.append(f"_elements({', '.join([*shared, *slices])})")
    body = _over_runs([f"if {is_due}:", *indented(due)])
    text = in_parts(module, elements, [*arrays, *_TABLES], body)
    return Loops(text, (*bound, *_TABLES))


def measure(module: syntax.Module, slots: Mapping[str, str], negate: bool, param_kind: str = "") -> Loops:
    """Return the loops of ``measure``, which sum it over each block."""
    function = "measure"
    bound = [*(_params(param_kind) if uses(module, function, "param") else []), *_bound(module, function, slots)]
    arrays = [_state(name) if name in slots else name for name in bound]
    values = _of_element(module, function, slots, negate, param_kind)
    lines = [f"measured = {_call(module, function, values)}"]
    load = _load_shared(module, function)
    return _summed(module, "Measured", bound, arrays, lines, _shared(module, function), load, "words[tensor, 0] == 1")


def measure_transform(module: syntax.Module, number: int, is_first: bool, width: int) -> Loops:
    """Return the loops of the measure of transform `number`; arguments as in `transform_shell.measure`.

    `width` is the number of words in a row of `tensor_scalars` that belong to the rule.
    """
    function = f"measure_transform_{number}"
    arrays = [*(["params"] if uses(module, function, "param") else []), "grads"]
    lines = [f"measured = {_call(module, function, _transform_arguments())}"]
    load, more = _load_transforms(module, width), []
    if is_first:  # `advance` runs later, and computes the same structs
        more = ["tensors", "transform_words", "transform_floats"]
        scale = "np.float32(1)"
        if transform_lookup.scales(module):
            more, scale = [*more, "scaler"], "scaler[0]"
        transforms = _transforms(module, "transform_words[{0}]", "transform_floats[{0}]", 0)
        load[0] = "on = tensors[tensor, 1]"
        load.append(f"t = begin_transforms(t, {transforms}, {scale}, np.float32(on & np.uint32(1)))")
    condition = f"({load[0].removeprefix('on = ')} & 1) != 0"
    return _summed(module, f"Partial{number}", arrays, arrays, lines, _BY_TRANSFORMS, load, condition, more)


def _summed(
    module: syntax.Module,
    struct: str,
    bound: Sequence[str],
    arrays: Sequence[str],
    lines: Sequence[str],
    shared: Sequence[str],
    load: Sequence[str],
    condition: str,
    more: Sequence[str] = (),
) -> Loops:
    """Return loops that sum a measure over each block.

    Args:
        module: the module with the functions.
        struct: the struct of the measure.
        bound: the bindings of elements.
        arrays: the names of these arrays in the text.
        lines: statements that assign `measured`, for the element `at`.
        shared: variables of the tensor that `lines` use.
        load: statements that assign these.
        condition: of the tensors that are measured.
        more: additional bindings that `load` uses.
    """
    names = [member.name for member in struct_of(module, struct).members]
    body = [f"total_{number} = {_nothing(name)}" for number, name in enumerate(names)]
    body += ["for at in range(size):", *indented([*lines, *_added(names, "measured.{0}")])]
    body += [f"partial[{number}] = total_{number}" for number in range(len(names))]
    elements = function_text("_elements", ["size", *shared, "partial", *arrays], body, _SUMMING)
    slices = [f"{name}[first:end]" for name in arrays]
    over = _over_blocks([
        "for column in range(partials.shape[1]):",
        "    partials[block, column] = 0",
        f"if {condition}:",
        *indented(load),
        f"    _elements({', '.join(['end - first', *shared, 'partials[block]', *slices])})",
    ])  # fmt: skip
    tables = [*_TABLES, *more, "partials"]
    return Loops(in_parts(module, elements, [*arrays, *tables], over), (*bound, *tables))


def advance(module: syntax.Module, checked: bool, over_all: bool) -> Loops:
    """Return the loop of ``advance`` over all tensors, without transforms; arguments as in `advance_shell.advance`."""
    hyper, scalars = _members(module, "Hyper"), _scalars(module)
    start = 1 + len(hyper)
    lines = [f"skip = {'found_inf[0] != 0' if checked else 'False'}", "for tensor in range(tensors.shape[0]):"]
    inner = [
        "group = tensors[tensor, 0]",
        f"is_active = 0 if skip else (1 if tensors[tensor, 1] != 0 else {2 if over_all else 0})",
        "if is_active != 0:",
    ]
    changes = [f"floats[tensor, {1 + number}] = hyper[group, {number}]" for number in range(len(hyper))]
    changes += [f"step = {_step(module)}"]
    if has_function(module, "advance"):
        changes += _load_shared(module, "advance")
        changes += [f"s_new = {_call(module, 'advance', {'h': 'h', 's': 's'})}"]
        changes += [f"floats[tensor, {start + n}] = s_new.{python_name(name)}" for n, name in enumerate(scalars)]
    else:
        changes += [f"{_step(module)} = step + np.float32(1)"]
    if over_all:
        changes += ["if is_active == 2:", f"    {_step(module)} = step"]
    lines += indented([*inner, *indented(changes), "words[tensor, 0] = is_active"])
    parameters = ["tensors", "hyper", "words", "floats"]
    if checked:
        parameters.append("found_inf")
        lines += ["if skip:", "    found_inf[1] += 1", "found_inf[0] = 0"]
    return _whole(module, parameters, lines)


def settle(module: syntax.Module, over_all: bool) -> Loops:
    """Return the loop of ``settle`` over all tensors."""
    start = 1 + len(_members(module, "Hyper"))
    values = {"h": "h", "s": "s", "measured": "measured", "size": "np.float32(tensors[tensor, 4])"}
    settled = [*_load_shared(module, "settle"), f"s_new = {_call(module, 'settle', values)}"]
    settled += [f"floats[tensor, {start + n}] = s_new.{python_name(name)}" for n, name in enumerate(_scalars(module))]
    return _settled(module, "Measured", over_all, "words[tensor, 0] != 0", settled)


def settle_transform(module: syntax.Module, number: int, over_all: bool, width: int) -> Loops:
    """Return the loop that settles a transform for all tensors; arguments as in `measure_transform`."""
    function = f"settle_transform_{number}"
    values = {"t": "t", "measured": "measured", "size": "np.float32(tensors[tensor, 4])"}
    settled = [*_load_transforms(module, width), f"t_new = {_call(module, function, values)}"]
    position = width + 1
    for member in struct_of(module, "Transforms").members:
        for field in struct_of(module, str(member.type)).members:
            array = "floats" if str(field.type) == "f32" else "words"
            settled.append(f"{array}[tensor, {position}] = t_new.{python_name(member.name)}.{python_name(field.name)}")
            position += 1
    return _settled(module, f"Partial{number}", over_all, f"(words[tensor, {width}] & 1) != 0", settled)


def _settled(module: syntax.Module, struct: str, over_all: bool, condition: str, settled: Sequence[str]) -> Loops:
    """Return the loop that runs `settled` for each tensor with the condition, with its sum or that over all tensors."""
    names = _members(module, struct)
    sums = [f"total_{number} = {_nothing(name)}" for number, name in enumerate(names)]
    sums += ["for block in range(first, end):"]
    sums += indented(_added(names, "partials[block, {1}]"))
    result = ", ".join(f"np.float32(total_{number})" for number in range(len(names)))
    sums += [f"return {struct}({result})"]
    total = function_text("_total", ["first", "end", "partials"], sums, _SUMMING)
    own = ["start = np.int64(tensors[tensor, 2])", "measured = _total(start, start + tensors[tensor, 3], partials)"]
    lines = ["measured = _total(0, partials.shape[0], partials)"] if over_all else []
    inner = [*([] if over_all else own), *settled]
    lines += ["for tensor in range(tensors.shape[0]):", f"    if {condition}:", *indented(inner, 2)]
    return _whole(module, ["tensors", "partials", "words", "floats"], lines, total)


# What the loops of rules share.


def _members(module: syntax.Module, struct: str) -> list[str]:
    return [member.name for member in struct_of(module, struct).members]


def _scalars(module: syntax.Module) -> list[str]:
    return _members(module, "Scalars") or ["step"]


def _step(module: syntax.Module) -> str:
    """Return the expression of the tensor's step count."""
    return f"floats[tensor, {1 + len(_members(module, 'Hyper')) + _scalars(module).index('step')}]"


def _params(kind: str) -> list[str]:
    """Return the arrays of parameters, and of the second values stored with them."""
    return ["params", *([SLOTS[kind]] if kind in SLOTS else [])]


def _bound(module: syntax.Module, function: str, slots: Mapping[str, str]) -> list[str]:
    """Return the arrays of which a function reads elements, besides parameters."""
    grads = ["grads"] if uses(module, function, "grad") else []
    return grads + (list(slots) if uses(module, function, "state") else [])


def _of_element(
    module: syntax.Module, function: str, slots: Mapping[str, str], negate: bool, param_kind: str
) -> dict[str, str]:
    state = (
        _STATE_IN[slots[name]].format(_state(name)) if name in slots else "np.float32(0)"
        for name in _members(module, "State")
    )
    grad = "grads[at]"
    if _is_transformed(module, function):
        grad = _call(module, "transform_gradient", _transform_arguments())
    return {
        "param": _PARAM_IN[param_kind],
        "grad": f"-{grad}" if negate else grad,
        "state": f"State({', '.join(state)})",
        "h": "h",
        "s": "s",
    }


def _is_transformed(module: syntax.Module, function: str) -> bool:
    """Return True if a function uses a gradient that transforms compute."""
    return transform_lookup.has_transforms(module) and uses(module, function, "grad")


def _transform_arguments() -> dict[str, str]:
    return {"grad": "grads[at]", "param": "params[at]", **{name: name for name in _BY_TRANSFORMS}}


def _transforms(module: syntax.Module, word: str, number: str, start: int) -> str:
    """Return the struct of all transforms, read from word `first` on: `word` reads a u32, `number` an f32."""
    position, values = start, []
    for member in struct_of(module, "Transforms").members:
        members = struct_of(module, str(member.type)).members
        read = [
            (number if str(field.type) == "f32" else word).format(position + at) for at, field in enumerate(members)
        ]
        values.append(f"{member.type}({', '.join(read)})")
        position += len(members)
    return f"Transforms({', '.join(values)})"


def _load_transforms(module: syntax.Module, width: int) -> list[str]:
    """Return statements that assign the tensor's `on` and `t`."""
    t = _transforms(module, "words[tensor, {0}]", "floats[tensor, {0}]", width + 1)
    return [f"on = words[tensor, {width}]", f"t = {t}"]


def _shared(module: syntax.Module, function: str) -> list[str]:
    names = [name for name in ("h", "s") if uses(module, function, name)]
    return [*names, *(_BY_TRANSFORMS if _is_transformed(module, function) else ())]


def _load_shared(module: syntax.Module, function: str) -> list[str]:
    """Return statements that assign the tensor's variables that `_shared` names."""
    hyper = _members(module, "Hyper")
    firsts = {"h": ("Hyper", 1, hyper), "s": ("Scalars", 1 + len(hyper), _scalars(module))}
    lines = []
    if _is_transformed(module, function):
        lines = _load_transforms(module, 1 + len(hyper) + len(_scalars(module)))
    for name in firsts:
        if not uses(module, function, name):
            continue
        struct, start, members = firsts[name]
        values = ", ".join(f"floats[tensor, {start + number}]" for number in range(len(members)))
        lines.append(f"{name} = {struct}({values})")
    return lines


def _call(module: syntax.Module, function: str, values: Mapping[str, str]) -> str:
    arguments = ", ".join(values[name] for name in arguments_of(module, function, values))
    return f"{python_name(function)}({arguments})"


def _nothing(name: str) -> str:
    return "np.float32(0)" if name.startswith(rule_shell.MAXIMUM) else "0.0"


def _added(names: Sequence[str], value: str) -> list[str]:
    """Return statements that add a measure to the totals. The maximum of values with a NaN is NaN."""
    lines = []
    for number, name in enumerate(names):
        term = value.format(python_name(name), number)
        if name.startswith(rule_shell.MAXIMUM):
            lines += [
                f"one = {term}",
                f"total_{number} = one if (one > total_{number}) | (one != one) else total_{number}",
            ]
        else:
            lines.append(f"total_{number} += {term}")
    return lines


def _over_blocks(body: Iterable[str]) -> list[str]:
    return [
        "count = blocks.shape[0]",
        "for block in range(count * number // parts, count * (number + 1) // parts):",
        "    tensor = blocks[block, 0]",
        f"    first = block * {BLOCK}",
        "    end = first + np.int64(blocks[block, 1])",
        *indented(body),
    ]


def _over_runs(body: Iterable[str]) -> list[str]:
    """Return a loop over sequences of blocks of one tensor, of which only the last may be incomplete."""
    return [
        "block = blocks.shape[0] * number // parts",
        "stop = blocks.shape[0] * (number + 1) // parts",
        "while block < stop:",
        "    tensor = blocks[block, 0]",
        f"    first = block * {BLOCK}",
        "    while block < stop and blocks[block, 0] == tensor:",
        f"        end = block * {BLOCK} + np.int64(blocks[block, 1])",
        "        block += 1",
        *indented(body),
    ]


def indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Return the lines with the indentation of so many more levels."""
    return ["    " * levels + line for line in lines]


def function_text(name: str, parameters: Sequence[str], body: Iterable[str], decorator: str = "@_compiled") -> str:
    """Return the text of a function."""
    lines = "\n".join(indented(body))
    return f"\n\n{decorator}\ndef {name}({', '.join(parameters)}):\n{lines}\n"


def _state(slot: str) -> str:
    """Return the name of the array of a slot in a text."""
    return f"state_{python_name(slot)}"


def in_parts(module: syntax.Module, elements: str, parameters: Sequence[str], body: Sequence[str]) -> str:
    """Return the text of a kernel whose `part`, the body, calls the function `elements`; see the module."""
    part = function_text("part", ["number", "parts", *parameters], body, _SERIAL)
    loop = ["for number in prange(parts):", f"    part(number, parts, {', '.join(parameters)})"]
    return (
        print_python(module, NUMBA) + elements + part + function_text("launch", ["parts", *parameters], loop, _PARALLEL)
    )


def _whole(module: syntax.Module, parameters: Sequence[str], body: Sequence[str], before: str = "") -> Loops:
    text = print_python(module, NUMBA) + before + function_text("launch", parameters, body, _SERIAL)
    return Loops(text, tuple(parameters))

"""The generated part of a kernel for Numba: loops over arrays, which call its map functions.

To the functions as `print_python` prints them each text adds `launch(parts, …)`: it splits the work among so many
threads (`prange`), each of which runs `part(number, parts, …)`; for little work, or where threads cannot be used,
`part(0, 1, …)` does all of it. What works on a row for each tensor has a `launch` without parts alone.

A tensor is looked up once for each run of its blocks. The loop over its elements is a function of its own over slices,
which begin at 0, so that LLVM sees contiguous arrays and turns it into the processor's vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from . import rule_shell, syntax, transform_lookup
from .fused_shell import Argument, Fused
from .param_storage import SLOTS
from .print_python import print_python, python_name
from .rule_shell import STEP_PARTS, arguments_of, has_function, uses
from .shell import BLOCK, struct_of

__all__ = [
    "Loops",
    "advance",
    "has_loops",
    "measure",
    "measure_transform",
    "sees_elements_alone",
    "settle",
    "update",
    "walk",
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
"""What transforms are given of a tensor."""

_PARALLEL = '@njit(parallel=True, cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)'
_SERIAL = '@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)'
_SUMMING = '@njit(error_model="numpy", fastmath={"reassoc"})'  # of float64, in which nothing overflows

_ROW = """

@_compiled
def _copy_row(values, first, step, rows, start, size):
    if step == 1:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first + np.uint64(at)]
    elif step == 0:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first]
    else:
        for at in range(size):
            rows[start + np.uint64(at)] = values[first + np.uint64(at) * step]
"""
"""Rows of strided views are copied, so that the loop over elements sees contiguous arrays and is vectorized."""

_AT_ONCE = 1024
"""Elements of short rows that one loop goes over: its beginning takes as long as dozens of elements."""


class Loops(NamedTuple):
    """A text, and what its `launch` takes.

    Attributes:
        text: Python.
        given: names of bindings: arrays of one dimension, but for tables, which have a row for each entry. The table
            `tensor_scalars` is given twice, as `words` (u32) and as `floats`; so is `transforms`, as `given_words` and
            as `given_floats`.
    """

    text: str
    given: tuple[str, ...]


def has_loops(slots: Mapping[str, str]) -> bool:
    """Whether there is a loop for state that is stored so."""
    return all(kind in _STATE_IN for kind in slots.values())


def sees_elements_alone(module: syntax.Module, function: str) -> bool:
    """Whether a function of transforms asks for nothing that is kept, counted or of a row."""
    return {*transform_lookup.parameters_of(module, function)} <= {"grad", "param", "tensor", "t", "on"}


def update(
    module: syntax.Module,
    function: str,
    slots: Mapping[str, str],
    changed: Mapping[str, str],
    negate: bool,
    param_kind: str = "",
) -> Loops:
    """The loops of an optimizer's ``update``, or of a part of that form; arguments as of `update_shell.update`."""
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
    elements = _function("_elements", [*shared, *arrays], ["for at in range(params.size):", *_indented(lines)])
    slices = [f"{one}[first:end]" for one in arrays]
    due = [*([f"steps = np.int64({_step(module)})"] if rounds else []), *_load_shared(module, function)]
    due.append(f"_elements({', '.join([*shared, *slices])})")
    body = _over_runs([f"if {is_due}:", *_indented(due)])
    text = _in_parts(module, elements, [*arrays, *_TABLES], body)
    return Loops(text, (*bound, *_TABLES))


def measure(module: syntax.Module, slots: Mapping[str, str], negate: bool, param_kind: str = "") -> Loops:
    """The loops of ``measure``: its sum over each block."""
    function = "measure"
    bound = [*(_params(param_kind) if uses(module, function, "param") else []), *_bound(module, function, slots)]
    arrays = [_state(name) if name in slots else name for name in bound]
    values = _of_element(module, function, slots, negate, param_kind)
    lines = [f"measured = {_call(module, function, values)}"]
    load = _load_shared(module, function)
    return _summed(module, "Measured", bound, arrays, lines, _shared(module, function), load, "words[tensor, 0] == 1")


def measure_transform(module: syntax.Module, number: int, is_first: bool, width: int) -> Loops:
    """The loops of what transform `number` measures; arguments as of `transform_shell.measure`.

    `width` is how many words of a row of `tensor_scalars` are the rule's own.
    """
    function = f"measure_transform_{number}"
    arrays = [*(["params"] if uses(module, function, "param") else []), "grads"]
    lines = [f"measured = {_call(module, function, _given_to_transforms())}"]
    load, more = _load_transforms(module, width), []
    if is_first:  # `advance` has not begun them, and will do the same
        more = ["tensors", "given_words", "given_floats"]
        scale = "np.float32(1)"
        if transform_lookup.scales(module):
            more, scale = [*more, "scaler"], "scaler[0]"
        given = _transforms(module, "given_words[{0}]", "given_floats[{0}]", 0)
        load[0] = "on = tensors[tensor, 1]"
        load.append(f"t = begin_transforms(t, {given}, {scale}, np.float32(on & np.uint32(1)))")
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
    """The sum of a measure over each block.

    Args:
        module: has the functions.
        struct: of the measure.
        bound: arrays of elements.
        arrays: what they are called.
        lines: end in `measured`, of the element `at`.
        shared: what these need of the tensor.
        load: what loads it.
        condition: under which the tensor takes part.
        more: what `load` needs besides.
    """
    names = [one.name for one in struct_of(module, struct).members]
    body = [f"total_{number} = {_nothing(name)}" for number, name in enumerate(names)]
    body += ["for at in range(size):", *_indented([*lines, *_added(names, "measured.{0}")])]
    body += [f"partial[{number}] = total_{number}" for number in range(len(names))]
    elements = _function("_elements", ["size", *shared, "partial", *arrays], body, _SUMMING)
    slices = [f"{one}[first:end]" for one in arrays]
    over = _over_blocks([
        "for column in range(partials.shape[1]):",
        "    partials[block, column] = 0",
        f"if {condition}:",
        *_indented(load),
        f"    _elements({', '.join(['end - first', *shared, 'partials[block]', *slices])})",
    ])  # fmt: skip
    given = [*_TABLES, *more, "partials"]
    return Loops(_in_parts(module, elements, [*arrays, *given], over), (*bound, *given))


def advance(module: syntax.Module, checked: bool, over_all: bool) -> Loops:
    """The loop of ``advance`` over all tensors, without transforms; arguments as of `advance_shell.advance`."""
    hyper, scalars = _members(module, "Hyper"), _scalars(module)
    first = 1 + len(hyper)
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
        changes += [f"floats[tensor, {first + n}] = s_new.{python_name(name)}" for n, name in enumerate(scalars)]
    else:
        changes += [f"{_step(module)} = step + np.float32(1)"]
    if over_all:
        changes += ["if is_active == 2:", f"    {_step(module)} = step"]
    lines += _indented([*inner, *_indented(changes), "words[tensor, 0] = is_active"])
    given = ["tensors", "hyper", "words", "floats"]
    if checked:
        given.append("found_inf")
        lines += ["if skip:", "    found_inf[1] += 1", "found_inf[0] = 0"]
    return _whole(module, given, lines)


def settle(module: syntax.Module, over_all: bool) -> Loops:
    """The loop of ``settle`` over all tensors."""
    first = 1 + len(_members(module, "Hyper"))
    values = {"h": "h", "s": "s", "measured": "measured", "size": "np.float32(tensors[tensor, 4])"}
    settled = [*_load_shared(module, "settle"), f"s_new = {_call(module, 'settle', values)}"]
    settled += [f"floats[tensor, {first + n}] = s_new.{python_name(name)}" for n, name in enumerate(_scalars(module))]
    return _settled(module, "Measured", over_all, "words[tensor, 0] != 0", settled)


def settle_transform(module: syntax.Module, number: int, over_all: bool, width: int) -> Loops:
    """The loop of what follows from a transform's measure; arguments as of `measure_transform`."""
    function = f"settle_transform_{number}"
    values = {"t": "t", "measured": "measured", "size": "np.float32(tensors[tensor, 4])"}
    settled = [*_load_transforms(module, width), f"t_new = {_call(module, function, values)}"]
    place = width + 1
    for one in struct_of(module, "Transforms").members:
        for its in struct_of(module, str(one.type)).members:
            array = "floats" if str(its.type) == "f32" else "words"
            settled.append(f"{array}[tensor, {place}] = t_new.{python_name(one.name)}.{python_name(its.name)}")
            place += 1
    return _settled(module, f"Partial{number}", over_all, f"(words[tensor, {width}] & 1) != 0", settled)


def _settled(module: syntax.Module, struct: str, over_all: bool, condition: str, settled: Sequence[str]) -> Loops:
    """What follows from a measure, under a condition, of each tensor: of its own sum, or of that over all."""
    names = _members(module, struct)
    sums = [f"total_{number} = {_nothing(name)}" for number, name in enumerate(names)]
    sums += ["for block in range(first, end):"]
    sums += _indented(_added(names, "partials[block, {1}]"))
    result = ", ".join(f"np.float32(total_{number})" for number in range(len(names)))
    sums += [f"return {struct}({result})"]
    total = _function("_total", ["first", "end", "partials"], sums, _SUMMING)
    own = ["start = np.int64(tensors[tensor, 2])", "measured = _total(start, start + tensors[tensor, 3], partials)"]
    lines = ["measured = _total(0, partials.shape[0], partials)"] if over_all else []
    inner = [*([] if over_all else own), *settled]
    lines += ["for tensor in range(tensors.shape[0]):", f"    if {condition}:", *_indented(inner, 2)]
    return _whole(module, ["tensors", "partials", "words", "floats"], lines, total)


def walk(module: syntax.Module, fused: Fused) -> Loops:
    """The loops of map functions one after the other.

    `launch` takes after the number of parts `walk` (u64), `size`, the scalars, the tensors and the outputs. `walk`
    holds the sizes of the axes, then of each tensor that is not flat where it begins and its steps along the axes.
    """
    tensors = [f"x{number}_values" for number in range(len(fused.tensor_types))]
    outputs = [f"y{number}_values" for number in range(len(fused.outputs))]
    scalars = [f"s{number}" for number in range(len(fused.scalar_types))]
    walked = [number for number, is_flat in enumerate(fused.flat) if not is_flat and fused.rank]
    lines = [f"x{n} = {name}[at]" for n, name in enumerate(tensors)]
    for number, step in enumerate(fused.steps):
        call = f"{python_name(step.function)}({', '.join(map(_argument, step.arguments))})"
        lines.append(f"t{number} = {f'np.uint32({call})' if step.returns_bool else call}")
    lines += [f"{name}[at] = {_argument(one)}" for name, one in zip(outputs, fused.outputs, strict=True)]
    given = ["first", "size", *scalars, *tensors, *outputs]
    elements = _function("_elements", given, ["for at in range(size):", *_indented(lines)])
    elements += _ROW if walked else ""

    def sliced(first: str, end: str) -> str:
        rows_of = {f"x{number}_values": f"x{number}_rows" for number in walked}
        return ", ".join([*scalars, *(rows_of.get(one, f"{one}[{first}:{end}]") for one in (*tensors, *outputs))])

    if not fused.rank:
        body = [
            "first = size * number // parts",
            "end = size * (number + 1) // parts",
            f"_elements(first, end - first, {sliced('first', 'end')})",
        ]
    else:
        rank = fused.rank
        copied = ["rest = np.uint64(first + row)"]
        for axis in reversed(range(rank - 1)):
            copied += [f"at{axis} = rest % walk[{axis}]", f"rest = rest // walk[{axis}]"]
        for order, number in enumerate(walked):
            start = rank + order * (rank + 1)
            terms = "".join(f" + at{axis} * walk[{start + 1 + axis}]" for axis in range(rank - 1))
            place = f"walk[{start}]{terms}, walk[{start + rank}]"
            copied.append(f"_copy_row(x{number}_values, {place}, x{number}_rows, np.uint64(row * inner), inner)")
        call = ", ".join(["first * inner", "count * inner", sliced("first * inner", "(first + count) * inner")])
        body = [
            f"inner = np.int64(walk[{rank - 1}])",
            "rows = size // inner",
            f"at_once = max(1, {_AT_ONCE} // inner)",
            *(f"x{number}_rows = np.empty(at_once * inner, x{number}_values.dtype)" for number in walked),
            "end = rows * (number + 1) // parts",
            "for first in range(rows * number // parts, end, at_once):",
            "    count = min(at_once, end - first)",
            "    for row in range(count):",
            *_indented(copied, 2),
            f"    _elements({call})",
        ]
    text = _in_parts(module, elements, ["walk", "size", *scalars, *tensors, *outputs], body)
    return Loops(text, ())


def _argument(one: Argument) -> str:
    kind, number = one
    names = {"tensor": f"x{number}", "scalar": f"s{number}", "step": f"t{number}", "old": f"y{number}_values[at]"}
    return names.get(kind, "np.uint32(first + at)")


# What the loops of rules share.


def _members(module: syntax.Module, struct: str) -> list[str]:
    return [one.name for one in struct_of(module, struct).members]


def _scalars(module: syntax.Module) -> list[str]:
    return _members(module, "Scalars") or ["step"]


def _step(module: syntax.Module) -> str:
    """The tensor's step count."""
    return f"floats[tensor, {1 + len(_members(module, 'Hyper')) + _scalars(module).index('step')}]"


def _params(kind: str) -> list[str]:
    """The arrays of parameters, and of what lies beside them."""
    return ["params", *([SLOTS[kind]] if kind in SLOTS else [])]


def _bound(module: syntax.Module, function: str, slots: Mapping[str, str]) -> list[str]:
    """The arrays that a function reads elements of, besides parameters."""
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
        grad = _call(module, "transform_gradient", _given_to_transforms())
    return {
        "param": _PARAM_IN[param_kind],
        "grad": f"-{grad}" if negate else grad,
        "state": f"State({', '.join(state)})",
        "h": "h",
        "s": "s",
    }


def _is_transformed(module: syntax.Module, function: str) -> bool:
    """Whether a function is given a gradient that transforms have made."""
    return transform_lookup.has_transforms(module) and uses(module, function, "grad")


def _given_to_transforms() -> dict[str, str]:
    return {"grad": "grads[at]", "param": "params[at]", **{name: name for name in _BY_TRANSFORMS}}


def _transforms(module: syntax.Module, word: str, number: str, first: int) -> str:
    """The struct of all transforms, of words from the first on: `word` reads a u32, `number` an f32."""
    place, values = first, []
    for one in struct_of(module, "Transforms").members:
        members = struct_of(module, str(one.type)).members
        read = [(number if str(its.type) == "f32" else word).format(place + at) for at, its in enumerate(members)]
        values.append(f"{one.type}({', '.join(read)})")
        place += len(members)
    return f"Transforms({', '.join(values)})"


def _load_transforms(module: syntax.Module, width: int) -> list[str]:
    """Statements after which `on` and `t` are those of the tensor."""
    t = _transforms(module, "words[tensor, {0}]", "floats[tensor, {0}]", width + 1)
    return [f"on = words[tensor, {width}]", f"t = {t}"]


def _shared(module: syntax.Module, function: str) -> list[str]:
    names = [name for name in ("h", "s") if uses(module, function, name)]
    return [*names, *(_BY_TRANSFORMS if _is_transformed(module, function) else ())]


def _load_shared(module: syntax.Module, function: str) -> list[str]:
    """Statements after which what `_shared` names is that of the tensor."""
    hyper = _members(module, "Hyper")
    firsts = {"h": ("Hyper", 1, hyper), "s": ("Scalars", 1 + len(hyper), _scalars(module))}
    lines = []
    if _is_transformed(module, function):
        lines = _load_transforms(module, 1 + len(hyper) + len(_scalars(module)))
    for name in firsts:
        if not uses(module, function, name):
            continue
        struct, first, members = firsts[name]
        values = ", ".join(f"floats[tensor, {first + number}]" for number in range(len(members)))
        lines.append(f"{name} = {struct}({values})")
    return lines


def _call(module: syntax.Module, function: str, values: Mapping[str, str]) -> str:
    given = ", ".join(values[name] for name in arguments_of(module, function, values))
    return f"{python_name(function)}({given})"


def _nothing(name: str) -> str:
    return "np.float32(0)" if name.startswith(rule_shell.MAXIMUM) else "0.0"


def _added(names: Sequence[str], value: str) -> list[str]:
    """Statements that add a measure to the totals. Of what is not a number the largest is none either."""
    lines = []
    for number, name in enumerate(names):
        one = value.format(python_name(name), number)
        if name.startswith(rule_shell.MAXIMUM):
            lines += [
                f"one = {one}",
                f"total_{number} = one if (one > total_{number}) | (one != one) else total_{number}",
            ]
        else:
            lines.append(f"total_{number} += {one}")
    return lines


def _over_blocks(body: Iterable[str]) -> list[str]:
    return [
        "count = blocks.shape[0]",
        "for block in range(count * number // parts, count * (number + 1) // parts):",
        "    tensor = blocks[block, 0]",
        f"    first = block * {BLOCK}",
        "    end = first + np.int64(blocks[block, 1])",
        *_indented(body),
    ]


def _over_runs(body: Iterable[str]) -> list[str]:
    """A loop over the runs of blocks of one tensor: of a tensor only the last block is not full."""
    return [
        "block = blocks.shape[0] * number // parts",
        "stop = blocks.shape[0] * (number + 1) // parts",
        "while block < stop:",
        "    tensor = blocks[block, 0]",
        f"    first = block * {BLOCK}",
        "    while block < stop and blocks[block, 0] == tensor:",
        f"        end = block * {BLOCK} + np.int64(blocks[block, 1])",
        "        block += 1",
        *_indented(body),
    ]


def _indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]


def _function(name: str, given: Sequence[str], body: Iterable[str], decorator: str = "@_compiled") -> str:
    lines = "\n".join(_indented(body))
    return f"\n\n{decorator}\ndef {name}({', '.join(given)}):\n{lines}\n"


def _state(slot: str) -> str:
    """What the array of a slot is called in a text."""
    return f"state_{python_name(slot)}"


def _in_parts(module: syntax.Module, elements: str, given: Sequence[str], body: Sequence[str]) -> str:
    part = _function("part", ["number", "parts", *given], body, _SERIAL)
    loop = ["for number in prange(parts):", f"    part(number, parts, {', '.join(given)})"]
    return print_python(module, "numba") + elements + part + _function("launch", ["parts", *given], loop, _PARALLEL)


def _whole(module: syntax.Module, given: Sequence[str], body: Sequence[str], before: str = "") -> Loops:
    text = print_python(module, "numba") + before + _function("launch", given, body, _SERIAL)
    return Loops(text, tuple(given))

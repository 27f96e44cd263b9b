"""How the kernels of a rule get the gradient that its transforms make: what they bind and load besides.

A module has transforms if `transform_glue` gave it a struct ``Transforms``. `update` and `measure` then see what comes
out of ``transform_gradient``; the buffers that they may need for it:

    kept      what was gathered since the last step, laid out like the arena; `update` writes it
    block_places  for each block which one of its tensor it is, and where the tensor's rows are counted from
    rowsN     what transform number N gives of each row
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import syntax
from .shell import BLOCK, function_of, struct_of

__all__ = [
    "BAD",
    "PLACE",
    "PLACE_WORDS",
    "advance_bindings",
    "begin",
    "bindings",
    "call",
    "gathers",
    "grad_lines",
    "grad_of_row",
    "has_transforms",
    "is_left_alone",
    "loads",
    "note_skip",
    "parameters_of",
    "rule_bindings",
    "scales",
    "stores",
    "tables",
    "takes_part",
]

BAD = "max_bad"
"""The member of each transform's measures that is not 0 if a gradient is not finite."""

_SCALARS = "struct TensorScalars { is_active: u32, h: Hyper, s: Scalars }"
_WITH_TRANSFORMS = """\
// `on`: bit 0 is set where the tensor has a gradient at this call, bit 1 + N where transform N applies to it, the last
// one for every tensor of the optimizer; all are zero in a call that is left out.
struct TensorScalars { is_active: u32, h: Hyper, s: Scalars, on: u32, t: Transforms }"""

PLACE = """
// One per block: which one of its tensor it is, the number of the tensor's first row, and the length of its rows.
struct BlockPlace { block: u32, first_row: u32, row_size: u32 }
"""
PLACE_WORDS = 3

_VECTOR = "array<vec4<f32>>"


def has_transforms(module: syntax.Module) -> bool:
    """Whether the module was joined to transforms."""
    return bool(struct_of(module, "Transforms").members)


def gathers(module: syntax.Module) -> bool:
    """Whether gradients are accumulated."""
    return any(str(one.type) == "Accumulate" for one in struct_of(module, "Transforms").members)


def stores(module: syntax.Module) -> bool:
    """Whether the kernel of this module writes what is gathered."""
    return any(isinstance(one, syntax.Function) and one.name == "gather_gradient" for one in module.declarations)


def parameters_of(module: syntax.Module, function: str) -> list[str]:
    """The names of a function's parameters."""
    return [one.name for one in function_of(module, function).parameters]


def tables(text: str, module: syntax.Module) -> str:
    """The tables of a rule, with what its transforms have for each tensor."""
    if not has_transforms(module):
        return text
    assert _SCALARS in text
    return text.replace(_SCALARS, _WITH_TRANSFORMS) + PLACE


def takes_part(module: syntax.Module, on: str) -> str:
    """The condition under which transforms see a tensor: it has a gradient, or may have kept one."""
    return f"{on} != 0u" if gathers(module) else f"({on} & 1u) != 0u"


def is_left_alone(module: syntax.Module, otherwise: str) -> str:
    """The condition under which a part of a step passes a tensor over."""
    return f"{otherwise} && (its.on & 1u) == 0u" if stores(module) else otherwise


def bindings(module: syntax.Module, functions: Sequence[str]) -> list[tuple[str, str, str]]:
    """What is bound besides for these functions."""
    names = {name for function in functions for name in parameters_of(module, function)}
    rows = sorted(name for name in names if re.fullmatch(r"row\d+", name))
    bound = []
    if "kept" in names:
        bound.append(("kept", "read_write" if stores(module) else "read", _VECTOR))
    if rows or "index" in names:
        bound.append(("block_places", "read", "array<BlockPlace>"))
    return [*bound, *((f"rows{one.removeprefix('row')}", "read", "array<f32>") for one in rows)]


def _functions(module: syntax.Module) -> list[str]:
    return ["gather_gradient", "finish_gradient"] if stores(module) else ["transform_gradient"]


def rule_bindings(module: syntax.Module) -> list[tuple[str, str, str]]:
    """What a kernel of a function of the rule binds for its gradient."""
    return bindings(module, _functions(module)) if has_transforms(module) else []


def loads(module: syntax.Module, functions: Sequence[str]) -> list[str]:
    """Statements that load what these functions are given of a vector of elements."""
    names = {name for function in functions for name in parameters_of(module, function)}
    lines = ["let raw = grads[at];"]
    if "kept" in names:
        lines.append("let old_kept = kept[at];")
    rows = any(name.startswith("row") for name in names)
    if rows or "index" in names:
        lines.append("let place = block_places[number];")
        lines.append(f"let position = vec4<u32>(place.block * {BLOCK}u + vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u);")
    if rows:
        lines.append("let row = vec4<u32>(place.first_row) + position / vec4<u32>(place.row_size);")
    return lines


def call(module: syntax.Module, function: str, lane: str, grad: str, t: str, on: str) -> str:
    """A function of the glue, for one of the four elements."""
    values = {
        "grad": f"{grad}.{lane}", "param": f"param.{lane}", "kept": f"old_kept.{lane}", "index": f"position.{lane}",
        "tensor": "block.tensor", "t": t, "on": on,
    }  # fmt: skip
    arguments = [
        values.get(one, f"rows{one.removeprefix('row')}[row.{lane}]") for one in parameters_of(module, function)
    ]
    return f"{function}({', '.join(arguments)})"


def _calls(module: syntax.Module, function: str, grad: str) -> str:
    """The four results of a function of the glue, as a vector."""
    return f"vec4<f32>({', '.join(call(module, function, lane, grad, 'its.t', 'its.on') for lane in 'xyzw')})"


def grad_lines(module: syntax.Module, negate: bool) -> list[str]:
    """Statements that end in ``let grad``, for a kernel of a function of the rule; `param` is loaded."""
    sign = "-" if negate else ""
    if not has_transforms(module):
        return [f"let grad = {sign}grads[at];"]
    lines = loads(module, _functions(module))
    if not stores(module):
        return [*lines, f"let grad = {sign}{_calls(module, 'transform_gradient', 'raw')};"]
    return [
        *lines,
        f"let gathered = {_calls(module, 'gather_gradient', 'raw')};",
        "if its.is_active != 1u {",
        "    kept[at] = select(vec4<f32>(0.0), gathered, is_inside);",
        "    continue;",
        "}",
        "kept[at] = vec4<f32>(0.0);",
        f"let grad = {sign}{_calls(module, 'finish_gradient', 'gathered')};",
    ]


def grad_of_row(module: syntax.Module) -> str:
    """The gradient of the element with number `index` of its tensor, of which only some rows have one."""
    if not has_transforms(module):
        return "sums[value]"
    values = {
        "grad": "sums[value]", "param": "params[at]", "index": "index", "tensor": "parameters.tensor",
        "t": "its.t", "on": "its.on",
    }  # fmt: skip
    place = "block_places[parameters.block]"
    arguments = [
        values.get(one, f"rows{one.removeprefix('row')}[{place}.first_row + index / {place}.row_size]")
        for one in parameters_of(module, "transform_gradient")
    ]
    return f"transform_gradient({', '.join(arguments)})"


# advance.


def scales(module: syntax.Module) -> bool:
    """Whether the gradients are those of a scaled loss."""
    return any(str(one.type) == "Unscale" for one in struct_of(module, "Transforms").members)


def advance_bindings(module: syntax.Module, measured: int | None) -> list[tuple[str, str, str]]:
    """What `advance` binds besides; `measured` is the transform that has measured already."""
    if not has_transforms(module):
        return []
    return [
        ("transforms", "read", "array<Transforms>"),
        *([("scaler", "read_write", "array<f32>")] if scales(module) else []),
        *([("partials", "read", f"array<Partial{measured}>")] if measured is not None else []),
    ]


def note_skip(module: syntax.Module) -> str:
    """The statement that tells the scaler of the loss that a step is left out."""
    return "\n        scaler[1] = 1.0;" if scales(module) else ""


def begin(module: syntax.Module, rest: int, settled: int | None) -> str:
    """Statements that end in ``let is_active``: 1 where this step is the tensor's, `rest` where only others take it."""
    if not has_transforms(module):
        return f"let is_active = select(select({rest}u, 1u, tensors[tensor].live != 0u), 0u, skip);"
    size = "f32(tensors[tensor].size)"
    settle = f"t = settle_transform_{settled}(t, measured, {size});" if settled is not None else ""
    return f"""let on = select(tensors[tensor].live, 0u, skip);
        var t = tensor_scalars[tensor].t;
        if !skip {{
            t = begin_transforms(t, transforms[0], {"scaler[0]" if scales(module) else "1.0"}, f32(on & 1u));
            {settle}
        }}
        tensor_scalars[tensor].on = on;
        tensor_scalars[tensor].t = t;
        let is_active = select(activity(t, on, {rest}u), 0u, skip);"""

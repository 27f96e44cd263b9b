"""The generated code by which a rule's kernels transform gradients: additional bindings and loads.

A module has transforms if `transform_glue` added a struct ``Transforms``. The gradient in `update` and `measure` is
then the result of ``transform_gradient``, which may need these buffers:

    kept           the gradients accumulated since the last step, in the layout of the arena; `update` writes them
    block_entries  for each block its index in its tensor, the index of the tensor's first row, and the length of rows
    rowsN          the result of transform N for each row
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import syntax
from .shell import BLOCK, function_of, struct_of

__all__ = [
    "BAD",
    "BLOCK_ENTRY",
    "BLOCK_ENTRY_WORDS",
    "advance_bindings",
    "begin",
    "bindings",
    "call",
    "gathers",
    "grad_lines",
    "grad_of_row",
    "has_transforms",
    "is_skipped",
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
"""The member of every transform's measure that is not 0 if a gradient is not finite."""

_SCALARS = "struct TensorScalars { is_active: u32, h: Hyper, s: Scalars }"
_WITH_TRANSFORMS = """\
// `on`: bit 0 is set if the tensor has a gradient at this call, bit 1 + N if transform N applies to it, the last one
// for every tensor of the optimizer; all are zero in a call that is skipped.
struct TensorScalars { is_active: u32, h: Hyper, s: Scalars, on: u32, t: Transforms }"""

BLOCK_ENTRY = """
// One per block: the index of the block in its tensor, the index of the tensor's first row, and the length of its rows.
struct BlockEntry { block: u32, first_row: u32, row_size: u32 }
"""
BLOCK_ENTRY_WORDS = 3

_VECTOR = "array<vec4<f32>>"


def has_transforms(module: syntax.Module) -> bool:
    """Return True if the module was joined to transforms."""
    return bool(struct_of(module, "Transforms").members)


def gathers(module: syntax.Module) -> bool:
    """Return True if gradients are accumulated over several calls."""
    return any(str(member.type) == "Accumulate" for member in struct_of(module, "Transforms").members)


def stores(module: syntax.Module) -> bool:
    """Return True if the kernel of this module writes the accumulated gradients."""
    return any(
        isinstance(declaration, syntax.Function) and declaration.name == "gather_gradient"
        for declaration in module.declarations
    )


def parameters_of(module: syntax.Module, function: str) -> list[str]:
    """Return the names of a function's parameters."""
    return [parameter.name for parameter in function_of(module, function).parameters]


def tables(text: str, module: syntax.Module) -> str:
    """Return the tables of a rule, with the members that its transforms need for each tensor."""
    if not has_transforms(module):
        return text
    assert _SCALARS in text
    return text.replace(_SCALARS, _WITH_TRANSFORMS) + BLOCK_ENTRY


def takes_part(module: syntax.Module, on: str) -> str:
    """Return the condition for transforms to use a tensor: it has a gradient, or may have an accumulated one."""
    return f"{on} != 0u" if gathers(module) else f"({on} & 1u) != 0u"


def is_skipped(module: syntax.Module, otherwise: str) -> str:
    """Return the condition for a function of a step to skip a tensor; `otherwise` is that without accumulation."""
    return f"{otherwise} && (its.on & 1u) == 0u" if stores(module) else otherwise


def bindings(module: syntax.Module, functions: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the additional bindings for these functions."""
    names = {name for function in functions for name in parameters_of(module, function)}
    rows = sorted(name for name in names if re.fullmatch(r"row\d+", name))
    bound = []
    if "kept" in names:
        bound.append(("kept", "read_write" if stores(module) else "read", _VECTOR))
    if rows or "index" in names:
        bound.append(("block_entries", "read", "array<BlockEntry>"))
    return [*bound, *((f"rows{row.removeprefix('row')}", "read", "array<f32>") for row in rows)]


def _functions(module: syntax.Module) -> list[str]:
    return ["gather_gradient", "finish_gradient"] if stores(module) else ["transform_gradient"]


def rule_bindings(module: syntax.Module) -> list[tuple[str, str, str]]:
    """Return the additional bindings for the gradient in a kernel of the rule."""
    return bindings(module, _functions(module)) if has_transforms(module) else []


def loads(module: syntax.Module, functions: Sequence[str]) -> list[str]:
    """Return statements that load the arguments of these functions for a vector of elements."""
    names = {name for function in functions for name in parameters_of(module, function)}
    lines = ["let raw = grads[at];"]
    if "kept" in names:
        lines.append("let old_kept = kept[at];")
    rows = any(name.startswith("row") for name in names)
    if rows or "index" in names:
        lines.append("let entry = block_entries[number];")
        lines.append(f"let position = vec4<u32>(entry.block * {BLOCK}u + vector * 4u) + vec4<u32>(0u, 1u, 2u, 3u);")
    if rows:
        lines.append("let row = vec4<u32>(entry.first_row) + position / vec4<u32>(entry.row_size);")
    return lines


def call(module: syntax.Module, function: str, lane: str, grad: str, t: str, on: str) -> str:
    """Return a call of a function of `transform_glue` for an element of a vector."""
    values = {
        "grad": f"{grad}.{lane}", "param": f"param.{lane}", "kept": f"old_kept.{lane}", "index": f"position.{lane}",
        "tensor": "block.tensor", "t": t, "on": on,
    }  # fmt: skip
    arguments = [
        values.get(name, f"rows{name.removeprefix('row')}[row.{lane}]") for name in parameters_of(module, function)
    ]
    return f"{function}({', '.join(arguments)})"


def _calls(module: syntax.Module, function: str, grad: str) -> str:
    """Return the four results of a function of `transform_glue` as a vector."""
    return f"vec4<f32>({', '.join(call(module, function, lane, grad, 'its.t', 'its.on') for lane in 'xyzw')})"


def grad_lines(module: syntax.Module, negate: bool) -> list[str]:
    """Return statements that declare ``grad``, for a kernel of the rule; `param` is loaded already."""
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
    """Return the gradient of the element with number `index` of a tensor with a gradient for some rows."""
    if not has_transforms(module):
        return "sums[value]"
    values = {
        "grad": "sums[value]", "param": "params[at]", "index": "index", "tensor": "parameters.tensor",
        "t": "its.t", "on": "its.on",
    }  # fmt: skip
    block = "block_entries[parameters.block]"
    arguments = [
        values.get(name, f"rows{name.removeprefix('row')}[{block}.first_row + index / {block}.row_size]")
        for name in parameters_of(module, "transform_gradient")
    ]
    return f"transform_gradient({', '.join(arguments)})"


# advance.


def scales(module: syntax.Module) -> bool:
    """Return True if the gradients are those of a scaled loss."""
    return any(str(member.type) == "Unscale" for member in struct_of(module, "Transforms").members)


def advance_bindings(module: syntax.Module, measured: int | None) -> list[tuple[str, str, str]]:
    """Return the additional bindings of `advance`; `measured` is the number of a transform that was measured before."""
    if not has_transforms(module):
        return []
    return [
        ("transforms", "read", "array<Transforms>"),
        *([("scaler", "read_write", "array<f32>")] if scales(module) else []),
        *([("partials", "read", f"array<Partial{measured}>")] if measured is not None else []),
    ]


def note_skip(module: syntax.Module) -> str:
    """Return the statement that records a skipped step for the loss scaler."""
    return "\n        scaler[1] = 1.0;" if scales(module) else ""


def begin(module: syntax.Module, otherwise: int, settled: int | None) -> str:
    """Return statements that declare ``is_active``: 1 if the tensor takes this step, `otherwise` if only others do."""
    if not has_transforms(module):
        return f"let is_active = select(select({otherwise}u, 1u, tensors[tensor].live != 0u), 0u, skip);"
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
        let is_active = select(activity(t, on, {otherwise}u), 0u, skip);"""

"""Joins gradient transforms to a rule, by map functions that call the transforms one after the other.

A transform is a file of map functions in ``shaders/transforms``, whose names begin with the file's:

    struct Name              its hyper-parameters, and values computed once per tensor
    NAME                     returns the transformed gradient of an element
    NAME_advance             returns the struct; called once per tensor at each call
    NAME_measure             returns values that are summed over a tensor, all tensors, or a row
    NAME_settle              returns the struct, computed from the sums; for a row, a number

The arguments of these functions are chosen by the names of their parameters:

    grad, param   the element's gradient as the transforms before left it, and the element
    kept          the result of the transform at the previous call since the last step
    index, tensor the element's index within its tensor, and the tensor's number
    row           the result of NAME_settle for the element's row
    h             the tensor's struct
    measured      the sums; size: the number of elements
    live          1 if the tensor has a gradient at this call, otherwise 0
    scale         the scale of the loss

The generated module has ``struct Transforms``, with a member for each transform, and the functions that shells call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from . import syntax
from .parser import parse
from .transform_lookup import BAD

__all__ = ["Member", "Stage", "glue", "members", "pascal"]


class Stage(Protocol):
    """The properties of a transform that are needed here."""

    @property
    def name(self) -> str:
        """The name of its file and function."""

    @property
    def options(self) -> tuple[str, ...]:
        """The members of its struct that the host sets."""

    @property
    def over(self) -> str:
        """The scope of its measure: "all" tensors, a "tensor", a "row", or "" for none."""

    @property
    def masked(self) -> bool:
        """True if it applies to some tensors only."""


class Member(NamedTuple):
    """Name and WGSL type of a member of a struct."""

    name: str
    type: str


def pascal(name: str) -> str:
    """Return the name of a transform's struct."""
    return "".join(word.capitalize() for word in name.split("_"))


def members(module: syntax.Module, struct: str) -> tuple[Member, ...]:
    """Return the members of a struct in a parsed file; none if it does not declare the struct."""
    for declaration in module.declarations:
        if isinstance(declaration, syntax.StructDeclaration) and declaration.name == struct:
            return tuple(Member(field.name, field.type_name.name) for field in declaration.fields)
    return ()


def _parameters(module: syntax.Module, function: str) -> tuple[str, ...] | None:
    """Return the names of a function's parameters; None if there is no such function."""
    for declaration in module.declarations:
        if isinstance(declaration, syntax.Function) and declaration.name == function:
            return tuple(parameter.name for parameter in declaration.parameters)
    return None


_ORDER = ("grad", "param", "kept", "index", "tensor")
_TYPES = {"index": "u32", "tensor": "u32", "t": "Transforms", "on": "u32"}


class _Chain:
    """Generates a function of an element that applies transforms one after the other."""

    def __init__(self, stages: Sequence[Stage], modules: Mapping[str, syntax.Module]) -> None:
        self.stages = stages
        self.modules = modules
        self.used: set[str] = {"grad"}
        self.lines: list[str] = []
        self.result = "grad"

    def apply(self, start: int, end: int) -> _Chain:
        """Apply the transforms with numbers from `first` to before `end`."""
        for number in range(start, end):
            stage = self.stages[number]
            after = self.call(number, stage.name)
            if stage.name == "accumulate":
                after = f"select(kept, {after}, {_IS_LIVE})"
            elif stage.masked:
                after = f"select({self.result}, {after}, {_is_on(number)})"
            self.lines.append(f"    let g{number} = {after};")
            self.result = f"g{number}"
        return self

    def call(self, number: int, function: str) -> str:
        """Return a call of a transform's function, with the gradient after the transforms applied so far."""
        module = self.modules[self.stages[number].name]
        self.used |= {f"row{number}" if name == "row" else name for name in _parameters(module, function) or ()}
        return _call(module, function, number, {"grad": self.result})

    def function(self, name: str, returns: str, result: str) -> str:
        """Return the text of the function."""
        rows = [f"row{number}" for number in range(len(self.stages))]
        names = [parameter for parameter in (*_ORDER, *rows) if parameter in self.used]
        declared = ", ".join(f"{parameter}: {_TYPES.get(parameter, 'f32')}" for parameter in (*names, "t", "on"))
        return "\n".join([f"fn {name}({declared}) -> {returns} {{", *self.lines, f"    return {result};", "}"])


_IS_LIVE = "(on & 1u) != 0u"


def glue(stages: Sequence[Stage], modules: Mapping[str, syntax.Module]) -> syntax.Module:
    """Return a module with the functions that join these transforms.

        begin_transforms(t, options, scale, live) -> Transforms       once per tensor, at each call
        activity(t, on, rest) -> u32                                1 if this call is its step, otherwise `rest` or 0
        transform_gradient(grad, ..., t, on) -> f32                 all transforms
        gather_gradient, finish_gradient                            those up to the accumulation, and those after it
        measure_transform_N(grad, ..., t, on) -> PartialN           the measure of transform N, after those before it
        settle_transform_N(t, measured, size) -> Transforms         `settle` of transform N (for a row, a number)

    Bit 0 of `on` is set if the tensor has a gradient, bit 1 + N if transform N applies to it, and the last one for
    every tensor of the optimizer.
    """
    accumulation = next((number for number, stage in enumerate(stages) if stage.name == "accumulate"), None)
    texts = [_imports(modules), _struct(stages), _begin(stages, modules, accumulation), _activity(accumulation)]
    whole = _Chain(stages, modules).apply(0, len(stages))
    texts.append(whole.function("transform_gradient", "f32", whole.result))
    if accumulation is not None:
        for name, start, end in (("gather", 0, accumulation + 1), ("finish", accumulation + 1, len(stages))):
            chain = _Chain(stages, modules).apply(start, end)
            texts.append(chain.function(f"{name}_gradient", "f32", chain.result))
    for number, stage in enumerate(stages):
        if stage.over:
            texts.append(_measure(stages, modules, number, accumulation))
            texts.append(_settle(stages, modules, number))
    return parse("\n".join(texts), "<transforms>")


def _imports(modules: Mapping[str, syntax.Module]) -> str:
    lines = ["import package::lib::math::is_finite;"]
    for name, module in modules.items():
        functions = {pascal(name), f"{pascal(name)}Measured", name}
        functions |= {f"{name}_{suffix}" for suffix in ("advance", "measure", "settle", "closes")}
        declared = (
            declaration.name
            for declaration in module.declarations
            if not isinstance(declaration, syntax.Import | syntax.ConstAssert)
        )
        names = [imported for imported in declared if imported in functions]
        lines.append(f"import package::transforms::{name}::{{{', '.join(names)}}};")
    return "\n".join(lines)


def _struct(stages: Sequence[Stage]) -> str:
    fields = ", ".join(f"t{number}: {pascal(stage.name)}" for number, stage in enumerate(stages))
    return f"struct Transforms {{ {fields} }}"


def _call(module: syntax.Module, function: str, number: int, values: Mapping[str, str]) -> str:
    known = {"h": f"t.t{number}", "row": f"row{number}", **values}
    arguments = [known.get(parameter, parameter) for parameter in _parameters(module, function) or ()]
    return f"{function}({', '.join(arguments)})"


def _begin(stages: Sequence[Stage], modules: Mapping[str, syntax.Module], accumulation: int | None) -> str:
    lines = []
    for number, stage in enumerate(stages):
        module, struct = modules[stage.name], pascal(stage.name)
        names = [member.name for member in members(module, struct)]
        sources = [f"{'options' if name in stage.options else 't'}.t{number}.{name}" for name in names]
        lines.append(f"    let h{number} = {struct}({', '.join(sources)});")
        value = f"h{number}"
        if _parameters(module, f"{stage.name}_advance") is not None:
            value = _call(module, f"{stage.name}_advance", number, {"h": value})
        lines.append(f"    let a{number} = {value};")
        if accumulation is not None and number > accumulation and value != f"h{number}":
            # Transforms after the accumulation advance once per step.
            values = [
                f"select(h{number}.{name}, a{number}.{name}, accumulate_closes(a{accumulation}))" for name in names
            ]
            lines.append(f"    let t{number} = {struct}({', '.join(values)});")
        else:
            lines.append(f"    let t{number} = a{number};")
    return "\n".join(
        [
            "fn begin_transforms(t: Transforms, options: Transforms, scale: f32, live: f32) -> Transforms {",
            *lines,
            f"    return Transforms({', '.join(f't{number}' for number in range(len(stages)))});",
            "}",
        ]
    )


def _activity(accumulation: int | None) -> str:
    if accumulation is None:
        result = f"select(rest, 1u, {_IS_LIVE})"
    else:
        result = f"select(0u, select(rest, 1u, t.t{accumulation}.gathered > 0.0), accumulate_closes(t.t{accumulation}))"
    return f"fn activity(t: Transforms, on: u32, rest: u32) -> u32 {{\n    return {result};\n}}"


def _is_on(number: int) -> str:
    return f"(on & {1 << number + 1}u) != 0u"


def _measure(
    stages: Sequence[Stage], modules: Mapping[str, syntax.Module], number: int, accumulation: int | None
) -> str:
    stage = stages[number]
    measured = [member.name for member in members(modules[stage.name], f"{pascal(stage.name)}Measured")]
    chain = _Chain(stages, modules).apply(0, number)
    chain.lines.append(f"    let measured = {chain.call(number, f'{stage.name}_measure')};")
    conditions = [_is_on(number)] if stage.masked else []
    # A tensor without a gradient at this call may still step, with the gradients it has accumulated.
    if accumulation is not None and number < accumulation:
        conditions.append(_IS_LIVE)
    values = [f"measured.{name}" for name in measured]
    if conditions:
        values = [f"select(0.0, {value}, {' && '.join(conditions)})" for value in values]
    values.append(f"select(0.0, 1.0, !is_finite(grad) && {_IS_LIVE})")
    fields = ", ".join(f"{name}: f32" for name in [*measured, BAD])
    function = chain.function(
        f"measure_transform_{number}", f"Partial{number}", f"Partial{number}({', '.join(values)})"
    )
    return f"struct Partial{number} {{ {fields} }}\n{function}"


def _settle(stages: Sequence[Stage], modules: Mapping[str, syntax.Module], number: int) -> str:
    stage = stages[number]
    module, struct = modules[stage.name], f"{pascal(stage.name)}Measured"
    values = ", ".join(f"measured.{member.name}" for member in members(module, struct))
    call = _call(module, f"{stage.name}_settle", number, {"measured": f"{struct}({values})"})
    result, type_ = call, "f32"
    if stage.over != "row":
        structs = [call if index == number else f"t.t{index}" for index in range(len(stages))]
        result, type_ = f"Transforms({', '.join(structs)})", "Transforms"
    return (
        f"fn settle_transform_{number}(t: Transforms, measured: Partial{number}, size: f32) -> {type_} {{\n"
        f"    return {result};\n}}"
    )

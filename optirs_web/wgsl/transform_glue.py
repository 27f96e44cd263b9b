"""Gradient transforms joined to a rule: the map functions that call each in turn.

A transform is a file of map functions in ``shaders/transforms``, whose names begin with its own:

    struct Name              what it is given, and what it computes once per tensor
    NAME                     the gradient it makes of one element
    NAME_advance             at each call, once per tensor; gives the struct
    NAME_measure             what is summed over a tensor, all tensors, or a row
    NAME_settle              what follows from it: the struct; of a row, one number

The parameters of each ask by name for what they are given:

    grad, param   the element's gradient as the transforms before left it, and the element
    kept          what the transform returned at the calls before, since the last step
    index, tensor the element's index within its tensor, and the tensor's number
    row           what NAME_settle gave of the element's row
    h             the tensor's struct
    measured      the sums; size: of how many elements
    live          1 where the tensor has a gradient at this call, otherwise 0
    scale         of the loss

The text made here holds ``struct Transforms``, with a member for each, and these functions, which the shells call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from . import syntax
from .parser import parse
from .transform_lookup import BAD

__all__ = ["Member", "Stage", "glue", "members", "pascal"]


class Stage(Protocol):
    """What is known of a transform here."""

    @property
    def name(self) -> str:
        """Its file and function."""

    @property
    def given(self) -> tuple[str, ...]:
        """The members of its struct that the host sets."""

    @property
    def over(self) -> str:
        """What it measures: "all" tensors, each "tensor", each "row", or nothing."""

    @property
    def masked(self) -> bool:
        """It applies to some tensors only."""


class Member(NamedTuple):
    """Name and WGSL type of a member of a struct."""

    name: str
    type: str


def pascal(name: str) -> str:
    """The name of a transform's struct."""
    return "".join(word.capitalize() for word in name.split("_"))


def members(module: syntax.Module, struct: str) -> tuple[Member, ...]:
    """The members of a struct in a file as it was parsed; none if it declares no such struct."""
    for one in module.declarations:
        if isinstance(one, syntax.StructDeclaration) and one.name == struct:
            return tuple(Member(field.name, field.type_name.name) for field in one.fields)
    return ()


def _parameters(module: syntax.Module, function: str) -> tuple[str, ...] | None:
    """The names of a function's parameters; None if there is no such function."""
    for one in module.declarations:
        if isinstance(one, syntax.Function) and one.name == function:
            return tuple(parameter.name for parameter in one.parameters)
    return None


_ORDER = ("grad", "param", "kept", "index", "tensor")
_TYPES = {"index": "u32", "tensor": "u32", "t": "Transforms", "on": "u32"}


class _Chain:
    """Transforms one after the other, as the text of a function over an element."""

    def __init__(self, stages: Sequence[Stage], modules: Mapping[str, syntax.Module]) -> None:
        self.stages = stages
        self.modules = modules
        self.asked: set[str] = {"grad"}
        self.lines: list[str] = []
        self.result = "grad"

    def apply(self, first: int, end: int) -> _Chain:
        """Apply these."""
        for number in range(first, end):
            one = self.stages[number]
            after = self.call(number, one.name)
            if one.name == "accumulate":
                after = f"select(kept, {after}, {_IS_LIVE})"
            elif one.masked:
                after = f"select({self.result}, {after}, {_is_on(number)})"
            self.lines.append(f"    let g{number} = {after};")
            self.result = f"g{number}"
        return self

    def call(self, number: int, function: str) -> str:
        """A call of a function of a transform, with the gradient so far."""
        module = self.modules[self.stages[number].name]
        self.asked |= {f"row{number}" if one == "row" else one for one in _parameters(module, function) or ()}
        return _call(module, function, number, {"grad": self.result})

    def function(self, name: str, returns: str, result: str) -> str:
        """The text of the function."""
        rows = [f"row{number}" for number in range(len(self.stages))]
        names = [one for one in (*_ORDER, *rows) if one in self.asked]
        declared = ", ".join(f"{one}: {_TYPES.get(one, 'f32')}" for one in (*names, "t", "on"))
        return "\n".join([f"fn {name}({declared}) -> {returns} {{", *self.lines, f"    return {result};", "}"])


_IS_LIVE = "(on & 1u) != 0u"


def glue(stages: Sequence[Stage], modules: Mapping[str, syntax.Module]) -> syntax.Module:
    """The functions that join these transforms.

        begin_transforms(t, given, scale, live) -> Transforms       once per tensor, at each call
        activity(t, on, rest) -> u32                                1 where this call is its step, otherwise `rest` or 0
        transform_gradient(grad, ..., t, on) -> f32                 all transforms
        gather_gradient, finish_gradient                            those up to the accumulation, and those after it
        measure_transform_N(grad, ..., t, on) -> PartialN           what number N measures of what the ones before made
        settle_transform_N(t, measured, size) -> Transforms         what follows for the tensor (of a row, a number)

    Bit 0 of `on` is set where the tensor has a gradient, bit 1 + N where number N applies to it, and the last one for
    every tensor of the optimizer.
    """
    kept = next((number for number, one in enumerate(stages) if one.name == "accumulate"), None)
    texts = [_imports(modules), _struct(stages), _begin(stages, modules, kept), _activity(kept)]
    whole = _Chain(stages, modules).apply(0, len(stages))
    texts.append(whole.function("transform_gradient", "f32", whole.result))
    if kept is not None:
        for name, first, end in (("gather", 0, kept + 1), ("finish", kept + 1, len(stages))):
            part = _Chain(stages, modules).apply(first, end)
            texts.append(part.function(f"{name}_gradient", "f32", part.result))
    for number, one in enumerate(stages):
        if one.over:
            texts.append(_measure(stages, modules, number, kept))
            texts.append(_settle(stages, modules, number))
    return parse("\n".join(texts), "<transforms>")


def _imports(modules: Mapping[str, syntax.Module]) -> str:
    lines = ["import package::lib::math::is_finite;"]
    for name, module in modules.items():
        wanted = {pascal(name), f"{pascal(name)}Measured", name}
        wanted |= {f"{name}_{part}" for part in ("advance", "measure", "settle", "closes")}
        declared = (one.name for one in module.declarations if not isinstance(one, syntax.Import | syntax.ConstAssert))
        names = [one for one in declared if one in wanted]
        lines.append(f"import package::transforms::{name}::{{{', '.join(names)}}};")
    return "\n".join(lines)


def _struct(stages: Sequence[Stage]) -> str:
    return f"struct Transforms {{ {', '.join(f't{number}: {pascal(one.name)}' for number, one in enumerate(stages))} }}"


def _call(module: syntax.Module, function: str, number: int, values: Mapping[str, str]) -> str:
    known = {"h": f"t.t{number}", "row": f"row{number}", **values}
    return f"{function}({', '.join(known.get(one, one) for one in _parameters(module, function) or ())})"


def _begin(stages: Sequence[Stage], modules: Mapping[str, syntax.Module], kept: int | None) -> str:
    lines = []
    for number, one in enumerate(stages):
        module, struct = modules[one.name], pascal(one.name)
        names = [member.name for member in members(module, struct)]
        sources = [f"{'given' if name in one.given else 't'}.t{number}.{name}" for name in names]
        lines.append(f"    let h{number} = {struct}({', '.join(sources)});")
        value = f"h{number}"
        if _parameters(module, f"{one.name}_advance") is not None:
            value = _call(module, f"{one.name}_advance", number, {"h": value})
        lines.append(f"    let a{number} = {value};")
        if kept is not None and number > kept and value != f"h{number}":
            # What comes after the accumulation advances with the steps.
            parts = [f"select(h{number}.{name}, a{number}.{name}, accumulate_closes(a{kept}))" for name in names]
            lines.append(f"    let t{number} = {struct}({', '.join(parts)});")
        else:
            lines.append(f"    let t{number} = a{number};")
    return "\n".join(
        [
            "fn begin_transforms(t: Transforms, given: Transforms, scale: f32, live: f32) -> Transforms {",
            *lines,
            f"    return Transforms({', '.join(f't{number}' for number in range(len(stages)))});",
            "}",
        ]
    )


def _activity(kept: int | None) -> str:
    if kept is None:
        result = f"select(rest, 1u, {_IS_LIVE})"
    else:
        result = f"select(0u, select(rest, 1u, t.t{kept}.gathered > 0.0), accumulate_closes(t.t{kept}))"
    return f"fn activity(t: Transforms, on: u32, rest: u32) -> u32 {{\n    return {result};\n}}"


def _is_on(number: int) -> str:
    return f"(on & {1 << number + 1}u) != 0u"


def _measure(stages: Sequence[Stage], modules: Mapping[str, syntax.Module], number: int, kept: int | None) -> str:
    one = stages[number]
    measured = [member.name for member in members(modules[one.name], f"{pascal(one.name)}Measured")]
    chain = _Chain(stages, modules).apply(0, number)
    chain.lines.append(f"    let measured = {chain.call(number, f'{one.name}_measure')};")
    conditions = [_is_on(number)] if one.masked else []
    if kept is not None and number < kept:  # a tensor without a gradient now may still step with what it kept
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
    one = stages[number]
    module, struct = modules[one.name], f"{pascal(one.name)}Measured"
    values = ", ".join(f"measured.{member.name}" for member in members(module, struct))
    call = _call(module, f"{one.name}_settle", number, {"measured": f"{struct}({values})"})
    result, type_ = call, "f32"
    if one.over != "row":
        each = [call if other == number else f"t.t{other}" for other in range(len(stages))]
        result, type_ = f"Transforms({', '.join(each)})", "Transforms"
    return (
        f"fn settle_transform_{number}(t: Transforms, measured: Partial{number}, size: f32) -> {type_} {{\n"
        f"    return {result};\n}}"
    )

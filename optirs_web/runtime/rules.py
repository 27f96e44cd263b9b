"""The rules of optimizers, and their kernels.

A rule is a WGSL file of map functions over `Hyper`, `Scalars` and `State`; see ``shaders/README.md``. Its parts:

    advance              once per tensor, before anything else
    measure, settle      a sum over each tensor (or all), and what follows from it, once per tensor
    update               every element
    measure_lines, settle_row, settle_column, settle_matrix   per row and column; see `wgsl.factored_shell`
    other names          on call, over every element of the tensors that have taken a step
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from ..errors import ShaderError
from ..wgsl import (
    advance_shell,
    link,
    live_slots,
    measure_shell,
    package_loader,
    param_storage,
    parse,
    rule_shell,
    slot_storage,
    syntax,
    update_shell,
)
from ..wgsl.dependence import RULE_PARTS
from ..wgsl.line_lookup import LINE_STRUCTS
from ..wgsl.shell import struct_of
from .kernels import Binding, GeneratedKernel, bindings_of

if TYPE_CHECKING:
    from ..wgsl.transform_glue import Member

__all__ = [
    "KEPT",
    "AdvanceKernel",
    "Flags",
    "MeasureKernel",
    "RoundKernel",
    "Rule",
    "RuleKernel",
    "SettleKernel",
    "Stage",
    "UpdateKernel",
]

_STRUCTS = ("Hyper", "Scalars", "State", "Measured", *LINE_STRUCTS.values(), "LineMeasured")

Flags = tuple[tuple[str, bool], ...]
"""The overrides of a rule, sorted by name. `maximize` is not the rule's: the gradient is negated for it."""

Stored = tuple[tuple[str, str], ...]
"""How slots are stored that are not float32: name and kind of `wgsl.slot_storage`; and how parameters are kept, as
"param" and kind of `wgsl.param_storage`."""


@dataclass(frozen=True)
class Stage:
    """A gradient transform in front of a rule; see `wgsl.transform_glue`.

    Attributes:
        name: the file in ``shaders/transforms``.
        given: the members of its struct that the host sets.
        over: what it measures: "all" tensors, each "tensor", each "row", or nothing.
        masked: it applies to some tensors only.
    """

    name: str
    given: tuple[str, ...] = ()
    over: str = ""
    masked: bool = False

    @property
    def members(self) -> int:
        """How many its struct has."""
        return len(_members(self.name))


@dataclass(frozen=True)
class Rule:
    """What an optimizer does, as WGSL.

    Attributes:
        name: the file in ``shaders/optimizers``; or, with `text`, what to call it.
        text: a user's own WGSL.
        over_all: what it measures is summed over all tensors, not over each.
        stages: what the gradient goes through first.
        folder: where the file is.
    """

    name: str
    text: str | None = None
    over_all: bool = False
    stages: tuple[Stage, ...] = ()
    folder: str = "optimizers"

    def __post_init__(self) -> None:
        if self.text is not None:
            for function in ("Hyper", "Updated", "update"):
                if function not in self._declared:
                    raise ShaderError(f"a rule declares '{function}'", file=self.name, line=1, column=1)

    @property
    def _source(self) -> syntax.Module:
        return package_loader()((self.folder, self.name)) if self.text is None else _parse(self.text, self.name)

    @cached_property
    def _declared(self) -> frozenset[str]:
        named = (syntax.Function, syntax.StructDeclaration, syntax.Override)
        return frozenset(one.name for one in self._source.declarations if isinstance(one, named))

    @cached_property
    def flags(self) -> frozenset[str]:
        """The names of its overrides."""
        return frozenset(one.name for one in self._source.declarations if isinstance(one, syntax.Override))

    @property
    def measures(self) -> bool:
        """It has `measure` and `settle`."""
        return "measure" in self._declared

    def has(self, part: str) -> bool:
        """It has a function of that name."""
        return part in self._declared

    @cached_property
    def hyper(self) -> tuple[str, ...]:
        """The members of Hyper."""
        return self._members("Hyper")

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The members of Scalars; the step count if the rule declares none."""
        return self._members("Scalars") or ("step",)

    @cached_property
    def state(self) -> tuple[str, ...]:
        """The members of State, those among them too that some flags leave unused."""
        return self._members("State")

    def _members(self, struct: str) -> tuple[str, ...]:
        return tuple(one.name for one in struct_of(self.linked(("update",), ()), struct).members)

    def linked(self, functions: tuple[str, ...], flags: Flags, codecs: tuple[str, ...] = ()) -> syntax.Module:
        """The rule with these flags and what the functions reach; and functions of ``shaders/lib/storage.wgsl``."""
        return _link_rule(self, functions, tuple(one for one in flags if one[0] in self.flags), codecs)

    @cached_property
    def transforms(self) -> tuple[Member, ...]:
        """The members of all transforms, one after the other."""
        return tuple(member for one in self.stages for member in _members(one.name))

    @cached_property
    def counters(self) -> dict[str, int]:
        """What transforms count from call to call, by name: which of `transforms` it is."""
        found: dict[str, int] = {}
        first = 0
        for number, one in enumerate(self.stages):
            names = [member.name for member in self.transforms[first : first + one.members]]
            is_again = any(other.name == one.name for other in self.stages[:number])
            for name in _COUNTERS.get(one.name, ()):
                found[f"{one.name}{number if is_again else ''}_{name}"] = first + names.index(name)
            first += one.members
        return found

    @property
    def gathers(self) -> bool:
        """Gradients are accumulated over several calls."""
        return any(one.name == "accumulate" for one in self.stages)

    @property
    def gathering_part(self) -> str | None:
        """The part that stores what is gathered: the last one of a step that asks for the gradient."""
        return next((one for one in ("update", "prepare") if self.gathers and self._asks_for_grad((one,))), None)

    @property
    def first_measure(self) -> int | None:
        """The number of the transform that measures before `advance`: the first that measures, but not rows."""
        over = next(((number, one.over) for number, one in enumerate(self.stages) if one.over), None)
        return over[0] if over is not None and over[1] != "row" else None

    def _asks_for_grad(self, functions: tuple[str, ...]) -> bool:
        return any(
            isinstance(one, syntax.Function)
            and one.name in functions
            and any(parameter.name == "grad" for parameter in one.parameters)
            for one in self._source.declarations
        )

    def slots(self, flags: Flags) -> tuple[str, ...]:
        """The members of State that the rule with these flags needs; the others do not exist."""
        parts = tuple(one for one in RULE_PARTS if self.has(one))
        return live_slots(self.linked(parts, flags))


KEPT = "accumulated"
"""The slot of the state that holds what was gathered since the last step; kernels call it `kept`."""

_COUNTERS = {"accumulate": ("calls", "gathered"), "add_noise": ("draw",)}


@cache
def _parse(text: str, name: str) -> syntax.Module:
    return parse(text, name)


@cache
def _link_rule(rule: Rule, functions: tuple[str, ...], flags: Flags, codecs: tuple[str, ...]) -> syntax.Module:
    # Whole structs, as the tables have them.
    roots = [*functions, *(one for one in _STRUCTS if one in rule._declared)]
    source = rule._source
    if rule.stages:
        from ..wgsl.transform_glue import glue

        joint = glue(rule.stages, {one.name: _transform(one.name) for one in rule.stages})
        source = syntax.Module(source.file, source.enables, [*source.declarations, *joint.declarations])
        roots.append("Transforms")
        if rule._asks_for_grad(functions):
            stores = rule.gathering_part in functions
            roots.extend(["gather_gradient", "finish_gradient"] if stores else ["transform_gradient"])
    if codecs:
        needed = syntax.Import(syntax.Position(source.file, 1, 1), ("lib", "storage"), list(codecs))
        source = syntax.Module(source.file, source.enables, [needed, *source.declarations])
        roots.extend(codecs)
    return link(source, package_loader(), dict(flags), roots=roots)


def _transform(name: str) -> syntax.Module:
    return package_loader()(("transforms", name))


def _members(name: str) -> Sequence[Member]:
    """Those of the struct of a transform."""
    from ..wgsl.transform_glue import members, pascal

    return members(_transform(name), pascal(name))


class RuleKernel(GeneratedKernel):
    """A part of a rule over an arena or over its tensors."""

    parameters = ()

    def __init__(self, rule: Rule, part: str, flags: Flags, stored: Stored = ()) -> None:
        """Use `of`, which makes each kernel once."""
        self.name = f"{rule.name} {part}"
        self.rule = rule
        self.part = part
        self.flags = flags
        self.stored = stored
        self.negates = ("maximize", True) in flags

    @cached_property
    def map_module(self) -> syntax.Module:
        """The rule's functions, with its flags set."""
        functions = (self.part,) if self.rule.has(self.part) else ()
        of_slots = slot_storage.functions(kind for name, kind in self.stored if name != param_storage.PARAM)
        codecs = tuple(dict.fromkeys((*of_slots, *param_storage.functions(self.param_kind))))
        return self.rule.linked(functions, self.flags, codecs)

    @property
    def param_kind(self) -> str:
        """How parameters are kept, as in `wgsl.param_storage`; "" for float32."""
        return dict(self.stored).get(param_storage.PARAM, "")

    @cached_property
    def slots(self) -> dict[str, str]:
        """The members of State that exist, and how each is stored."""
        return {name: dict(self.stored).get(name, "float32") for name in self.rule.slots(self.flags)}

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """As the shell has them, known without making it."""
        return bindings_of(self._declared_bindings())

    @abstractmethod
    def _declared_bindings(self) -> rule_shell.Bindings: ...


class UpdateKernel(RuleKernel):
    """An optimizer's ``update`` over an arena, or a part of the same form that runs on call."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, part: str = "update", stored: Stored = ()) -> UpdateKernel:
        """The kernel, made once."""
        return UpdateKernel(rule, part, flags, stored)

    @property
    def elements_per_workgroup(self) -> int:
        """Of the arena."""
        return update_shell.elements_per_workgroup(self.changed_slots)

    @cached_property
    def changed_slots(self) -> dict[str, str]:
        """Those of the slots that it stores."""
        return update_shell.changed_slots(self.map_module, self.part, self.slots)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return update_shell.update_bindings(self.map_module, self.part, self.slots, self.param_kind)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return update_shell.update(self.map_module, self.part, self.slots, self.negates, self.param_kind)


class RoundKernel(RuleKernel):
    """Brings the parameters of an arena to bfloat16, to begin with."""

    elements_per_workgroup = rule_shell.ELEMENTS_PER_WORKGROUP

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, stored: Stored) -> RoundKernel:
        """The kernel, made once."""
        return RoundKernel(rule, "round", flags, stored)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return update_shell.round_params_bindings(self.param_kind)

    @cached_property
    def around(self) -> str:
        """See `wgsl.update_shell`."""
        return update_shell.round_params(self.map_module, self.param_kind)


class AdvanceKernel(RuleKernel):
    """An optimizer's ``advance`` over its tensors."""

    def __init__(self, rule: Rule, flags: Flags, checked: bool) -> None:
        """Use `of`, which makes each kernel once."""
        super().__init__(rule, "advance", flags)
        self.checked = checked

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, checked: bool) -> AdvanceKernel:
        """The kernel, made once; `checked`: it leaves out steps with gradients that are not finite."""
        return AdvanceKernel(rule, flags, checked)

    @property
    def measured(self) -> int | None:
        """The number of the transform whose measures it reads."""
        first = self.rule.first_measure
        return first if first is not None and (self.checked or self.settles) else None

    @property
    def settles(self) -> bool:
        """It does what follows from them, too."""
        first = self.rule.first_measure
        return first is not None and self.rule.stages[first].over == "all"

    @cached_property
    def map_module(self) -> syntax.Module:
        """The rule's `advance`, and what its transforms compute for each tensor."""
        functions = ["advance"] if self.rule.has("advance") else []
        if self.rule.stages:
            functions += ["begin_transforms", "activity"]
        if self.measured is not None:
            functions += [f"Partial{self.measured}"]
            functions += [f"settle_transform_{self.measured}"] if self.settles else []
        return self.rule.linked(tuple(functions), self.flags)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return advance_shell.advance_bindings(self.map_module, self.checked, self.measured)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return advance_shell.advance(self.map_module, self.checked, self.rule.over_all, self.measured, self.settles)


class MeasureKernel(RuleKernel):
    """An optimizer's ``measure`` over an arena, summed over each block."""

    elements_per_workgroup = rule_shell.ELEMENTS_PER_WORKGROUP

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, stored: Stored = ()) -> MeasureKernel:
        """The kernel, made once."""
        return MeasureKernel(rule, "measure", flags, stored)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return measure_shell.measure_bindings(self.map_module, self.slots, self.param_kind)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return measure_shell.measure(self.map_module, self.slots, self.negates, self.param_kind)


class SettleKernel(RuleKernel):
    """An optimizer's ``settle`` over its tensors: one workgroup for each, or one for a sum over all."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags) -> SettleKernel:
        """The kernel, made once."""
        return SettleKernel(rule, "settle", flags)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return measure_shell.settle_bindings()

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return measure_shell.settle(self.map_module, self.rule.over_all)

"""The rules of optimizers, and their kernels.

A rule is a WGSL file of map functions over `Hyper`, `Scalars` and `State`; see ``shaders/README.md``. Its parts:

    advance              once per tensor, before anything else
    measure, settle      a sum over each tensor (or all), and what follows from it, once per tensor
    update               every element
    other names          on call, over every element of the tensors that have taken a step
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property

from ..errors import ShaderError
from ..wgsl import link, live_slots, package_loader, parse, rule_shell, syntax
from ..wgsl.dependence import RULE_PARTS
from ..wgsl.shell import struct_of
from .kernels import Binding, GeneratedKernel, bindings_of

__all__ = ["AdvanceKernel", "Flags", "MeasureKernel", "Rule", "RuleKernel", "SettleKernel", "UpdateKernel"]

Flags = tuple[tuple[str, bool], ...]
"""The overrides of a rule, sorted by name. `maximize` is not the rule's: the gradient is negated for it."""


@dataclass(frozen=True)
class Rule:
    """What an optimizer does, as WGSL.

    Attributes:
        name: the file in ``shaders/optimizers``; or, with `text`, what to call it.
        text: a user's own WGSL.
        over_all: what it measures is summed over all tensors, not over each.
    """

    name: str
    text: str | None = None
    over_all: bool = False

    def __post_init__(self) -> None:
        if self.text is not None:
            for function in ("Hyper", "Updated", "update"):
                if function not in self._declared:
                    raise ShaderError(f"a rule declares '{function}'", file=self.name, line=1, column=1)

    @property
    def _source(self) -> syntax.Module:
        return package_loader()(("optimizers", self.name)) if self.text is None else _parse(self.text, self.name)

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

    def linked(self, functions: tuple[str, ...], flags: Flags) -> syntax.Module:
        """The rule with these flags and what the functions reach."""
        return _link_rule(self, functions, tuple(one for one in flags if one[0] in self.flags))

    def slots(self, flags: Flags) -> tuple[str, ...]:
        """The members of State that the rule with these flags needs; the others do not exist."""
        parts = tuple(one for one in RULE_PARTS if self.has(one))
        return live_slots(self.linked(parts, flags))


@cache
def _parse(text: str, name: str) -> syntax.Module:
    return parse(text, name)


@cache
def _link_rule(rule: Rule, functions: tuple[str, ...], flags: Flags) -> syntax.Module:
    # Whole structs, as the tables have them.
    structs = [one for one in ("Hyper", "Scalars", "State", "Measured") if one in rule._declared]
    return link(rule._source, package_loader(), dict(flags), roots=[*functions, *structs])


class RuleKernel(GeneratedKernel):
    """A part of a rule over an arena or over its tensors."""

    parameters = ()

    def __init__(self, rule: Rule, part: str, flags: Flags) -> None:
        """Use `of`, which makes each kernel once."""
        self.name = f"{rule.name} {part}"
        self.rule = rule
        self.part = part
        self.flags = flags
        self.negates = ("maximize", True) in flags

    @cached_property
    def map_module(self) -> syntax.Module:
        """The rule's functions, with its flags set."""
        return self.rule.linked((self.part,) if self.rule.has(self.part) else (), self.flags)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The members of State that exist."""
        return self.rule.slots(self.flags)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """As the shell has them, known without making it."""
        return bindings_of(self._declared_bindings())

    @abstractmethod
    def _declared_bindings(self) -> rule_shell.Bindings: ...


class UpdateKernel(RuleKernel):
    """An optimizer's ``update`` over an arena, or a part of the same form that runs on call."""

    elements_per_workgroup = rule_shell.ELEMENTS_PER_WORKGROUP

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, part: str = "update") -> UpdateKernel:
        """The kernel, made once."""
        return UpdateKernel(rule, part, flags)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return rule_shell.update_bindings(self.map_module, self.part, self.slots)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return rule_shell.update(self.map_module, self.part, self.slots, self.negates)


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

    def _declared_bindings(self) -> rule_shell.Bindings:
        return rule_shell.advance_bindings(self.checked)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return rule_shell.advance(self.map_module, self.checked)


class MeasureKernel(RuleKernel):
    """An optimizer's ``measure`` over an arena, summed over each block."""

    elements_per_workgroup = rule_shell.ELEMENTS_PER_WORKGROUP

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags) -> MeasureKernel:
        """The kernel, made once."""
        return MeasureKernel(rule, "measure", flags)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return rule_shell.measure_bindings(self.map_module, self.slots)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return rule_shell.measure(self.map_module, self.slots, self.negates)


class SettleKernel(RuleKernel):
    """An optimizer's ``settle`` over its tensors: one workgroup for each, or one for a sum over all."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags) -> SettleKernel:
        """The kernel, made once."""
        return SettleKernel(rule, "settle", flags)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return rule_shell.settle_bindings()

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return rule_shell.settle(self.map_module, self.rule.over_all)

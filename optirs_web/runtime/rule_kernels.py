"""The kernels of rules: each part of a rule over an arena, or over its tensors."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache, cached_property

from ..wgsl import advance_shell, measure_shell, param_storage, rule_shell, slot_storage, syntax, update_shell
from .kernels import Binding, GeneratedKernel, bindings_of
from .rules import Flags, Rule, Stored

__all__ = ["AdvanceKernel", "MeasureKernel", "RoundKernel", "RuleKernel", "SettleKernel", "UpdateKernel"]


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

    workgroup = rule_shell.WORKGROUP
    in_runs = False

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, part: str = "update", stored: Stored = ()) -> UpdateKernel:
        """The kernel, made once."""
        return UpdateKernel(rule, part, flags, stored)

    @property
    def elements_per_workgroup(self) -> int:
        """The number of elements of the arena that a workgroup updates."""
        return update_shell.elements_per_workgroup(self.changed_slots)

    @cached_property
    def changed_slots(self) -> dict[str, str]:
        """Those of the slots that it stores."""
        return update_shell.changed_slots(self.map_module, self.part, self.slots)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return update_shell.update_bindings(self.map_module, self.part, self.slots, self.changed_slots, self.param_kind)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rule_shell`."""
        return update_shell.update(
            self.map_module, self.part, self.slots, self.changed_slots, self.negates, self.param_kind, self.workgroup,
            self.in_runs,
        )  # fmt: skip


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

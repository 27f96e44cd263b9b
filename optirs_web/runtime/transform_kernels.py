"""The kernels that measure gradients for the transforms in front of a rule."""

from __future__ import annotations

from functools import cache, cached_property

from ..wgsl import rule_shell, syntax, transform_shell
from .rule_kernels import RuleKernel
from .rules import Flags, Rule

__all__ = ["TransformKernel", "TransformMeasureKernel", "TransformRowsKernel", "TransformSettleKernel"]


class TransformKernel(RuleKernel):
    """A kernel for one of the transforms.

    Attributes:
        number: of the transform among those of the rule.
    """

    def __init__(self, rule: Rule, flags: Flags, number: int, part: str) -> None:
        """Use `of`, which makes each kernel once."""
        super().__init__(rule, part, flags)
        self.name = f"{rule.stages[number].name} {part}"
        self.number = number

    @property
    def _functions(self) -> tuple[str, ...]:
        return f"measure_transform_{self.number}", f"settle_transform_{self.number}"

    @cached_property
    def map_module(self) -> syntax.Module:
        """The linked module of the functions that the kernel calls."""
        return self.rule.linked(self._functions, self.flags)


class TransformMeasureKernel(TransformKernel):
    """A kernel that measures gradients for a transform, and stores the sums over each block of an arena."""

    elements_per_workgroup = rule_shell.ELEMENTS_PER_WORKGROUP

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, number: int) -> TransformMeasureKernel:
        """The kernel, made once."""
        return TransformMeasureKernel(rule, flags, number, "measure")

    @property
    def is_first(self) -> bool:
        """It runs before `advance`."""
        return self.number == self.rule.first_measure

    @property
    def _functions(self) -> tuple[str, ...]:
        return (f"measure_transform_{self.number}", *(["begin_transforms"] if self.is_first else []))

    def _declared_bindings(self) -> rule_shell.Bindings:
        return transform_shell.measure_bindings(self.map_module, self.number, self.is_first)

    @cached_property
    def around(self) -> str:
        """See `wgsl.transform_shell`."""
        return transform_shell.measure(self.map_module, self.number, self.is_first)


class TransformSettleKernel(TransformKernel):
    """A kernel that settles a transform from the sums of blocks: for each tensor, or for all together."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, number: int) -> TransformSettleKernel:
        """The kernel, made once."""
        return TransformSettleKernel(rule, flags, number, "settle")

    @property
    def over_all(self) -> bool:
        """It is measured over all tensors."""
        return self.rule.stages[self.number].over == "all"

    @property
    def _functions(self) -> tuple[str, ...]:
        return (f"settle_transform_{self.number}",)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return transform_shell.settle_bindings(self.number)

    @cached_property
    def around(self) -> str:
        """See `wgsl.transform_shell`."""
        return transform_shell.settle(self.map_module, self.number, self.over_all)


class TransformRowsKernel(TransformKernel):
    """A kernel that measures each row of the gradients for a transform, and settles it."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, number: int) -> TransformRowsKernel:
        """The kernel, made once."""
        return TransformRowsKernel(rule, flags, number, "rows")

    def _declared_bindings(self) -> rule_shell.Bindings:
        return transform_shell.rows_bindings(self.map_module, self.number)

    @cached_property
    def around(self) -> str:
        """See `wgsl.transform_shell`."""
        return transform_shell.rows(self.map_module, self.number)

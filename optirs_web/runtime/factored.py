"""Kernels of rules that keep state per row and per column; see `wgsl.factored_shell`."""

from __future__ import annotations

from functools import cache, cached_property

from ..wgsl import factored_shell, rule_shell, syntax
from ..wgsl.factored_shell import AGAIN
from ..wgsl.shell import struct_of
from .rule_kernels import RuleKernel
from .rules import Flags, Rule, Stored

__all__ = ["PASSES", "LineMeasureKernel", "LineSettleKernel", "measured_words"]

PASSES = ("", AGAIN)
"""What the names of the functions of the first and of the second pass over the lines end in."""

_SETTLED = ("settle_row", "settle_column", "settle_matrix")


def measured_words(rule: Rule) -> int:
    """Members of LineMeasured."""
    return len(struct_of(rule.linked(("measure_lines",), ()), "LineMeasured").members)


class LineMeasureKernel(RuleKernel):
    """A rule's ``measure_lines`` over the tiles of an arena."""

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, suffix: str, stored: Stored = ()) -> LineMeasureKernel:
        """The kernel, made once, of one of the `PASSES`."""
        return LineMeasureKernel(rule, f"measure_lines{suffix}", flags, stored)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return factored_shell.measure_lines_bindings(self.map_module, self.part, self.slots)

    @cached_property
    def around(self) -> str:
        """See `wgsl.factored_shell`."""
        return factored_shell.measure_lines(self.map_module, self.part, self.slots, self.negates)


class LineSettleKernel(RuleKernel):
    """A rule's ``settle_row``, ``settle_column`` and ``settle_matrix`` over the lines of an arena."""

    def __init__(self, rule: Rule, flags: Flags, suffix: str) -> None:
        """Use `of`, which makes each kernel once."""
        super().__init__(rule, f"settle_lines{suffix}", flags)
        self.suffix = suffix

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, suffix: str) -> LineSettleKernel:
        """The kernel, made once, of one of the `PASSES`."""
        return LineSettleKernel(rule, flags, suffix)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The functions for all kinds of lines, with the rule's flags set."""
        named = (f"{name}{self.suffix}" for name in _SETTLED)
        return self.rule.linked(tuple(name for name in named if self.rule.has(name)), self.flags)

    @cached_property
    def functions(self) -> dict[str, str]:
        """The function of each kind of line that is settled."""
        return factored_shell.settle_functions(self.map_module, self.suffix)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return factored_shell.settle_lines_bindings()

    @cached_property
    def around(self) -> str:
        """See `wgsl.factored_shell`."""
        return factored_shell.settle_lines(self.map_module, self.suffix)

"""The kernel of a rule for gradients of some rows; see `wgsl.rows_shell`."""

from __future__ import annotations

from functools import cache, cached_property

from ..wgsl import rows_shell, rule_shell
from .rule_kernels import RuleKernel
from .rules import Flags, Rule, Stored

__all__ = ["RowsKernel"]


class RowsKernel(RuleKernel):
    """An optimizer's ``update`` over the rows that a gradient has."""

    parameters = rows_shell.PARAMETERS  # type: ignore[assignment]

    @staticmethod
    @cache
    def of(rule: Rule, flags: Flags, stored: Stored = ()) -> RowsKernel:
        """The kernel, made once."""
        return RowsKernel(rule, "update", flags, stored)

    def _declared_bindings(self) -> rule_shell.Bindings:
        return rows_shell.update_rows_bindings(self.map_module, self.slots)

    @cached_property
    def around(self) -> str:
        """See `wgsl.rows_shell`."""
        return rows_shell.update_rows(self.map_module, self.slots, self.negates)

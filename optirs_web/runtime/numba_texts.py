"""The loops that Numba runs for kernels: for map functions over elements, and for rules over arenas and tensors."""

from __future__ import annotations

from functools import cache

from ..lower.loops import map_loops
from ..wgsl import numba_shell, shell
from ..wgsl.numba_shell import Loops
from .kernels import Kernel
from .map_kernels import FusedKernel, MapKernel
from .rule_kernels import AdvanceKernel, MeasureKernel, RuleKernel, SettleKernel, UpdateKernel
from .transform_kernels import TransformMeasureKernel, TransformSettleKernel

__all__ = ["numba_loops"]

_ELEMENTWISE_PARAMETERS = {"param", "grad", "state", "h", "s"}
"""What the loops give to functions of each element."""


@cache
def numba_loops(kernel: Kernel) -> Loops | None:
    """The kernel's loops, of a hooked kernel those of the functions; None for one that has no form for Numba."""
    match kernel:
        case MapKernel() | FusedKernel():
            return map_loops(kernel.form, kernel.places)
        case UpdateKernel() if _is_plain(kernel):
            return numba_shell.update(
                kernel.map_module, kernel.part, kernel.slots, kernel.changed_slots, kernel.negates, kernel.param_kind
            )
        case MeasureKernel() if _is_plain(kernel):
            return numba_shell.measure(kernel.map_module, kernel.slots, kernel.negates, kernel.param_kind)
        case TransformMeasureKernel() if not kernel.rule.gathers:
            if numba_shell.sees_elements_alone(kernel.map_module, f"measure_transform_{kernel.number}"):
                return numba_shell.measure_transform(kernel.map_module, kernel.number, kernel.is_first, _width(kernel))
        case TransformSettleKernel() if not kernel.rule.gathers:
            return numba_shell.settle_transform(kernel.map_module, kernel.number, kernel.over_all, _width(kernel))
        case AdvanceKernel() if not kernel.rule.stages:
            return numba_shell.advance(kernel.map_module, kernel.checked, kernel.rule.over_all)
        case SettleKernel():
            return numba_shell.settle(kernel.map_module, kernel.rule.over_all)
    return None


def _width(kernel: RuleKernel) -> int:
    """Words of a tensor's row of `tensor_scalars` before those of transforms."""
    return 1 + len(kernel.rule.hyper) + len(kernel.rule.scalars)


def _is_plain(kernel: RuleKernel) -> bool:
    """Its function sees an element alone, of what is stored in a way that the loops know."""
    module = kernel.map_module
    if kernel.rule.gathers or not numba_shell.has_loops(kernel.slots):
        return False
    names = {parameter.name for parameter in shell.function_of(module, kernel.part).parameters}
    is_transformed = "grad" in names and kernel.rule.stages
    return names <= _ELEMENTWISE_PARAMETERS and (
        not is_transformed or numba_shell.sees_elements_alone(module, "transform_gradient")
    )

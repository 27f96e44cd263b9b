"""The loops that Numba runs for kernels: for map functions over elements, and for rules over arenas and tensors."""

from __future__ import annotations

from functools import cache

from ..wgsl import numba_shell, shell, types
from ..wgsl.fused_shell import Argument, Fused, Step, value_as_tensor
from ..wgsl.numba_shell import Loops
from .fused_kernels import FusedKernel, FusedMapKernel
from .kernels import ElementwiseKernel, Kernel
from .rule_kernels import AdvanceKernel, MeasureKernel, RuleKernel, SettleKernel, UpdateKernel
from .transform_kernels import TransformMeasureKernel, TransformSettleKernel

__all__ = ["fused_of", "numba_loops"]

_ELEMENTWISE_PARAMETERS = {"param", "grad", "state", "h", "s"}
"""What the loops give to functions of each element."""


@cache
def numba_loops(kernel: Kernel) -> Loops | None:
    """The kernel's loops, of a hooked kernel those of the functions; None for one that has no form for Numba."""
    match kernel:
        case ElementwiseKernel() | FusedMapKernel() | FusedKernel():
            return numba_shell.walk(kernel.map_module, fused_of(kernel))
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


@cache
def fused_of(kernel: ElementwiseKernel | FusedMapKernel | FusedKernel) -> Fused:
    """The map functions; of an elementwise kernel its one. What a hooked kernel computes is its last tensor."""
    if isinstance(kernel, FusedMapKernel):
        return kernel.fused
    if isinstance(kernel, FusedKernel):
        return value_as_tensor(kernel.fused) if kernel.hook.function == "stored" else kernel.fused
    declared = shell.function_of(kernel.map_module, kernel.name)
    is_bool = declared.return_type == types.BOOL
    kinds = iter(kernel.operands)
    tensors: list[str] = []
    scalars: list[str] = []
    arguments: list[Argument] = []
    for parameter in declared.parameters:
        kind = "index" if parameter.name == "index" else next(kinds)
        if kind == "tensor":
            arguments.append(("tensor", len(tensors)))
            tensors.append(str(parameter.type))
        elif kind == "scalar":
            arguments.append(("scalar", len(scalars)))
            scalars.append(str(parameter.type))
        else:
            arguments.append(("index", 0) if kind == "index" else ("old", 0))
    step = Step(kernel.file, kernel.name, tuple(arguments), is_bool)
    result = "u32" if is_bool else str(declared.return_type)
    flat = (kernel.rank == 0,) * len(tensors)
    return Fused((step,), tuple(tensors), flat, tuple(scalars), (("step", 0),), (result,), kernel.rank)

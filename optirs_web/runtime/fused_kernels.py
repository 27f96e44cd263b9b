"""Kernels of several map functions, by themselves or in the hook of another: what fusion makes."""

from __future__ import annotations

from functools import cache, cached_property

from ..wgsl import link, syntax
from ..wgsl.fused_shell import Fused, Hook, around_map, hooked, imports, parameters_of
from .kernels import Binding, Kernel, LoopKernel, SourceKernel

__all__ = ["HOOKS", "FusedKernel", "FusedMapKernel", "fused_kernel", "fused_map_kernel", "titled"]

_OF_ROWS = {"stored": Hook("stored", "result_values", "RowParameters")}
HOOKS = {
    "convolution": {"stored": Hook("stored", "c", "ConvolutionParameters")},
    "convolution_band": {"stored": Hook("stored", "c", "BandParameters")},
    "convolution_quads": {"stored": Hook("stored", "c", "QuadConvolutionParameters")},
    "layer_norm_grad": _OF_ROWS,
    "log_softmax_grad": _OF_ROWS,
    "matmul": {"stored": Hook("stored", "c", "MatmulParameters", ("rows", "columns"))},
    "softmax_grad": _OF_ROWS,
    "sum": {"loaded": Hook("loaded", "x_values", "RowParameters"), **_OF_ROWS},
}
"""The kernels that let map functions in, and where."""

_LONGEST = 60  # characters of a name


def titled(fused: Fused) -> str:
    """The names of its functions; "..." stands for those for which there is no room."""
    title = "+".join(step.function.rstrip("_") for step in fused.steps)
    return title if len(title) <= _LONGEST else title[: title.rindex("+", 0, _LONGEST)] + "+..."


class FusedMapKernel(LoopKernel):
    """Map functions one after the other, with several outputs perhaps."""

    overwrites = True

    def __init__(self, fused: Fused) -> None:
        """Use `fused_map_kernel`, which makes each kernel once."""
        self.fused = fused
        self.name = titled(fused)
        self.overwrites = not any(kind == "old" for step in fused.steps for kind, _ in step.arguments)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The functions."""
        wanted = {step.function for step in self.fused.steps}
        return link(syntax.Module(f"<{self.name}>", [], imports(self.fused)), roots=sorted(wanted))

    def around_loop(self, adjacent: bool) -> str:
        """Return the text around the functions; see `LoopKernel.around_loop`."""
        return around_map(self.fused, self.loop, adjacent)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """As the shell has them."""
        return (("size", "u32"), *parameters_of(self.fused))

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The tensors, then the outputs."""
        fused = self.fused
        reads = [
            Binding(f"x{number}_values", f"array<{type_}>", False) for number, type_ in enumerate(fused.tensor_types)
        ]
        writes = [
            Binding(f"y{number}_values", f"array<{type_}>", True) for number, type_ in enumerate(fused.output_types)
        ]
        return (*reads, *writes)


class FusedKernel(Kernel):
    """A kernel with map functions before what it does, or after it.

    Attributes:
        base: the kernel.
        hook: where the functions stand in it.
    """

    def __init__(self, base: SourceKernel, hook: Hook, fused: Fused) -> None:
        """Use `fused_kernel`, which makes each kernel once."""
        self.base = base
        self.hook = hook
        self.fused = fused
        titles = (base.name, titled(fused)) if hook.function == "stored" else (titled(fused), base.name)
        self.name = "+".join(title for title in titles if title)
        self.stays_in_bounds = base.stays_in_bounds
        self.overwrites = base.overwrites and not any(
            kind == "old" for step in fused.steps for kind, _ in step.arguments
        )

    @cached_property
    def module(self) -> syntax.Module:
        """The complete module."""
        return hooked(self.base.source, self.hook, self.fused, self.base.constants)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The functions alone, for array targets."""
        return fused_map_kernel(self.fused).map_module


@cache
def fused_map_kernel(fused: Fused) -> FusedMapKernel:
    """The kernel of these map functions."""
    return FusedMapKernel(fused)


@cache
def fused_kernel(base: SourceKernel, hook: Hook, fused: Fused) -> FusedKernel:
    """The kernel with these map functions."""
    return FusedKernel(base, hook, fused)

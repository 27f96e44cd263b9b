"""Kernels over buffers whose words hold two elements: any kernel, with decoding and encoding at its edge."""

from __future__ import annotations

from functools import cache, cached_property

from ..wgsl import parse, syntax
from ..wgsl.packed_shell import repacked
from .kernels import Binding, Kernel

__all__ = ["PackedKernel", "packed"]


class PackedKernel(Kernel):
    """A kernel that reads and writes some of its buffers as halves of words.

    Attributes:
        base: the kernel, which has them as f32, or as u32 where it moves elements without looking at them.
        kinds: for each binding "float16", "bfloat16", or "" for words as they are.
    """

    def __init__(self, base: Kernel, kinds: tuple[str, ...]) -> None:
        """Use `packed`, which makes each kernel once."""
        self.base = base
        self.kinds = kinds
        self.name = f"{base.name}_{'_'.join(dict.fromkeys(one for one in kinds if one))}"
        self.overwrites = base.overwrites

    @cached_property
    def module(self) -> syntax.Module:
        """The complete module."""
        names = (one.name for one in self.base.bindings)
        kinds = {name: kind for name, kind in zip(names, self.kinds, strict=True) if kind}
        return repacked(parse(self.base.wgsl(), f"<packed {self.base.name}>"), kinds)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Those of the base."""
        return self.base.parameters

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """Those of the base, of words."""
        pairs = zip(self.base.bindings, self.kinds, strict=True)
        return tuple(one._replace(type="array<u32>") if kind else one for one, kind in pairs)


@cache
def packed(base: Kernel, kinds: tuple[str, ...]) -> PackedKernel:
    """The kernel with these bindings as halves of words; see `PackedKernel`."""
    return PackedKernel(base, kinds)

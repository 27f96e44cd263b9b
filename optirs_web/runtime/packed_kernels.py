"""Kernels over buffers of 16-bit elements: any kernel, which converts what it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property

from ..wgsl import parse, syntax
from ..wgsl.packed_shell import repacked
from .buffer import View
from .device import Device
from .kernels import Binding, Kernel
from .native_halves import converts_float16

__all__ = ["PackedKernel", "packed", "packed_on"]

_TYPES = {"": "", "f16": "array<f16>", "float16": "array<u32>", "bfloat16": "array<u32>"}


class PackedKernel(Kernel):
    """A kernel that reads and writes some of its buffers as elements of 16 bits.

    Attributes:
        base: the kernel, which has them as f32, or as u32 where it moves elements without looking at them.
        kinds: for each binding "f16", "float16" or "bfloat16" for packed 16-bit elements, or "" for 32-bit ones.
    """

    def __init__(self, base: Kernel, kinds: tuple[str, ...]) -> None:
        """Use `packed`, which makes each kernel once."""
        self.base = base
        self.kinds = kinds
        self.name = f"{base.name}_{'_'.join(dict.fromkeys(kind for kind in kinds if kind))}"
        self.overwrites = base.overwrites
        self.stays_in_bounds = base.stays_in_bounds

    @cached_property
    def module(self) -> syntax.Module:
        """The kernel's WGSL with the conversions."""
        names = (binding.name for binding in self.base.bindings)
        kinds = {name: kind for name, kind in zip(names, self.kinds, strict=True) if kind}
        return repacked(parse(self.base.wgsl("tint"), f"<packed {self.base.name}>"), kinds)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The base's parameters."""
        return self.base.parameters

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The base's bindings, as arrays of f16 or of packed words."""
        pairs = zip(self.base.bindings, self.kinds, strict=True)
        return tuple(binding._replace(type=_TYPES[kind] or binding.type) for binding, kind in pairs)


@cache
def packed(base: Kernel, kinds: tuple[str, ...]) -> PackedKernel:
    """Return the kernel with bindings of these kinds; see `PackedKernel`."""
    return PackedKernel(base, kinds)


def packed_on(device: Device, base: Kernel, views: Sequence[View]) -> PackedKernel:
    """Return the kernel for these views: float16 is f16 if the device has that and rounds as others do."""
    kinds = tuple(view.kind for view in views)
    if "float16" in kinds and converts_float16(device):
        kinds = tuple("f16" if kind == "float16" else kind for kind in kinds)
    return packed(base, kinds)

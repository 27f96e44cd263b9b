"""Kernels: what a dispatch runs.

A kernel is a complete WGSL module with one entry point ``main``. Its storage bindings are the buffers
of a dispatch, in order; its uniform binding, if it has one, is a struct of scalars, the parameters of
a dispatch. Devices with shaders are given the module. Array targets (the `cpu` device) look at the
kernel's class instead: a kernel with a form is lowered from that, the functions of a rule are printed in
their language, and a cooperative kernel is replaced by a library call.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal

from ..errors import UnsupportedError
from ..wgsl import check, link, package_loader, parse, print_wgsl, syntax, types
from .routines import INTERFACES, Binding, Interface

__all__ = [
    "Binding",
    "CooperativeKernel",
    "GeneratedKernel",
    "Kernel",
    "SourceKernel",
    "bindings_of",
    "cooperative",
    "interface_of",
]

_CONVOLUTIONS = frozenset({"convolution", "convolution_band", "convolution_quads"})
# Cooperative kernels that write all of their results, and read nothing of them before.
_OVERWRITING = _CONVOLUTIONS | {"matmul"}
# Those that compute no index out of bounds, for any sizes, starts and strides within their buffers.
_IN_BOUNDS = _CONVOLUTIONS | {"attention", "attention_grad", "batched_matmul", "matmul"}
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}


class Kernel:
    """Base class of the kernels that a dispatch runs. Kernels are made once and compared by identity.

    Not an `ABC`, with whose metaclass each `isinstance` takes as long as a call.

    Attributes:
        name: for messages and profiles.
        overwrites: it writes all of each buffer that it writes, and reads nothing of it before.
        stays_in_bounds: no index needs to be brought within its buffer.
    """

    name: str
    overwrites: bool = False
    stays_in_bounds: bool = False

    @property
    @abstractmethod
    def module(self) -> syntax.Module:
        """The complete, checked WGSL module."""

    def wgsl(self, host: Literal["naga", "tint"] = "naga") -> str:
        """The shader's text for a host's compiler: "naga" (wgpu) or "tint" (Chromium)."""
        return print_wgsl(self.module, host)

    def wgsl_for(self, host: Literal["naga", "tint"], software: bool) -> str:
        """Return the shader's text for a host's compiler and an adapter: a `software` one computes on the processor."""
        return self.wgsl(host)

    @cached_property
    def _interface(self) -> Interface:
        return interface_of(self.module)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The storage bindings, numbered from 0 in group 0; a uniform binding follows them."""
        return self._interface.bindings

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Name and WGSL type of each parameter."""
        return self._interface.parameters

    @cached_property
    def _packing(self) -> struct.Struct:
        return struct.Struct("<" + "".join(_FORMATS[type_] for _, type_ in self.parameters))

    def pack(self, values: Sequence[int | float]) -> bytes:
        """The uniform block that holds these parameters."""
        return self._packing.pack(*values)

    def unpack(self, block: bytes) -> tuple[int | float, ...]:
        """The parameters in a uniform block."""
        return self._packing.unpack(block)


class SourceKernel(Kernel):
    """A kernel whose source is one module, written or generated. Map functions may be fused with it in its hooks.

    Attributes:
        constants: its overrides.
    """

    def __init__(self, name: str, constants: Mapping[str, Any]) -> None:
        """Begin with a name and overrides."""
        self.name = name
        self.constants = dict(constants)

    @property
    @abstractmethod
    def source(self) -> syntax.Module:
        """The module, parsed, with imports and overrides."""

    @abstractmethod
    def with_constants(self, constants: Mapping[str, Any]) -> SourceKernel:
        """Return the kernel with these overrides."""

    def elements(self, parameters: Mapping[str, Any]) -> int:
        """Return how many elements it loads through a hook, by the parameters of a dispatch.

        Raises:
            UnsupportedError: it has no hook that loads.
        """
        raise UnsupportedError(f"'{self.name}' has no hook that loads elements")

    @cached_property
    def module(self) -> syntax.Module:
        """The source with its imports and overrides resolved."""
        return link(self.source, constants=self.constants)


class CooperativeKernel(SourceKernel):
    """A complete WGSL file, ``shaders/kernels/NAME.wgsl``, with its overrides set."""

    def __init__(self, name: str, constants: Mapping[str, Any]) -> None:
        """Use `cooperative`, which makes each kernel once."""
        super().__init__(name, constants)
        self.overwrites = name in _OVERWRITING
        self.stays_in_bounds = name in _IN_BOUNDS

    @property
    def source(self) -> syntax.Module:
        """The file, parsed."""
        return package_loader()(("kernels", self.name))

    @cached_property
    def _interface(self) -> Interface:
        declared = INTERFACES.get(self.name)
        if declared is not None and self.constants.keys() <= declared.overrides:
            return declared
        return super()._interface

    def with_constants(self, constants: Mapping[str, Any]) -> CooperativeKernel:
        """Return the kernel with these overrides."""
        return cooperative(self.name, **constants)


@cache
def _cooperative(name: str, constants: tuple[tuple[str, Any], ...]) -> CooperativeKernel:
    return CooperativeKernel(name, dict(constants))


def cooperative(name: str, **constants: bool | float) -> CooperativeKernel:
    """The kernel of that name with these overrides."""
    return _cooperative(name, tuple(sorted(constants.items())))


class GeneratedKernel(Kernel):
    """A map module in a shell. A device is given both as text; the whole module is made for those who ask."""

    @property
    @abstractmethod
    def map_module(self) -> syntax.Module:
        """The functions alone."""

    @property
    @abstractmethod
    def around(self) -> str:
        """The generated text around the functions."""

    def wgsl(self, host: Literal["naga", "tint"] = "naga") -> str:
        """The shader's text for a host's compiler: "naga" (wgpu) or "tint" (Chromium)."""
        return f"{print_wgsl(self.map_module, host)}\n{self.around}"

    @cached_property
    def module(self) -> syntax.Module:
        """The functions in their shell."""
        module = parse(self.wgsl(), f"<generated {self.name}>")
        check(module)
        return module


def interface_of(module: syntax.Module) -> Interface:
    """Return what a launch of a complete module binds."""
    variables = [declaration for declaration in module.declarations if isinstance(declaration, syntax.GlobalVariable)]
    bindings = tuple(
        Binding(variable.name, str(variable.type), variable.access == "read_write")
        for variable in variables
        if variable.space == "storage"
    )
    for variable in variables:
        if variable.space == "uniform" and isinstance(variable.type, types.Struct):
            return Interface(bindings, tuple((member.name, str(member.type)) for member in variable.type.members))
    return Interface(bindings, ())


def bindings_of(declared: Sequence[tuple[str, str, str]]) -> tuple[Binding, ...]:
    """Bindings from name, access and type."""
    return tuple(Binding(name, type_, access == "read_write") for name, access, type_ in declared)

"""What a device binds to the kernel in printed C: its workgroup size and its arguments, known without the text."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .c_constants import Values
from .syntax import Function, GlobalVariable, Module
from .types import Array, Struct, Type, align_of, member_offsets, size_of

__all__ = ["KERNEL", "Argument", "Interface", "interface_of", "runtime_array", "workgroup_size"]

KERNEL = "main_"
"""The name of the kernel in every text."""


class Argument(NamedTuple):
    """One argument of the kernel.

    Attributes:
        name: of the variable in WGSL; also that of a length, which belongs to it.
        kind: "buffer", a pointer to the binding's first byte; "length", a `uint` (`elements`); "uniform", the bytes of
            the uniform variable, by value.
        writes: the kernel writes the buffer.
        start: of a length: where in the binding the array begins, in bytes.
        stride: of a length: from one element to the next, in bytes.
        size: of a uniform: its size in bytes.
    """

    name: str
    kind: Literal["buffer", "length", "uniform"]
    writes: bool = False
    start: int = 0
    stride: int = 0
    size: int = 0

    def elements(self, nbytes: int) -> int:
        """The value of a length, if so many bytes are bound."""
        return (nbytes - self.start) // self.stride


class Interface(NamedTuple):
    """How a kernel is launched: the invocations of a workgroup, and the arguments in order."""

    workgroup_size: tuple[int, int, int]
    arguments: tuple[Argument, ...]


def interface_of(module: Module) -> Interface:
    """What `print_c` gives the kernel of a module, in both dialects.

    The arguments are a pointer for each storage binding, in the order of the module (`Kernel.bindings`); then for each
    of them that holds a runtime-sized array its length in elements; then the uniform variable, if there is one.

    Args:
        module: checked, with one entry point.
    """
    variables = [one for one in module.declarations if isinstance(one, GlobalVariable)]
    buffers = [one for one in variables if one.space == "storage"]
    arguments = [Argument(one.name, "buffer", one.access == "read_write") for one in buffers]
    for one in buffers:
        found = runtime_array(one.type)
        if found is not None:
            start, array = found
            arguments.append(Argument(one.name, "length", start=start, stride=_stride(array.element)))
    for one in variables:
        if one.space == "uniform" and one.type is not None:
            arguments.append(Argument(one.name, "uniform", size=size_of(one.type)))
    return Interface(workgroup_size(module), tuple(arguments))


def runtime_array(type_: Type | None) -> tuple[int, Array] | None:
    """The runtime-sized array in the type of a binding, and the byte where it begins; None if there is none."""
    match type_:
        case Array(count=None):
            return 0, type_
        case Struct(members=members):
            last = members[-1].type
            if isinstance(last, Array) and last.count is None:
                return member_offsets(type_)[-1], last
    return None


def workgroup_size(module: Module) -> tuple[int, int, int]:
    """The invocations of a workgroup along its three axes."""
    values = Values(module)
    for one in module.declarations:
        for attribute in one.attributes if isinstance(one, Function) else ():
            if attribute.name == "workgroup_size":
                sizes = [int(values.of(argument)) for argument in attribute.arguments]  # type: ignore[arg-type]
                x, y, z = [*sizes, 1, 1][:3]
                return x, y, z
    raise ValueError(f"{module.file} has no entry point")


def _stride(element: Type) -> int:
    return -(-size_of(element) // align_of(element)) * align_of(element)

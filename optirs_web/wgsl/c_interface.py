"""The interface of the kernel in printed C: its workgroup size and its arguments, derived without printing it."""

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
        name: of the variable in WGSL; a length has the name of its array.
        kind: "buffer", a pointer to the binding's first byte; "length", a `uint` (`elements`); "uniform", the bytes of
            the uniform variable, by value.
        writes: the kernel writes the buffer.
        start: of a length: the offset of the array in the binding, in bytes.
        stride: of a length: the distance between elements, in bytes.
        size: of a uniform: its size in bytes.
    """

    name: str
    kind: Literal["buffer", "length", "uniform"]
    writes: bool = False
    start: int = 0
    stride: int = 0
    size: int = 0

    def elements(self, nbytes: int) -> int:
        """Return the length of the array, in elements, in a binding of `nbytes` bytes."""
        return (nbytes - self.start) // self.stride


class Interface(NamedTuple):
    """The interface of a kernel: the invocations of a workgroup along each axis, and the arguments in order."""

    workgroup_size: tuple[int, int, int]
    arguments: tuple[Argument, ...]


def interface_of(module: Module) -> Interface:
    """Return the workgroup size and the arguments of the kernel that `print_c` prints, the same in all dialects.

    The arguments are a pointer for each storage binding, in the order of the module (`Kernel.bindings`); then for each
    of them that holds a runtime-sized array its length in elements; then the uniform variable, if there is one.

    Args:
        module: checked, with one entry point.
    """
    variables = [declaration for declaration in module.declarations if isinstance(declaration, GlobalVariable)]
    buffers = [variable for variable in variables if variable.space == "storage"]
    arguments = [Argument(buffer.name, "buffer", buffer.access == "read_write") for buffer in buffers]
    for buffer in buffers:
        runtime = runtime_array(buffer.type)
        if runtime is not None:
            start, array = runtime
            arguments.append(Argument(buffer.name, "length", start=start, stride=_stride(array.element)))
    for variable in variables:
        if variable.space == "uniform" and variable.type is not None:
            arguments.append(Argument(variable.name, "uniform", size=size_of(variable.type)))
    return Interface(workgroup_size(module), tuple(arguments))


def runtime_array(type_: Type | None) -> tuple[int, Array] | None:
    """Return the offset in bytes and the type of the runtime-sized array in a binding; None if there is none."""
    match type_:
        case Array(count=None):
            return 0, type_
        case Struct(members=members):
            last = members[-1].type
            if isinstance(last, Array) and last.count is None:
                return member_offsets(type_)[-1], last
    return None


def workgroup_size(module: Module) -> tuple[int, int, int]:
    """Return the number of invocations of a workgroup along each of its three axes."""
    values = Values(module)
    for declaration in module.declarations:
        for attribute in declaration.attributes if isinstance(declaration, Function) else ():
            if attribute.name == "workgroup_size":
                sizes = [int(values.of(argument)) for argument in attribute.arguments]  # type: ignore[arg-type]
                x, y, z = [*sizes, 1, 1][:3]
                return x, y, z
    raise ValueError(f"{module.file} has no entry point")


def _stride(element: Type) -> int:
    return -(-size_of(element) // align_of(element)) * align_of(element)

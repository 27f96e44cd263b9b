"""The programs of an OpenCL device: built of their text, or of what the driver made of the same text before.

What it made is kept in the folder `opencl` of this user's cache, a file for each text, device and version of the
driver; but not with PoCL, which keeps it itself, and would compile a kernel a second time to hand it out.
"""

from __future__ import annotations

import hashlib
import os
import struct
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal as OneOf, NamedTuple

import pyopencl as cl

from ...errors import ShaderError
from ...runtime import user_cache
from ...runtime.rule_kernels import UpdateKernel
from ...wgsl.print_c import COMPILER_OPTIONS, KERNEL, Interface, interface_of, print_c, uses_subgroups
from .declarations import WITHOUT_HEADER, declared

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel
    from ...runtime.stats import Stats

__all__ = ["Program", "Programs"]

_OPTIONS = {name: " ".join(COMPILER_OPTIONS[name]) for name in ("opencl", "opencl-subgroups")}

_POCL = "Portable Computing Language"


class Program(NamedTuple):
    """A kernel that was built: its program, and what it is to be given.

    Attributes:
        built: the driver's program.
        interface: the size of a workgroup, and the arguments.
    """

    built: Any
    interface: Interface

    def prepared(self, buffers: Sequence[tuple[Any, int]], parameters: bytes) -> Any:
        """A kernel of the driver's for one launch alone, with its arguments set.

        Args:
            buffers: each of the kernel's bindings, with its size in bytes.
            parameters: the kernel's uniform block.
        """
        arguments = self.interface.arguments
        names = [argument.name for argument in arguments if argument.kind == "buffer"]
        sizes = {name: nbytes for name, (_, nbytes) in zip(names, buffers, strict=True)}
        kernel = cl.Kernel(self.built, KERNEL)
        for number, argument in enumerate(arguments):
            if argument.kind == "buffer":
                kernel.set_arg(number, buffers[number][0])
            elif argument.kind == "length":
                kernel.set_arg(number, struct.pack("I", argument.elements(sizes[argument.name])))
            else:
                kernel.set_arg(number, parameters)
        return kernel


class Programs:
    """Those of one device, each built at its first use.

    Attributes:
        keeps: what the driver makes is kept.
        declares: texts declare the functions that they call, and are built without the driver's header.
    """

    def __init__(self, context: Any, device: Any, stats: Stats, has_subgroups: bool = False) -> None:
        """None yet."""
        self._has_subgroups = has_subgroups
        self._context = context
        self._device = device
        self._is_processor = bool(device.type & cl.device_type.CPU)
        self._stats = stats
        self._known: dict[Kernel, Program] = {}
        platform = device.platform
        names = (platform.name, platform.version, device.name, device.version, device.driver_version)
        self._key = "\n".join((*names, *_OPTIONS.values(), "")).encode()
        self._folder = os.path.join(user_cache.folder(), "opencl")
        self.declares = platform.name.strip() == _POCL
        self.keeps = not self.declares

    def of(self, kernel: Kernel) -> Program:
        """The program of a kernel.

        Raises:
            ShaderError: the driver's compiler refuses it.
        """
        known = self._known.get(kernel)
        if known is None:
            known = self._known[kernel] = self._made(kernel)
            self._stats.pipelines += 1
        return known

    def clear(self) -> None:
        """Forget all of them; the files stay."""
        self._known.clear()

    def _made(self, kernel: Kernel) -> Program:
        module = self._suited(kernel).module
        dialect: OneOf["opencl", "opencl-subgroups"] = "opencl"
        if self._has_subgroups and uses_subgroups(module):
            dialect = "opencl-subgroups"
        text = print_c(module, dialect, robust=not kernel.stays_in_bounds)
        return Program(self._built(kernel.name, text, dialect), interface_of(module))

    def _suited(self, kernel: Kernel) -> Kernel:
        """The kernel as this device runs it fastest; it is launched, and computes, the same."""
        if not (self._is_processor and isinstance(kernel, UpdateKernel)):
            return kernel
        made = UpdateKernel(kernel.rule, kernel.part, kernel.flags, kernel.stored)
        made.workgroup, made.in_runs = kernel.workgroup, True
        return made

    def _built(self, name: str, text: str, dialect: str) -> Any:
        path = os.path.join(self._folder, hashlib.sha256(self._key + text.encode()).hexdigest())
        if self.keeps:
            kept = user_cache.sealed(path)
            with suppress(cl.Error):  # of a file that another version of the driver took
                if kept is not None:
                    return self._build(cl._cl._Program(self._context, [self._device], [kept]), _OPTIONS[dialect])
        program = self._compiled(name, text, dialect)
        if self.keeps:
            with suppress(OSError):  # without a folder that can be written the driver builds it again
                user_cache.write_sealed(path, program.get_info(cl.program_info.BINARIES)[0])
        return program

    def _compiled(self, name: str, text: str, dialect: str = "opencl") -> Any:
        options, may_declare = _OPTIONS[dialect], dialect == "opencl"
        if may_declare and self.declares:
            try:
                return self._build(cl._cl._Program(self._context, declared(text)), f"{options} {WITHOUT_HEADER}")
            except cl.RuntimeError as error:
                if not _is_refusal(error):
                    raise
        try:
            program = self._build(cl._cl._Program(self._context, text), options)
        except cl.RuntimeError as error:
            if not _is_refusal(error):
                raise
            why = f"refused by the device's compiler: {error}"
            raise ShaderError(why, file=name, line=1, column=1) from error
        if may_declare:
            self.declares = False  # the driver's headers are others
        return program

    def _build(self, program: Any, options: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # what compilers remark is of no use to users
            return program.build(options.encode())


def _is_refusal(error: Any) -> bool:
    """It was the text that the compiler would not take."""
    return bool(error.code == cl.status_code.BUILD_PROGRAM_FAILURE)

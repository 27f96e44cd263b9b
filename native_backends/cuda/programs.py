"""The kernels of a CUDA device: machine code that NVIDIA's compiler makes of their text, or made of it before.

It is kept in the folder `cuda` of this user's cache, a file for each text, architecture and version of the compiler,
which begins with the SHA-256 of the rest. For a GPU that is newer than the compiler the file holds PTX, which the
driver compiles, and keeps itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...errors import OptirsError, ShaderError
from ...runtime import nvrtc, user_cache
from ...wgsl.print_c import COMPILER_OPTIONS, KERNEL, Interface, interface_of, print_c
from ..compiler_pool import CompilerPool
from . import driver

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel
    from ...runtime.stats import Stats

__all__ = ["Arguments", "Program", "Programs"]

_ALIGNED = 16
_WORD = ctypes.sizeof(ctypes.c_void_p)


class Arguments:
    """The values of a kernel's arguments, as a launch is given them: addresses of bytes that stay where they are.

    Attributes:
        address: of the table of addresses.
    """

    __slots__ = ("_table", "_values", "address")

    def __init__(self, values: Sequence[bytes]) -> None:
        """Copy the values, each in the layout of its type."""
        offsets, size = [], 0
        for value in values:
            offsets.append(size)
            size += -(-len(value) // _ALIGNED) * _ALIGNED
        self._values = ctypes.create_string_buffer(b"".join(_padded(value) for value in values), max(size, 1))
        address = ctypes.addressof(self._values)
        self._table = (ctypes.c_void_p * max(len(offsets), 1))(*(address + offset for offset in offsets))
        self.address = ctypes.addressof(self._table)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % _ALIGNED)


class Program(NamedTuple):
    """A kernel that was loaded.

    Attributes:
        function: the driver's.
        interface: the size of a block, and the arguments.
    """

    function: driver.Handle
    interface: Interface

    def arguments(self, buffers: Sequence[tuple[int, int]], parameters: bytes) -> Arguments:
        """Return the argument values of a launch, in the order of the kernel's interface.

        Args:
            buffers: for each of the kernel's bindings its address and its size in bytes.
            parameters: the kernel's uniform block.
        """
        names = [argument.name for argument in self.interface.arguments if argument.kind == "buffer"]
        bound = dict(zip(names, buffers, strict=True))
        values = []
        for argument in self.interface.arguments:
            if argument.kind == "buffer":
                values.append(bound[argument.name][0].to_bytes(_WORD, "little"))
            elif argument.kind == "length":
                values.append(argument.elements(bound[argument.name][1]).to_bytes(4, "little"))
            else:
                values.append(parameters.ljust(argument.size, b"\0"))
        return Arguments(values)


class Programs:
    """Those of one device, each loaded at its first use."""

    def __init__(self, capability: int, stats: Stats) -> None:
        """For GPUs of this compute capability: 90 for 9.0."""
        self._stats = stats
        self._known: dict[Kernel, Program] = {}
        self._modules: list[driver.Handle] = []
        served = nvrtc.architectures()
        self._kind: Literal["ptx", "cubin"] = "cubin" if capability in served else "ptx"
        self._arch = f"sm_{max(architecture for architecture in served if architecture <= capability)}"
        version = ".".join(map(str, nvrtc.version()))
        self._key = "\n".join((version, self._arch, self._kind, *COMPILER_OPTIONS["cuda"], "")).encode()
        self._folder = os.path.join(user_cache.folder(), "cuda")
        self._compilers = CompilerPool[bytes]()

    def expect(self, kernel: Kernel) -> None:
        """Have it compiled in another thread: it will be asked for."""
        if kernel not in self._known and kernel not in self._compilers:
            text = print_c(kernel.module, "cuda", robust=not kernel.stays_in_bounds)
            self._compilers.start(kernel, partial(self._image, kernel.name, text))

    def of(self, kernel: Kernel) -> Program:
        """The program of a kernel.

        Raises:
            ShaderError: the compiler refuses it.
        """
        known = self._known.get(kernel)
        if known is None:
            known = self._known[kernel] = self._made(kernel)
            self._stats.pipelines += 1
        return known

    def close(self) -> None:
        """Unload all of them; the files stay."""
        self._compilers.close()
        for module in self._modules:
            driver.unload_module(module)
        self._modules.clear()
        self._known.clear()

    def _made(self, kernel: Kernel) -> Program:
        text = print_c(kernel.module, "cuda", robust=not kernel.stays_in_bounds)
        image = self._compilers.take(kernel) or self._image(kernel.name, text)
        try:
            module = driver.load_module(image)
        except driver.CudaError:  # of a file that another version of the driver took
            module = driver.load_module(self._compiled(kernel.name, text))
        self._modules.append(module)
        return Program(driver.function_of(module, KERNEL), interface_of(kernel.module))

    def _image(self, name: str, text: str) -> bytes:
        """Return the bytes of a program to load, from the cache or compiled. A damaged file is compiled again."""
        kept = user_cache.sealed(self._path(text))
        return self._compiled(name, text) if kept is None else kept

    def _path(self, text: str) -> str:
        return os.path.join(self._folder, hashlib.sha256(self._key + text.encode()).hexdigest())

    def _compiled(self, name: str, text: str) -> bytes:
        try:
            image = nvrtc.compile_cuda(text, self._arch, self._kind)
        except OptirsError as error:
            raise ShaderError(f"refused by the device's compiler: {error}", file=name, line=1, column=1) from error
        if self._kind == "ptx":
            image += b"\0"
        with suppress(OSError):  # without a folder that can be written it is compiled again
            user_cache.write_sealed(self._path(text), image)
        return image

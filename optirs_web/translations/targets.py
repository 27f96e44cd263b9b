"""The targets by name: what prints a kernel for each of them, and which compilers of others some of that needs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..runtime.choosing.packages import reason
from ..runtime.kernels import Kernel
from ..runtime.numba_texts import numba_loops
from ..runtime.nvrtc import MISSING as NO_NVRTC, compile_cuda
from ..runtime.registry import device
from ..wgsl.print_c import print_c
from ..wgsl.print_python import print_python
from .naga import TARGETS as NAGA, Naga, missing_naga

__all__ = ["TARGETS", "NoTextError", "is_ours", "missing_compiler", "readable", "translate"]

_ARCH = "sm_80"
_WORDS_IN_A_LINE = 8


class NoTextError(UnsupportedError):
    """The kernel is nothing in that language, whatever is installed."""


class _Target(NamedTuple):
    """What prints a kernel, given the oldest GPUs that it is for too; what is missing here for that, or "".

    A target without the latter takes no compiler but ours.
    """

    text: Callable[[Kernel, str], str | bytes]
    missing: Callable[[], str] | None = None


def translate(kernel: Kernel, target: str, arch: str | None = None) -> str | bytes:
    """A kernel in the language of one of the `TARGETS`.

    Args:
        kernel: it may be of any kind.
        target: its name.
        arch: of "ptx": the oldest GPUs that it is for, "sm_80" by default.

    Returns:
        Text; of "spirv" the words as bytes, the lowest first.

    Raises:
        NoTextError: there is no such text of this kernel: in that language it is written by hand.
        UnsupportedError: StableHLO, of a kernel whose shapes are not known; the compiler does not know `arch`; naga is
            not installed.
        DeviceNotAvailableError: NVIDIA's compiler or JAX is not installed.
        ShaderError: naga refuses the kernel.
        OptirsError: NVIDIA's compiler refuses it.
    """
    return TARGETS[target].text(kernel, arch or _ARCH)


def readable(made: str | bytes) -> tuple[str, str]:
    """Text to read, and how it would be better: SPIR-V as spirv-dis prints it, or without that as numbers."""
    if isinstance(made, str):
        return made.rstrip("\n"), ""
    if shutil.which("spirv-dis"):
        command = ["spirv-dis", "--no-color", "-"]
        said = subprocess.run(command, input=made, capture_output=True, check=True).stdout.decode()
        return said.rstrip("\n"), ""
    numbers = [f"0x{word:08x}" for (word,) in struct.iter_unpack("<I", made)]
    lines = (numbers[first : first + _WORDS_IN_A_LINE] for first in range(0, len(numbers), _WORDS_IN_A_LINE))
    return "\n".join(map(" ".join, lines)), "spirv-dis would print this as text; Debian has it in spirv-tools"


def is_ours(target: str) -> bool:
    """Whether the target takes no compiler but this library, and so is there everywhere and at once."""
    return TARGETS[target].missing is None


def missing_compiler(target: str) -> str:
    """Which compiler a target lacks here and how to install it, or "". It looks for packages and loads none."""
    missing = TARGETS[target].missing
    return missing() if missing else ""


def _lacks(package: str, message: str) -> Callable[[], str]:
    def missing() -> str:
        try:
            return "" if find_spec(package) else message
        except ModuleNotFoundError:  # not even what it is a part of
            return message

    return missing


def _python(kernel: Kernel, dialect: str) -> str:
    module = getattr(kernel, "map_module", None)
    if module is None:
        title, library = {"numpy": ("NumPy", "NumPy"), "jax": ("JAX", "JAX"), "numba": ("Numba", "NumPy")}[dialect]
        raise NoTextError(f"'{kernel.name}' has no {title} text: it is written by hand there, with calls of {library}")
    return print_python(module, dialect)


def _numba(kernel: Kernel, _: str) -> str:
    loops = numba_loops(kernel)
    return _python(kernel, "numba") if loops is None else loops.text


def _ptx(kernel: Kernel, arch: str) -> str:
    return compile_cuda(print_c(kernel.module, "cuda", robust=not kernel.stays_in_bounds), arch).decode()


def _stablehlo(kernel: Kernel, _: str) -> str:
    backend: Any = device("xla").backend
    text: str = backend.stablehlo(kernel)
    return text


@cache  # it holds memory that is not given back
def _naga() -> Naga:
    return Naga()


def _of_naga(target: str) -> _Target:
    def text(kernel: Kernel, _: str) -> str | bytes:
        if missing := missing_naga():
            raise UnsupportedError(missing)
        return _naga().translate(kernel.wgsl("naga"), kernel.name, target)

    return _Target(text, missing_naga)


_NO_JAX = reason("jax", ModuleNotFoundError(name="jax"))
TARGETS: Mapping[str, _Target] = {
    "wgsl": _Target(lambda kernel, _: kernel.wgsl()),
    "numpy": _Target(lambda kernel, _: _python(kernel, "numpy")),
    "numba": _Target(_numba),
    "opencl": _Target(lambda kernel, _: print_c(kernel.module, "opencl", robust=not kernel.stays_in_bounds)),
    "cuda": _Target(lambda kernel, _: print_c(kernel.module, "cuda", robust=not kernel.stays_in_bounds)),
    "ptx": _Target(_ptx, _lacks("cuda.bindings", NO_NVRTC)),
    **{target: _of_naga(target) for target in NAGA},
    "jax": _Target(lambda kernel, _: _python(kernel, "jax")),
    "stablehlo": _Target(_stablehlo, _lacks("jax", _NO_JAX)),
}
"""By the names that ``optirs-web shader --target`` takes."""

"""The targets by name: the function that prints a kernel for each, and the compilers of others that some need."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..lower.arrays import array_source
from ..runtime.choosing.packages import reason
from ..runtime.form_kernels import FormKernel
from ..runtime.kernels import Kernel
from ..runtime.map_kernels import MapKernel
from ..runtime.numba_texts import numba_loops
from ..runtime.nvrtc import MISSING as NO_NVRTC, compile_cuda
from ..runtime.registry import device
from ..wgsl.jax_dialect import JAX
from ..wgsl.numba_dialect import NUMBA
from ..wgsl.print_c import print_c
from ..wgsl.print_python import print_python
from ..wgsl.python_dialects import NUMPY, NUMPY_IN_DOUBLE, Dialect
from .naga import TARGETS as NAGA, Naga, missing_naga

__all__ = ["PYTHON_DIALECTS", "TARGETS", "NoTextError", "is_ours", "missing_compiler", "readable", "translate"]

_ARCH = "sm_80"
_WORDS_IN_A_ROW = 8


class NoTextError(UnsupportedError):
    """The kernel has no text in the language, whatever is installed."""


class _Target(NamedTuple):
    """A target.

    Attributes:
        text: prints a kernel; its second argument is the oldest architecture of GPUs to support.
        missing: returns the name of a compiler that is not installed and how to install it, or ""; None for a target
            that needs no compiler but this library.
    """

    text: Callable[[Kernel, str], str | bytes]
    missing: Callable[[], str] | None = None


def translate(kernel: Kernel, target: str, arch: str | None = None) -> str | bytes:
    """Translate a kernel to the language of one of the `TARGETS`.

    Args:
        kernel: a kernel of any kind.
        target: the target's name.
        arch: for "ptx" the oldest architecture of GPUs to support, "sm_80" by default.

    Returns:
        Text; for "spirv" the words as little-endian bytes.

    Raises:
        NoTextError: this kernel has no text in the language; the message says what runs instead.
        UnsupportedError: StableHLO, of a kernel whose shapes are not known; the compiler does not know `arch`; naga is
            not installed.
        DeviceNotAvailableError: NVIDIA's compiler or JAX is not installed.
        ShaderError: naga refuses the kernel.
        OptirsError: NVIDIA's compiler refuses it.
    """
    return TARGETS[target].text(kernel, arch or _ARCH)


def readable(translated: str | bytes) -> tuple[str, str]:
    """Return a translation as text, and a note: SPIR-V as spirv-dis prints it, or without spirv-dis as numbers."""
    if isinstance(translated, str):
        return translated.rstrip("\n"), ""
    if shutil.which("spirv-dis"):
        command = ["spirv-dis", "--no-color", "-"]
        text = subprocess.run(command, input=translated, capture_output=True, check=True).stdout.decode()
        return text.rstrip("\n"), ""
    numbers = [f"0x{word:08x}" for (word,) in struct.iter_unpack("<I", translated)]
    rows = (numbers[start : start + _WORDS_IN_A_ROW] for start in range(0, len(numbers), _WORDS_IN_A_ROW))
    return "\n".join(map(" ".join, rows)), "spirv-dis would print this as text; Debian has it in spirv-tools"


def is_ours(target: str) -> bool:
    """Return True if the target needs no compiler but this library, so that it is available everywhere."""
    return TARGETS[target].missing is None


def missing_compiler(target: str) -> str:
    """Return the compiler that a target lacks here and how to install it, or ""; no package is loaded to find out."""
    missing = TARGETS[target].missing
    return missing() if missing else ""


def _lacks(package: str, message: str) -> Callable[[], str]:
    def missing() -> str:
        try:
            return "" if find_spec(package) else message
        except ModuleNotFoundError:  # its parent package is missing too
            return message

    return missing


PYTHON_DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (NUMPY, NUMBA, JAX)}
"""The targets that print map functions as Python."""


def _python(kernel: Kernel, target: str) -> str:
    dialect = PYTHON_DIALECTS[target]
    if isinstance(kernel, MapKernel) or (isinstance(kernel, FormKernel) and kernel.layout != "windows"):
        if dialect is NUMBA:
            raise NoTextError(f"'{kernel.name}' has no Numba text: NumPy runs it there")
        is_map = isinstance(kernel, MapKernel)
        return array_source(kernel.form, NUMPY_IN_DOUBLE if is_map and dialect is NUMPY else dialect)
    module = getattr(kernel, "map_module", None)
    if module is None:
        title, library = {"numpy": ("NumPy", "NumPy"), "jax": ("JAX", "JAX"), "numba": ("Numba", "NumPy")}[target]
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


@cache  # an instance holds memory that is never freed
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
"""The targets by the names that ``optirs-web shader --target`` takes."""

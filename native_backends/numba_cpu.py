"""The processor, through Numba where that has a form of a kernel and it pays, otherwise through NumPy.

OPTIRS_CPU=numpy leaves Numba alone; OPTIRS_CPU=numba compiles every kernel at its first launch. OPTIRS_CPU_THREADS is
how many threads a kernel may use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.backend import AdapterInfo
from ..runtime.choosing import packages
from .cpu import CpuBackend

if TYPE_CHECKING:
    from ..runtime.kernels import Kernel
    from .numba_kernels import NumbaKernels

__all__ = ["NumbaBackend", "NumbaInfo", "with_numba"]

_CHOICES = ("numba", "numpy")


@dataclass(frozen=True, slots=True)
class NumbaInfo(AdapterInfo):
    """The processor where Numba is used."""


def with_numba(info: AdapterInfo) -> AdapterInfo:
    """The processor as it is described where Numba is used; or why it is not there, if Numba has to be."""
    asked = os.environ.get("OPTIRS_CPU", "")
    if asked == "numpy":
        return info
    if asked not in ("", *_CHOICES):
        return _without(info, f"OPTIRS_CPU is one of {', '.join(_CHOICES)}, not '{asked}'")
    try:
        found = version("numba")
    except PackageNotFoundError as error:
        missing = ModuleNotFoundError(str(error), name="numba")
        return _without(info, packages.reason("numba", missing)) if asked else info
    reason = packages.wrong_version("numba", found)
    if asked and not reason:
        try:
            import numba  # noqa: F401
        except ImportError as error:
            reason = packages.reason("numba", error)
    if reason:
        return _without(info, reason) if asked else info
    known = {one.name: getattr(info, one.name) for one in fields(info)}
    return NumbaInfo(**{**known, "description": info.description.replace("(", f"(Numba {found}, ")})


def _without(info: AdapterInfo, reason: str) -> AdapterInfo:
    return replace(info, description="", available=False, reason=reason, kind="")


class NumbaBackend(CpuBackend):
    """As `CpuBackend`; Numba is loaded with the first kernel that it takes."""

    def __init__(self, info: AdapterInfo) -> None:
        """Take what OPTIRS_CPU asks for."""
        super().__init__(info)
        self._at_once = os.environ.get("OPTIRS_CPU") == "numba"
        self._kernels: NumbaKernels | None = None

    def call_of(self, kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]], parameters: bytes) -> Callable[[], None]:
        if self._kernels is None:
            from .numba_kernels import NumbaKernels

            self._kernels = NumbaKernels(at_once=self._at_once)
        return self._kernels.bind(kernel, arrays, parameters)

    def close(self) -> None:
        super().close()
        self._kernels = None

"""The processor, through Numba where that has a form of a kernel and it pays, otherwise through NumPy.

OPTIRS_CPU=numpy leaves Numba alone; OPTIRS_CPU=numba compiles every kernel at its first launch. OPTIRS_CPU_THREADS is
how many threads a kernel may use. Without Numba the log says what it would save, once optimizers have taken a while.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.backend import AdapterInfo
from ....runtime.choosing import packages
from ....runtime.choosing.health import say_once
from ..device import CpuBackend

if TYPE_CHECKING:
    from ....runtime.kernels import Kernel
    from .kernels import NumbaKernels

__all__ = ["NumbaBackend", "NumbaInfo", "open_adapter", "with_numba"]

_CHOICES = ("numba", "numpy")

_WORTHWHILE = 5.0
"""Seconds that NumPy spends on a kernel of an optimizer before the log names Numba."""

_ADVICE = (
    "Optimizer steps on 'cpu' have taken NumPy several seconds; with Numba they take a fifth of the time or less:"
    " pip install 'optirs-web[numba]' (OPTIRS_CPU=numpy silences this)"
)


@dataclass(frozen=True, slots=True)
class NumbaInfo(AdapterInfo):
    """The processor where Numba is used."""


@dataclass(frozen=True, slots=True)
class _WithoutNumba(AdapterInfo):
    """The processor where Numba would be used if it were installed."""


def with_numba(info: AdapterInfo) -> AdapterInfo:
    """The processor as it is described where Numba is used; or why it is not there, if Numba has to be."""
    choice = os.environ.get("OPTIRS_CPU", "")
    if choice == "numpy":
        return info
    if choice not in ("", *_CHOICES):
        return _refused(info, f"OPTIRS_CPU must be one of {', '.join(_CHOICES)}, not '{choice}'")
    try:
        installed = version("numba")
    except PackageNotFoundError as error:
        missing = ModuleNotFoundError(str(error), name="numba")
        return _refused(info, packages.reason("numba", missing)) if choice else _as(_WithoutNumba, info)
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return _refused(info, "NUMBA_DISABLE_JIT keeps Numba from compiling: unset it") if choice else info
    reason = packages.wrong_version("numba", installed)
    if choice and not reason:
        try:
            import numba  # noqa: F401
        except ImportError as error:
            reason = packages.reason("numba", error)
    if reason:
        return _refused(info, reason) if choice else _as(_WithoutNumba, info)
    return _as(NumbaInfo, replace(info, description=info.description.replace("(", f"(Numba {installed}, ")))


def open_adapter(info: AdapterInfo) -> CpuBackend:
    """Open a processor that `with_numba` described as one with Numba or without."""
    return NumbaBackend(info) if isinstance(info, NumbaInfo) else _AdvisingBackend(info)


def _as(kind: type[AdapterInfo], info: AdapterInfo) -> AdapterInfo:
    return kind(**{field.name: getattr(info, field.name) for field in fields(info)})


def _refused(info: AdapterInfo, reason: str) -> AdapterInfo:
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
            from .kernels import NumbaKernels  # the printer and parser of WGSL, as in `CpuBackend.call_of`

            self._kernels = NumbaKernels(at_once=self._at_once)
        return self._kernels.bind(kernel, arrays, parameters)

    def close(self) -> None:
        super().close()
        self._kernels = None


class _AdvisingBackend(CpuBackend):
    """As `CpuBackend`; says once where Numba would save much time."""

    def __init__(self, info: AdapterInfo) -> None:
        super().__init__(info)
        self._seconds: dict[Kernel, float] = defaultdict(float)

    def call_of(self, kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]], parameters: bytes) -> Callable[[], None]:
        from ....runtime.rule_kernels import RuleKernel  # 7 ms that a list of devices saves

        call = super().call_of(kernel, arrays, parameters)
        if not isinstance(kernel, RuleKernel):
            return call

        def run() -> None:
            start = perf_counter()
            call()
            self._count(kernel, perf_counter() - start)

        return run

    def _count(self, kernel: Kernel, seconds: float) -> None:
        self._seconds[kernel] += seconds
        if self._seconds[kernel] >= _WORTHWHILE:
            self._seconds[kernel] = -math.inf
            from ....runtime.numba_texts import numba_loops  # 10 ms, after seconds of steps

            if numba_loops(kernel) is not None:
                say_once(_ADVICE, is_trouble=True)

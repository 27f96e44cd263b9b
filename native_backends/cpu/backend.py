"""The device `cpu`: the processor, through NumPy (`device`) or, where it is installed, Numba (`numba.backend`)."""

from __future__ import annotations

import platform
import sys

import numpy as np

from ...runtime.backend import AdapterInfo
from ...runtime.choosing.packages import wrong_version
from .device import CpuBackend

if sys.platform != "emscripten":  # for which there is no Numba
    from .numba.backend import open_adapter, with_numba

__all__ = ["list_adapters", "open_backend"]


def list_adapters(name: str) -> list[AdapterInfo]:
    """Return the processor, which is there wherever NumPy is."""
    if int(np.__version__.split(".")[0]) < 2:
        return [AdapterInfo(name, 0, "", available=False, reason=wrong_version("numpy", np.__version__))]
    adapter = AdapterInfo(name, 0, f"{platform.machine()} (NumPy {np.__version__})", kind="cpu")
    return [adapter if sys.platform == "emscripten" else with_numba(adapter)]


def open_backend(info: AdapterInfo) -> CpuBackend:
    """Open the processor as a device."""
    return CpuBackend(info) if type(info) is AdapterInfo else open_adapter(info)

"""The device `cpu` with a setting of OPTIRS_CPU, next to the one that all tests share."""

import os
from unittest import mock

from requirements import missing

from optirs_web.native_backends.cpu import backend as cpu
from optirs_web.native_backends.cpu.numba.backend import NumbaInfo
from optirs_web.runtime.device import Device

__all__ = ["cpu_device"]


def cpu_device(choice):
    """The processor where OPTIRS_CPU is "numpy", "numba", or "": what pays. A skip or a failure without Numba."""
    with mock.patch.dict(os.environ, {"OPTIRS_CPU": choice}):
        (info,) = cpu.list_adapters("cpu")
        if choice != "numpy" and not isinstance(info, NumbaInfo):
            missing("numba", info.reason or "Numba is not installed")
        return Device(cpu.open_backend(info))

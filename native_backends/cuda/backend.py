"""The device `cuda`: which GPUs of NVIDIA there are, or why none is. `device` has a GPU's commands."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

from ...errors import DeviceNotAvailableError
from ...runtime import nvrtc
from ...runtime.backend import AdapterInfo
from ...runtime.tuner.attaching import attach_choices
from ..forks import Forks

if TYPE_CHECKING:
    from .device import CudaBackend
    from .driver import CudaError, Device

__all__ = ["list_adapters", "open_backend"]

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_BINDINGS = "NVIDIA's package cuda-bindings is not installed: pip install 'optirs-web[cuda]'"
_INSTALL = (
    "install NVIDIA's driver, version 580 or newer (nvidia.com/drivers; Debian, Ubuntu: apt install nvidia-driver)"
)
_CONTAINER = "in a container, start it with `docker run --gpus all` (NVIDIA Container Toolkit)"
_CARDS = "/proc/driver/nvidia/gpus"  # a folder for each card that the kernel's part of the driver has

# What cuInit says where it is not the driver that is missing, by CUDA's number of the error.
_ADVICE = {
    2: "the GPU or the host is out of memory: end the processes that nvidia-smi shows",
    3: "this process was forked from one that had looked for GPUs: start it with 'spawn'",
    34: "a stub driver, for building only, is found first: remove the CUDA toolkit's folder "
    "'stubs' from LD_LIBRARY_PATH",
    46: "another process uses the GPU exclusively: end it, or `sudo nvidia-smi -c 0`",
    304: "this user may not open /dev/nvidia*, or a container lacks them: " + _CONTAINER,
    802: "the GPUs are being set up, or their fabric manager is not running: systemctl start nvidia-fabricmanager",
    803: "the driver's library and its kernel module have different versions, as after an update: restart the "
    "machine, or the container",
    804: "the package cuda-compat is for data-center GPUs: uninstall it, or remove it from LD_LIBRARY_PATH",
    999: "often its module nvidia_uvm is missing: sudo modprobe nvidia_uvm, or restart the machine",
}
_NO_GPU = 100

_forks = Forks("CUDA")


def list_adapters(name: str) -> list[AdapterInfo]:
    """An adapter for each GPU that can run the kernels; if there is none, one entry that says what to do."""
    adapters: list[AdapterInfo] = []
    reason = _forks.reason or _missing()
    if not reason:
        devices, reason = _devices()
        lacks = {device.ordinal: _lack(device) for device in devices}
        usable = [device for device in devices if not lacks[device.ordinal]]
        adapters = [_adapter_of(name, index, device) for index, device in enumerate(usable)]
        if devices and not adapters:
            reason = "; ".join(f"{device.name} {lacks[device.ordinal]}" for device in devices)
    return adapters or [AdapterInfo(name, 0, "", available=False, reason=reason)]


def _missing() -> str:
    """Return why CUDA cannot be used, or "". The driver is checked before the packages, which alone are no use."""
    if sys.platform == "darwin":
        return "NVIDIA has no driver for macOS; use metal"
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return f"{_DRIVER} (NVIDIA's driver) cannot be loaded: {_without_driver()}"
    try:
        from . import driver  # noqa: F401
    except ImportError as error:
        return f"{_BINDINGS} ({error})"
    try:
        nvrtc.version()
    except DeviceNotAvailableError as error:
        return str(error)
    return ""


def _without_driver() -> str:
    if os.path.isdir(_CARDS):  # the kernel has the driver, and this process not
        return f"the machine has the driver, but this environment hides it: {_CONTAINER}"
    return f"if there is an NVIDIA GPU, {_INSTALL}; {_CONTAINER}"


def _devices() -> tuple[list[Device], str]:
    """Return every GPU that the driver has, and the message for when there is none."""
    from . import driver

    try:
        driver.initialize()
        supported, needed = driver.version(), nvrtc.version()
        if supported[0] < needed[0]:
            return [], (
                f"NVIDIA's driver supports CUDA {supported[0]}.{supported[1]}, but the installed compiler needs "
                f"{needed[0]}.0 or newer: {_INSTALL}"
            )
        return driver.devices(), _no_gpu()
    except driver.CudaError as error:
        return [], _no_gpu() if error.code == _NO_GPU else _refused(error)
    except RuntimeError as error:  # a function that an old driver has not
        return [], f"NVIDIA's driver is too old for cuda-bindings ({error}): {_INSTALL}"


def _refused(error: CudaError) -> str:
    advice = _ADVICE.get(error.code)
    return f"NVIDIA's driver does not start: {error}" + (f": {advice}" if advice else "")


def _no_gpu() -> str:
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return f"NVIDIA's driver is installed, but CUDA_VISIBLE_DEVICES={shown} hides every GPU: unset or correct it"
    return f"NVIDIA's driver is installed but finds no NVIDIA GPU: see nvidia-smi; {_CONTAINER}"


def _lack(device: Device) -> str:
    """Return why a GPU cannot run our kernels, as the predicate of a sentence, or "" if it can."""
    lowest = nvrtc.architectures()[0]
    if device.capability < lowest:
        number = ".".join(map(str, nvrtc.version()))
        return (
            f"has compute capability {_dotted(device.capability)}; the compiler of CUDA {number} supports "
            f"{_dotted(lowest)} and newer: use vulkan or opencl"
        )
    if device.is_prohibited:
        return "is in prohibited compute mode: sudo nvidia-smi -c 0"
    return ""


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _adapter_of(name: str, index: int, device: Device) -> AdapterInfo:
    from . import driver

    major, minor = driver.version()
    return AdapterInfo(
        name=name,
        index=index,
        description=f"{device.name} (compute capability {_dotted(device.capability)}, driver of CUDA {major}.{minor})",
        kind="integrated" if device.is_integrated else "discrete",
        memory=device.memory,
        features=frozenset({"shader-f16", "subgroups"}),  # the text that is printed converts by itself
        bus=device.bus,
    )


def open_backend(info: AdapterInfo) -> CudaBackend:
    """Open an adapter that `list_adapters` gave.

    Raises:
        DeviceNotAvailableError: the driver refuses, or this process was forked from one that used CUDA.
    """
    if _forks.reason:
        raise DeviceNotAvailableError(_forks.reason)
    from .device import CudaBackend

    usable = [device for device in _devices()[0] if not _lack(device)]
    if info.index >= len(usable):
        raise DeviceNotAvailableError(f"{info} has disappeared: see nvidia-smi")
    backend = CudaBackend(usable[info.index], info)
    _forks.add(backend)
    attach_choices(backend)
    return backend

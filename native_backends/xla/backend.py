"""The device `xla`: the devices of JAX's default platform, or why there is none. `device` has a device's commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import jax

from ...errors import DeviceNotAvailableError
from ...runtime.backend import AdapterInfo
from ...runtime.choosing.packages import wrong_version
from ..forks import Forks

if TYPE_CHECKING:
    from .device import XlaBackend

__all__ = ["list_adapters", "open_backend"]

_forks = Forks("JAX")


def list_adapters(name: str) -> list[AdapterInfo]:
    """The devices of JAX's default platform; if there is none, one entry that says what to do."""
    reason = _forks.reason or wrong_version("jax", jax.__version__)
    try:
        devices = [] if reason else jax.local_devices()
    except (AssertionError, RuntimeError) as error:  # it asserts that a platform of those asked for is there
        reason = _no_platform(error)
    if reason:
        return [AdapterInfo(name, 0, "", available=False, reason=reason)]
    _forks.use()  # to be asked, JAX has started its platforms
    return [
        AdapterInfo(
            name,
            number,
            f"{device.platform}: {device.device_kind} (JAX {jax.__version__})",
            kind="cpu" if device.platform == "cpu" else "",
        )
        for number, device in enumerate(devices)
    ]


def _no_platform(error: Exception) -> str:
    setting = os.environ.get("JAX_PLATFORMS")
    message = f"JAX finds no device ({' '.join(str(error).split()) or 'of the platforms that it was told'})"
    installs = "pip install 'jax[cuda13]' for an NVIDIA GPU, 'jax[tpu]' on a TPU VM"
    return (
        f"{message}: unset JAX_PLATFORMS={setting}, or install JAX for it: {installs}"
        if setting
        else f"{message}: {installs}"
    )


def open_backend(info: AdapterInfo) -> XlaBackend:
    """Open an adapter that `list_adapters` gave.

    Raises:
        DeviceNotAvailableError: this process was forked from one that used JAX.
    """
    if _forks.reason:
        raise DeviceNotAvailableError(_forks.reason)
    from .device import XlaBackend  # with the printer and parser of WGSL, which a list of devices does not need

    backend = XlaBackend(info, jax.local_devices()[info.index])
    _forks.add(backend)
    return backend

"""A check that a device's f16 is our float16: WGSL leaves open how it rounds, and how it treats subnormal numbers."""

from __future__ import annotations

import sys
from functools import partial
from weakref import WeakKeyDictionary

from .backend import AllocationFailed
from .device import Device
from .kernels import cooperative
from .program import NotReadyError

__all__ = ["converts_float16"]

_WORKGROUPS = 256  # of 256 invocations: one for each float16

_known: WeakKeyDictionary[Device, bool] = WeakKeyDictionary()


def converts_float16(device: Device) -> bool:
    """The device has `shader-f16`, and converts as `shaders/lib/storage.wgsl` does. It is asked once, and waited for.

    A page that cannot wait is told False. While a page waits its other tasks run, so it does not wait in a recording.

    Raises:
        NotReadyError: in a page, while a step is recorded.
    """
    if "shader-f16" not in device.capabilities.features:
        return False
    if device not in _known:
        if not device.can_wait:
            return False
        if sys.platform == "emscripten" and Device.recorder() is not None:
            raise NotReadyError(partial(_ask, device))
        _ask(device)
    return _known[device]


def _ask(device: Device) -> None:
    """Run the kernel that counts differences: past the device, which may be in the middle of a recording."""
    backend = device.backend
    try:
        counted = backend.allocate(4)
    except AllocationFailed:  # words need no answer
        _known[device] = False
        return
    backend.submit([backend.bind(cooperative("float16_conversions"), [(counted, 0, 4)], b"", (_WORKGROUPS, 1, 1))])
    _known[device] = not any(backend.read(counted, 0, 4))
    backend.free(counted)

"""The rates that a device is measured against: a copy of its memory, and a product by the platform's own library."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from ..runtime.buffer import View
from ..runtime.device import Device
from .libraries import rival
from .libraries.library import Library, NotOffered, is_processor
from .libraries.ours import Ours
from .timing import Side

__all__ = ["COPY", "PRODUCT", "Denominator", "denominators_of"]

COPY, PRODUCT = "copy", "peak product"

_COPIED_BYTES = 1 << 26
_SIZE_ON_PROCESSOR, _SIZE_ON_GPU = 1024, 4096
"""Rows and columns of the product."""


class Denominator(NamedTuple):
    """A call whose rate counts as the device's own: the rates of cases are shares of it.

    Attributes:
        side: the call, to be timed in the rounds of a case.
        amount: bytes that a call reads and writes, or its floating-point operations.
        by: the library that computes it, as reports name it.
    """

    side: Side
    amount: float
    by: str


def denominators_of(device: Device) -> dict[str, Denominator]:
    """Return `COPY` and `PRODUCT` of a device, with their arrays allocated.

    Raises:
        OutOfDeviceMemoryError: there is no room for them.
    """
    return {COPY: _copy(device), PRODUCT: _product(device)}


def _copy(device: Device) -> Denominator:
    nbytes = min(_COPIED_BYTES, device.capabilities.max_buffer_bytes)
    source, target = (View.whole(device.allocate_zeroed(nbytes)) for _ in range(2))

    def copy() -> None:
        device.copy(source, target)
        device.flush()

    return Denominator(Side(copy, device.synchronize), 2.0 * nbytes, "the device's copy")


def _product(device: Device) -> Denominator:
    library, by = _library(device)
    size = _SIZE_ON_PROCESSOR if is_processor(device) else _SIZE_ON_GPU
    matrix = np.ones((size, size), np.float32)
    call = library.call("product", [matrix, matrix])
    return Denominator(Side(call, library.wait), 2.0 * size**3, by)


def _library(device: Device) -> tuple[Library, str]:
    """Return the library whose product is a device's peak, and its name: NumPy, torch on NVIDIA GPUs, or this one."""
    if is_processor(device):
        return rival("numpy", device), "NumPy's BLAS"
    if find_spec("torch"):
        try:
            return rival("torch", device), "torch"
        except NotOffered:
            pass
    return Ours(device), "this library, since no other is here for this device"

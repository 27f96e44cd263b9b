"""What times are compared with on a device: a copy of its memory, and a product by the platform's own library."""

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

__all__ = ["COPY", "PRODUCT", "Denominator", "denominators"]

COPY, PRODUCT = "copy", "peak product"

_COPIED = 1 << 26
_SIDES = {True: 1024, False: 4096}
"""Sizes of a product, by whether the device computes on the processor."""


class Denominator(NamedTuple):
    """A side of a race whose rate is taken as the device's own.

    Attributes:
        side: what is timed.
        amount: bytes read and written, or floating-point operations, of a call.
        by: what computes it.
    """

    side: Side
    amount: float
    by: str


def denominators(device: Device) -> dict[str, Denominator]:
    """Return the copy and the product of a device, ready to be timed."""
    return {COPY: _copy(device), PRODUCT: _product(device)}


def _copy(device: Device) -> Denominator:
    nbytes = min(_COPIED, device.capabilities.max_buffer_bytes)
    source, target = (View.whole(device.allocate_zeroed(nbytes)) for _ in range(2))

    def copy() -> None:
        device.copy(source, target)
        device.flush()

    return Denominator(Side(copy, device.synchronize), 2.0 * nbytes, "the device's copy")


def _product(device: Device) -> Denominator:
    library, by = _library(device)
    size = _SIDES[is_processor(device)]
    matrix = np.ones((size, size), np.float32)
    call = library.call("product", [matrix, matrix])
    return Denominator(Side(call, library.wait), 2.0 * size**3, by)


def _library(device: Device) -> tuple[Library, str]:
    """NumPy's BLAS for the processor, torch's cuBLAS for an NVIDIA GPU; elsewhere there is only this library."""
    if is_processor(device):
        return rival("numpy", device), "NumPy's BLAS"
    if find_spec("torch"):
        try:
            return rival("torch", device), "torch"
        except NotOffered:
            pass
    return Ours(device), "this library, since no other is here for this device"

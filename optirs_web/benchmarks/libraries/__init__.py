"""The libraries that the suite compares: this one, and rivals, which are imported on first use."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from ...runtime.device import Device
from .library import Library, NotOffered

__all__ = ["RIVALS", "Library", "NotOffered", "load", "missing", "rival"]

RIVALS = {
    "torch": ("of_torch", "Torch"),
    "jax": ("of_jax", "Jax"),
    "numpy": ("of_numpy", "NumPy"),
    "tinygrad": ("of_tinygrad", "Tinygrad"),
}
"""The module of this folder and its class for each package."""


def missing(name: str) -> str:
    """Return what to install for a rival, or "" where it is installed."""
    return "" if find_spec(name) else f"{name} is not installed: pip install {name}"


def load(names: Iterable[str]) -> None:
    """Import the rivals of these names that are installed.

    torch has to be imported before adapters are listed: its Triton and Mesa's drivers each load an LLVM, and the second
    one loaded ends the process at its first use.
    """
    for name in names:
        if not missing(name):
            import_module(name)


def rival(name: str, device: Device) -> Library:
    """Return a rival on the hardware of a device: on a GPU if the device is one, otherwise on the processor.

    Raises:
        NotOffered: it is not installed, or cannot use that hardware.
        KeyError: it is not one of `RIVALS`.
    """
    reason = missing(name)
    if reason:
        raise NotOffered(reason)
    module, class_name = RIVALS[name]
    library: Library = getattr(import_module(f"{__name__}.{module}"), class_name)(device)
    return library

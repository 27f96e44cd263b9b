"""The libraries that the suite compares: this one, and rivals that are imported when they are asked for."""

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
"""By the name of the package: the module here and its class."""


def missing(name: str) -> str:
    """Return what to install for a rival, or "" where it is installed."""
    return "" if find_spec(name) else f"{name} is not installed: pip install {name}"


def load(names: Iterable[str]) -> None:
    """Import those of these rivals that are installed.

    torch has to be imported before any device is looked for: its Triton and Mesa's drivers each have an LLVM, and what
    loads second ends the process where it is first used.
    """
    for name in names:
        if not missing(name):
            import_module(name)


def rival(name: str, device: Device) -> Library:
    """Return a rival on the hardware of a device: a GPU if that is one, otherwise the processor.

    Raises:
        NotOffered: it is not installed, or does not reach that hardware.
    """
    reason = missing(name)
    if reason:
        raise NotOffered(reason)
    module, class_name = RIVALS[name]
    made: Library = getattr(import_module(f"{__name__}.{module}"), class_name)(device)
    return made

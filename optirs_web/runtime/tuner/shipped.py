"""Choices that come with the library, by device. Each was measured there by ``benchmarks/tuner.py --shipped``.

No hardware GPU has been measured: other devices begin with the first candidate of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..backend import AdapterInfo
from .candidates import TUNABLE, Choice, Tunable

__all__ = ["SHIPPED", "shipped_for"]

SHIPPED: dict[str, dict[str, dict[str, Choice]]] = {}
"""By a part of the device's description, then by kernel, then by class of shapes."""


def shipped_for(info: AdapterInfo) -> Mapping[tuple[Tunable, str], Choice]:
    """Those for a device."""
    return {
        (TUNABLE[kernel], shape_class): choice
        for part, kernels in SHIPPED.items()
        if part.lower() in info.description.lower()
        for kernel, choices in kernels.items()
        for shape_class, choice in choices.items()
    }

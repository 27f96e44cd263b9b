"""Choices that come with the library, by device: what ``benchmarks/tuner.py --shipped`` printed there.

Two searches on SwiftShader found each of them 10% faster than the default, or more; kernels that take over 50 ms are
left out, since these are timed in few rounds. Tiles of products that were faster than other tiles are not among them:
there products are by quads. No hardware GPU has been measured: other devices begin with the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..backend import AdapterInfo
from .candidates import TUNABLE, Choice, Tunable

__all__ = ["SHIPPED", "shipped_for"]

SHIPPED: dict[str, dict[str, dict[str, Choice]]] = {
    "swiftshader": {
        "map": {
            "4096 flat 2 buffers": (256, 16),
            "4096 flat 3 buffers": (256, 16),
            "4096 strided 2 buffers": (256, 16),
            "65536 flat 2 buffers": (256, 16),
            "65536 strided 2 buffers": (64, 16),
            "1048576 flat 2 buffers": (256, 16),
        },
    },
}
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

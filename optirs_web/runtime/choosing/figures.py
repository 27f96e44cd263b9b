"""The figures that "auto" compares devices by, and where they are kept: by device, driver, machine and library."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .. import kept
from ..backend import AdapterInfo

__all__ = ["Figures", "load", "store"]

_NAME = "probe 1"
"""Changes with what is measured."""


class Figures(NamedTuple):
    """Seconds that a device takes.

    Attributes:
        copy: to copy 4 MiB in its memory.
        update: for what AdamW computes, over 1,048,576 parameters.
        product: to multiply two matrices of 256 x 256.
    """

    copy: float
    update: float
    product: float

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e3 * seconds:.2g}" for name, seconds in self._asdict().items())
        return f"{1e3 * sum(self):.2g} ms ({times})"


def load(info: AdapterInfo) -> Figures | None:
    """Return the figures of a device; None where there are none that can be used."""
    figures = kept.load(kept.device_and_machine(info)).get(_NAME)
    if not isinstance(figures, list) or len(figures) != len(Figures._fields):
        return None
    return Figures(*figures) if all(map(_is_time, figures)) else None


def store(info: AdapterInfo, figures: Figures) -> None:
    """Keep these, if that is possible."""
    kept.store_if_possible(kept.device_and_machine(info), {_NAME: figures})


def _is_time(seconds: Any) -> bool:
    return type(seconds) in (int, float) and math.isfinite(seconds) and seconds > 0

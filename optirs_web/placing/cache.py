"""The rates that were measured on this machine, kept by device, driver, machine and library."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from ..runtime import kept
from ..runtime.backend import AdapterInfo
from .rates import Rates

__all__ = ["load", "store"]

_NAME = "rates 1"
"""Changes with what is measured."""


def load(info: AdapterInfo) -> Rates | None:
    """Return the rates of a device; None where there are none that can be used."""
    curves = kept.load(kept.device_and_machine(info)).get(_NAME)
    if not isinstance(curves, dict) or not all(_is_curve(curves.get(name)) for name in Rates._fields):
        return None
    return Rates(*([(amount, seconds) for amount, seconds in curves[name]] for name in Rates._fields))


def store(info: AdapterInfo, rates: Rates) -> None:
    """Keep the rates, if that is possible."""
    kept.store_if_possible(kept.device_and_machine(info), {_NAME: rates._asdict()})


def _is_curve(curve: Any) -> bool:
    if not isinstance(curve, list) or not curve or not all(_are_positive(point) for point in curve):
        return False
    amounts = [amount for amount, _ in curve]
    return all(less < more for less, more in pairwise(amounts))


def _are_positive(point: Any) -> bool:
    return (
        isinstance(point, list)
        and len(point) == 2
        and all(type(number) in (int, float) and math.isfinite(number) and number > 0 for number in point)
    )

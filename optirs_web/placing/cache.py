"""The rates that were measured on this machine, in a file of the user's cache folder."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from ..runtime import user_cache
from ..runtime.backend import AdapterInfo
from .rates import Rates

__all__ = ["load", "store"]


def load(info: AdapterInfo) -> Rates | None:
    """Return the rates of a device; None where there are none that can be used."""
    curves = user_cache.table(_path()).get(_identity(info))
    if not isinstance(curves, dict) or not all(_is_curve(curves.get(name)) for name in Rates._fields):
        return None
    return Rates(*([(amount, seconds) for amount, seconds in curves[name]] for name in Rates._fields))


def store(info: AdapterInfo, rates: Rates) -> None:
    """Keep the rates. Where the folder cannot be written they are measured again by the next process."""
    with suppress(OSError):
        user_cache.write(_path(), json.dumps({**user_cache.table(_path()), _identity(info): rates._asdict()}))


def _path() -> str:
    return os.path.join(user_cache.folder(), "placement.json")


def _identity(info: AdapterInfo) -> str:
    """Name what rates depend on: the device with its driver, the processor and its threads, and the libraries."""
    own = f"{info.label}: {info.description}"
    return "; ".join([own, *user_cache.machine(), f"optirs-web {version('optirs-web')}"])


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

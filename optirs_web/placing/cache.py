"""What was measured on this machine, in a file of the user's cache folder."""

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

__all__ = ["Figures", "identity", "load", "store"]

Figures = dict[str, Any]
"""Curves by name, and under "operations" the seconds on each device by operation and shapes."""

_CURVES = {f"{where}.{kind}" for where in ("cpu", "gpu") for kind in ("light", "heavy", "reduction", "product")}
_CURVES |= {"up", "down"}


def identity(devices: list[AdapterInfo]) -> str:
    """What the figures hold for: the devices with their drivers, the processor and its threads, and the libraries."""
    each = (f"{one.label}: {one.description}" for one in devices)
    return "; ".join([*each, *user_cache.machine(), f"optirs-web {version('optirs-web')}"])


def load(key: str) -> Figures | None:
    """The figures for an `identity`; None where there are none that can be used."""
    figures = user_cache.table(_path()).get(key)
    return figures if _is_whole(figures) else None


def store(key: str, figures: Figures) -> None:
    """Keep these. Where the folder cannot be written they are measured again next time."""
    with suppress(OSError):
        user_cache.write(_path(), json.dumps({**user_cache.table(_path()), key: figures}))


def _path() -> str:
    return os.path.join(user_cache.folder(), "placement.json")


def _is_whole(figures: Any) -> bool:
    if not isinstance(figures, dict) or not isinstance(figures.get("operations"), dict):
        return False
    pairs = figures["operations"].values()
    return all(_is_curve(figures.get(name)) for name in _CURVES) and all(_are_positive(one) for one in pairs)


def _is_curve(curve: Any) -> bool:
    if not isinstance(curve, list) or not curve or not all(_are_positive(point) for point in curve):
        return False
    amounts = [amount for amount, _ in curve]
    return all(less < more for less, more in pairwise(amounts))


def _are_positive(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(one) in (int, float) and math.isfinite(one) and one > 0 for one in pair)
    )

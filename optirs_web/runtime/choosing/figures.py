"""What probes have measured, in a file of the user's cache folder: by device, driver and version of the library."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from importlib.metadata import version
from typing import Any, NamedTuple

from .. import user_cache
from ..backend import AdapterInfo

__all__ = ["Figures", "load", "store"]

_FORMAT = "probe 1"
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
        each = ", ".join(f"{name} {1e3 * seconds:.2g}" for name, seconds in self._asdict().items())
        return f"{1e3 * sum(self):.2g} ms ({each})"


def load(info: AdapterInfo) -> Figures | None:
    """The figures of a device; None where there are none that can be used."""
    found = user_cache.table(_path()).get(_identity(info))
    if not isinstance(found, list) or len(found) != len(Figures._fields):
        return None
    return Figures(*found) if all(map(_is_time, found)) else None


def store(info: AdapterInfo, figures: Figures) -> None:
    """Keep these. Where the folder cannot be written they are measured again by the next process."""
    with suppress(OSError):
        user_cache.write(_path(), json.dumps({**user_cache.table(_path()), _identity(info): figures}, indent=1))


def _path() -> str:
    return os.path.join(user_cache.folder(), "probes.json")


def _identity(info: AdapterInfo) -> str:
    """The description of a device has its driver's version, where that is known."""
    own = f"{info.label}: {info.description}"
    return "; ".join([_FORMAT, own, *user_cache.machine(), f"optirs-web {version('optirs-web')}"])


def _is_time(one: Any) -> bool:
    return type(one) in (int, float) and math.isfinite(one) and one > 0

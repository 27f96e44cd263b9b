"""The form in which a choice is kept: JSON that says for which device and kernels it was measured."""

from __future__ import annotations

import hashlib
import json
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ...wgsl import rule_shell, shell, update_shell
from ..backend import AdapterInfo
from .candidates import TUNABLE, Choice, Tunable

__all__ = ["Record", "key_of", "parse_record", "record_text"]

_FORMAT = 1
_FILES = (
    "kernels/matmul",
    "kernels/batched_matmul",
    "kernels/sum",
    "lib/matrices",
    "lib/quads",
    "lib/subgroups",
    "lib/tile",
    "lib/workgroup",
)


class Record(NamedTuple):
    """A choice for a shape of work."""

    tunable: Tunable
    shape_class: str
    choice: Choice

    @property
    def name(self) -> str:
        """Of the place where it is kept."""
        return f"{self.tunable.name} {self.shape_class}"


@cache
def _sources() -> str:
    """Changes with the kernels and with what can be chosen for them, and with it what was measured loses its worth."""
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update(pkgutil.get_data("optirs_web.shaders", f"{name}.wgsl") or b"")
    digest.update(shell.element_loop("", [], []).encode())
    digest.update(update_shell.block_loop("", "", rule_shell.WORKGROUP).encode())
    digest.update(repr([(one.name, one.numbers, one.candidates) for one in TUNABLE.values()]).encode())
    return digest.hexdigest()[:16]


def _device(info: AdapterInfo, driver: str) -> str:
    """What the driver calls the device; its description holds the driver's version where that is known."""
    return " ".join(one for one in (info.name, info.description, driver) if one)


def key_of(info: AdapterInfo, driver: str = "") -> str:
    """The name of a device with a driver, and of the kernels of this version of the library."""
    return hashlib.sha256(f"{_device(info, driver)}|{_sources()}".encode()).hexdigest()[:16]


def record_text(record: Record, info: AdapterInfo, seconds: Mapping[Choice, float], driver: str = "") -> str:
    """A record as JSON, with what was measured for those who read it."""
    tunable, shape_class, choice = record
    content = {
        "format": _FORMAT,
        "device": _device(info, driver),
        "sources": _sources(),
        "kernel": tunable.name,
        "shape_class": shape_class,
        "choice": dict(zip(tunable.numbers, choice, strict=True)),
        "microseconds": {"x".join(map(str, one)): round(1e6 * value, 3) for one, value in seconds.items()},
    }
    return json.dumps(content, indent=1)


def parse_record(text: str, info: AdapterInfo, driver: str = "") -> Record:
    """The record in a text.

    Raises:
        ValueError: it is none, or one of another device or version.
    """
    try:
        content = json.loads(text)
    except RecursionError:  # brackets in brackets
        content = None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError("it has another format")
    if content.get("device") != _device(info, driver) or content.get("sources") != _sources():
        raise ValueError("it is of another device, driver or version")
    tunable, numbers = TUNABLE.get(str(content.get("kernel"))), content.get("choice")
    if tunable is None or not isinstance(numbers, dict) or not isinstance(content.get("shape_class"), str):
        raise ValueError("it names no kernel, shape and choice")
    choice = tuple(numbers.get(one) for one in tunable.numbers)
    if choice not in tunable.candidates:
        raise ValueError(f"{numbers} cannot be chosen for {tunable.name}")
    return Record(tunable, content["shape_class"], choice)

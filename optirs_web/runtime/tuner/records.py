"""The form in which a choice is kept: with the kernels that it was measured for, and what was measured."""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ...lower.maps import map_source
from ...wgsl import rule_shell, update_shell
from ..map_kernels import elementwise
from .candidates import TUNABLE, Choice, Tunable

__all__ = ["Record", "figure_of", "parse_record"]

_FILES = (
    "kernels/matmul",
    "kernels/batched_matmul",
    "lib/matrices",
    "lib/quads",
    "lib/subgroups",
    "lib/tile",
    "lib/workgroup",
    "rows/sum",
)


class Record(NamedTuple):
    """A choice for a shape of work."""

    tunable: Tunable
    shape_class: str
    choice: Choice

    @property
    def name(self) -> str:
        """The name that it is kept by."""
        return f"{self.tunable.name} {self.shape_class}"


@cache
def _sources() -> str:
    """Changes with the kernels and with what can be chosen for them, and with it what was measured loses its worth."""
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update(pkgutil.get_data("optirs_web.shaders", f"{name}.wgsl") or b"")
    strided = elementwise("add", "add", ("tensor", "tensor"), 2)
    for adjacent in (False, True):
        digest.update(map_source(strided.form, strided.places, adjacent=adjacent).encode())
    digest.update(pkgutil.get_data("optirs_web", "lower/shader.py") or b"")
    digest.update(update_shell.block_loop("", "", rule_shell.WORKGROUP).encode())
    digest.update(repr([(tunable.name, tunable.numbers, tunable.candidates) for tunable in TUNABLE.values()]).encode())
    return digest.hexdigest()[:16]


def figure_of(record: Record, seconds: Mapping[Choice, float]) -> dict[str, Any]:
    """Return what is kept of a record, with what was measured for those who read it."""
    return {
        "kernels": _sources(),
        "choice": dict(zip(record.tunable.numbers, record.choice, strict=True)),
        "microseconds": {"x".join(map(str, choice)): round(1e6 * value, 3) for choice, value in seconds.items()},
    }


def parse_record(name: str, figure: Any) -> Record | None:
    """Return the record that is kept by a name; None where it was measured for other kernels.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(figure, dict) or not isinstance(figure.get("kernels"), str):
        raise ValueError("it has another form")
    if figure["kernels"] != _sources():
        return None
    kernel, _, shape_class = name.partition(" ")
    tunable, numbers = TUNABLE.get(kernel), figure.get("choice")
    if tunable is None or not isinstance(numbers, dict) or not shape_class:
        raise ValueError("it names no kernel, shape and choice")
    choice = tuple(numbers.get(number) for number in tunable.numbers)
    if choice not in tunable.candidates:
        raise ValueError(f"{numbers} cannot be chosen for {tunable.name}")
    return Record(tunable, shape_class, choice)

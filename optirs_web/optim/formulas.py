"""Formulas of schedules: calls of the map functions of ``shaders/schedules``, composed as text.

The host computes a formula in float64, printed as Python; `schedule_tables` has a device compute the same. `schedules`
has the formulas that users ask for.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from ..runtime.option_kernels import host_functions
from ..wgsl import link, package_loader, parse

__all__ = [
    "LARGEST",
    "Curve",
    "Schedule",
    "absolute",
    "call",
    "delayed",
    "geometric",
    "hold",
    "imports",
    "joined",
    "plot_values",
    "ramp",
    "split_ratio",
]

Curve = Literal["linear", "cosine", "exponential"]

LARGEST = 3.4e38

Parts = tuple[str | float, ...]

_COUNT, _BASE = "count", "base"


@dataclass(frozen=True)
class Schedule:
    """A value for each count of steps.

    Attributes:
        parts: an expression of WGSL over `count` and `base`, cut at these two and at its constants, which are numbers.
        is_noisy: noise is added to it, so that it is no multiple of the base.

    Example:
        >>> from optirs_web.optim.schedules import warmup_cosine_decay_schedule
        >>> schedule = warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=6)
        >>> [round(value, 3) for value in schedule.values(8)]
        [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    parts: Parts
    is_noisy: bool = False

    @cached_property
    def constants(self) -> list[float]:
        """The constants, in the order of the expression."""
        return [part for part in self.parts if not isinstance(part, str)]

    def text(self, count: str = _COUNT, base: str = _BASE, constant: str = "k", first: int = 0) -> str:
        """The expression; constants are called `constant` and their number, from `first` on."""
        names = {_COUNT: count, _BASE: base}
        numbers = itertools.count(first)
        return "".join(
            names.get(part, part) if isinstance(part, str) else f"{constant}{next(numbers)}" for part in self.parts
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Schedule, (self.parts, self.is_noisy)  # its function on the host has no name to be pickled by

    @cached_property
    def _function(self) -> Callable[..., float]:
        return _on_host(self.text(), len(self.constants))

    def __call__(self, count: float, base: float = 1.0) -> float:
        """The value after `count` steps, in float64."""
        return self._function(float(count), base, *self.constants)

    def values(self, steps: int, base: float = 1.0) -> list[float]:
        """The values of the first steps."""
        return [self(count, base) for count in range(steps)]

    def plot(self, steps: int, path: str | os.PathLike[str] | None = None) -> Any:
        """The values of the first steps as matplotlib's Figure; and in a file, if `path` says where.

        Raises:
            ImportError: matplotlib is not installed (``pip install 'optirs-web[train]'``).
        """
        return plot_values(self.values(steps), path)


def plot_values(values: Sequence[float], path: str | os.PathLike[str] | None = None, name: str = "value") -> Any:
    """A Figure of values by step."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(range(len(values)), values)
    axes.set_xlabel("step")
    axes.set_ylabel(name)
    axes.grid(True, color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure.savefig(path)
    return figure


# What formulas are composed of.


def call(function: str, *constants: float, base: Parts = (_BASE,)) -> Schedule:
    """A call of a function of ``shaders/schedules``."""
    return Schedule(
        (f"{function}(", _COUNT, ", ", *base, *(part for value in constants for part in (", ", value)), ")")
    )


def hold(value: float) -> Schedule:
    """The base times a constant."""
    return Schedule((_BASE, " * ", value))


def ramp(
    start: float,
    end: float,
    steps: float,
    curve: Curve = "linear",
    power: float = 1.0,
    until: float | None = None,
    offset: float = 0.0,
) -> Schedule:
    """The base times a curve from start to end, and then the end; a cosine comes back.

    Args:
        start: the factor at first.
        end: the factor at last; of the two ends of an exponential curve none is 0.
        steps: how long the curve takes.
        curve: its kind.
        power: of a linear curve or a cosine.
        until: the count at the end where it is not `steps`, since the curve begins between two counts.
        offset: what the base is measured from, of a cosine.
    """
    if steps <= 0 or start == end or power == 0:
        return hold(end if steps <= 0 else start)
    if curve == "exponential":
        return geometric(start, end / start, steps, end)
    until = steps if until is None else until
    if curve == "linear":
        return call("polynomial", start, end, steps, until, power)
    return call("cosine", start, end, steps, until, power, offset, 2 * steps)


def geometric(
    start: float, ratio: float, steps: float = 1.0, end: float | None = None, stairs: bool = False
) -> Schedule:
    """The base times start ratio^(t / steps), not beyond `end`; with `stairs` the exponent is rounded down."""
    if end is None:
        end = -LARGEST if ratio < 1 else LARGEST
    return call("exponential", start, end, steps, *split_ratio(ratio), float(stairs))


def split_ratio(ratio: float) -> tuple[float, float]:
    """A ratio as a float32, and the logarithm of what is missing, so that high powers are right."""
    rounded = struct.unpack("<f", struct.pack("<f", ratio))[0]
    return rounded, math.log(ratio / rounded) if ratio > 0 and rounded > 0 else 0.0


def absolute(schedule: Schedule) -> Schedule:
    """The schedule of the base 1, whatever the base is."""
    return Schedule(tuple("1.0" if part == _BASE else part for part in schedule.parts), schedule.is_noisy)


def delayed(schedule: Schedule, begin: float) -> Schedule:
    """The schedule that counts from `begin` on."""
    if not begin:
        return schedule
    shifted: Parts = ("(", _COUNT, " - ", begin, ")")
    parts = (new for part in schedule.parts for new in (shifted if part == _COUNT else (part,)))
    return Schedule(tuple(parts), schedule.is_noisy)


def joined(members: Iterable[tuple[float, Schedule]]) -> Schedule:
    """Schedules one after the other, each of which counts from where it begins."""
    ordered: list[tuple[float, Schedule]] = []
    for begin, schedule in members:  # a later member ends those that begin after it
        ordered = [*(member for member in ordered if member[0] < begin), (begin, delayed(schedule, begin))]
    return Schedule(_select(ordered))


def _select(members: Sequence[tuple[float, Schedule]]) -> Parts:
    """The expression of the member that has begun last: halves, so that it is nested as little as can be."""
    if len(members) == 1:
        return members[0][1].parts
    middle = len(members) // 2
    before, after = _select(members[:middle]), _select(members[middle:])
    return ("select(", *before, ", ", *after, ", ", _COUNT, " >= ", members[middle][0], ")")


# What computes them.


def imports(text: str) -> str:
    """The imports of the functions of ``shaders/schedules`` that are called in a text."""
    functions = sorted({*re.findall(r"([a-z]+)\(", text)} - {"select"})
    return "".join(f"import package::schedules::{name}::{name};\n" for name in functions)


@cache
def _on_host(expression: str, constants: int) -> Callable[..., float]:
    """A formula as a Python function of the count, the base and the constants."""
    parameters = ", ".join(f"{name}: f32" for name in (_COUNT, _BASE, *(f"k{number}" for number in range(constants))))
    text = f"{imports(expression)}fn schedule({parameters}) -> f32 {{\n    return {expression};\n}}\n"
    module = link(parse(text, "<schedule>"), package_loader(), roots=["schedule"])
    return host_functions(module, "schedule")["schedule"]

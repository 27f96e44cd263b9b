"""What schedules are made of: a value for each count of steps, in pieces, which a device evaluates itself.

See ``shaders/schedules``; `schedules` has those that users ask for.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..runtime.schedules import LARGEST, Piece, value_of

__all__ = ["Curve", "Schedule", "geometric", "hold", "one_layer", "plot_values", "ramp", "split_ratio"]

Curve = Literal["linear", "cosine", "exponential"]


@dataclass(frozen=True)
class Schedule:
    """A value for each count of steps.

    Attributes:
        layers: pieces by count; what the first makes of the base (1 if nobody says otherwise) is the base of the next.

    Example:
        >>> from optirs_web.optim.schedules import warmup_cosine_decay_schedule
        >>> schedule = warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=6)
        >>> [round(value, 3) for value in schedule.values(8)]
        [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    layers: tuple[tuple[Piece, ...], ...]

    def __call__(self, count: float, base: float = 1.0) -> float:
        """The value after `count` steps, in float64."""
        for pieces in self.layers:
            base = value_of(pieces, count, base)
        return base

    def values(self, steps: int, base: float = 1.0) -> list[float]:
        """Those of the first steps."""
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


def one_layer(*pieces: Piece) -> Schedule:
    """A schedule of these pieces."""
    return Schedule((pieces,))


def ramp(
    start: float,
    end: float,
    steps: float,
    curve: Curve = "linear",
    power: float = 1.0,
    begin: float = 0.0,
    period: float | None = None,
    **more: Any,
) -> Piece:
    """From start to end; of the two ends of an exponential curve none is 0."""
    first = math.ceil(begin)  # the kernel is exact in whole numbers
    if steps <= 0 or start == end or power == 0:
        value = end if steps <= 0 else start
        return Piece("polynomial", first, start=value, end=value, **more)
    if curve == "exponential":
        return geometric(start, end / start, steps, end=end, begin=begin, **more)
    kind = "polynomial" if curve == "linear" else "cosine"
    period = 2 * steps if period is None else period
    until = steps + begin - first
    return Piece(kind, first, steps=steps, until=until, start=start, end=end, power=power, period=period, **more)


def hold(value: float, begin: float = 0.0) -> Piece:
    """Always the same."""
    return ramp(value, value, 1, begin=begin)


def geometric(start: float, ratio: float, steps: float = 1.0, end: float | None = None, **more: Any) -> Piece:
    """Start ratio^(t / steps), not beyond `end`."""
    if end is None:
        end = -LARGEST if ratio < 1 else LARGEST
    return Piece("exponential", start=start, end=end, steps=steps, **split_ratio(ratio), **more)


def split_ratio(ratio: float) -> dict[str, Any]:
    """A ratio as a float32 and the logarithm of what is missing, so that high powers are right."""
    power = struct.unpack("<f", struct.pack("<f", ratio))[0]
    return {"power": power, "rest": math.log(ratio / power) if ratio > 0 and power > 0 else 0.0}

"""`plot`: draws a chart below a program of the playground."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

__all__ = ["plot"]


def plot(*values: Iterable[float], label: str = "") -> None:
    """Draw a line below the program: ``plot(ys)`` or ``plot(xs, ys)``.

    Lines that follow each other share one chart. Values that are NaN or infinite leave a gap.

    Args:
        values: the heights, or positions and heights; any iterables of numbers.
        label: the line's name in the legend.

    Raises:
        TypeError: one or two iterables are needed.
        ValueError: there are not as many positions as heights.
    """
    import page

    if len(values) not in (1, 2):
        raise TypeError(f"plot takes ys, or xs and ys, not {len(values)} values")
    columns = [[float(value) for value in column] for column in values]
    ys = columns[-1]
    xs = columns[0] if len(columns) == 2 else [float(index) for index in range(len(ys))]
    if len(xs) != len(ys):
        raise ValueError(f"there are {len(xs)} positions for {len(ys)} heights")
    gaps = [height if math.isfinite(height) else None for height in ys]
    page.emit("plot", json.dumps({"x": xs, "y": gaps, "label": label}, allow_nan=False))

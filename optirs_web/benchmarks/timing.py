"""Times of calls that alternate, so that what else the machine does meets all alike: medians and spreads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["STEADY", "Side", "race", "ratios", "seconds", "spread"]

STEADY = 0.1
"""Spread of a ratio above which rounds are added."""

MOST_ROUNDS = 3
"""Times the rounds asked for, at most."""

AT_MOST = 15.0
"""Seconds of a race after which it ends, once there are `FEWEST` rounds."""
FEWEST = 3

_WARM_UP = 0.2
_FEWEST_WARM_UPS = 3
_LONG = 2.0
"""Seconds of a call that is enough to warm up."""

_TURN = 0.04
_MOST_REPEATS = 2000
_PAUSE = 0.02
"""Seconds in which the threads of the side before stop to spin."""


def seconds(call: Callable[[], object], repeats: int, wait: Callable[[], object] | None = None) -> float:
    """Return the seconds of a call: the mean of so many, and of the wait for what they have enqueued."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    if wait:
        wait()
    return (time.perf_counter() - started) / repeats


@dataclass
class Side:
    """Something that takes part in a race.

    Attributes:
        call: what is timed.
        wait: called after the last of several calls, and timed with them.
        own_clock: `call` returns the seconds that count, as where it starts a process.
    """

    call: Callable[[], Any]
    wait: Callable[[], object] | None = None
    own_clock: bool = False

    def seconds(self, repeats: int) -> float:
        """Return the seconds of a call, in the mean of so many."""
        if not self.own_clock:
            return seconds(self.call, repeats, self.wait)
        return statistics.fmean(self.call() for _ in range(repeats))

    def warm_up(self) -> int:
        """Call until kernels are compiled and caches are warm; return how many calls make a turn."""
        if self.own_clock:
            self.call()  # fills the caches of bytecode
            return 1
        until, count, least = time.perf_counter() + _WARM_UP, 0, float("inf")
        while count < _FEWEST_WARM_UPS or time.perf_counter() < until:
            taken = self.seconds(1)
            count, least = count + 1, min(least, taken)
            if taken > _LONG:
                break
        return max(1, min(_MOST_REPEATS, round(_TURN / least)))


def race(sides: Mapping[str, Side], rounds: int, first: str = "ours") -> dict[str, list[float]]:
    """Time all sides once in each round, and return the seconds of a call by side and round.

    Rounds are added, up to three times as many, while the ratio of `first` to another side has a spread above 10%, or,
    without another side, its times have. After 15 seconds three rounds are enough.
    """
    repeats = {name: side.warm_up() for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    until = time.perf_counter() + AT_MOST
    for number in range(rounds * MOST_ROUNDS):
        if number >= rounds and all(spread(one) <= STEADY for one in _judged(times, first)):
            break
        if number >= FEWEST and time.perf_counter() > until:
            break
        shift = number % len(names)  # none always follows the same other
        for name in names[shift:] + names[:shift]:
            time.sleep(_PAUSE)
            times[name].append(sides[name].seconds(repeats[name]))
    return times


def _judged(times: Mapping[str, Sequence[float]], first: str) -> list[Sequence[float]]:
    others = [name for name in times if name != first]
    return [ratios(times[first], times[name]) for name in others] or [times[first]]


def ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios of two sides round by round: what slows the machine for a while affects both."""
    return [one / other for one, other in zip(times, others, strict=True)]


def spread(values: Sequence[float]) -> float:
    """Return the interquartile range as a share of the median.

    Example:
        >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
        0.6666666666666666
    """
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle

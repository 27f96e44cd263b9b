"""Times of calls that alternate, so that other load on the machine affects all of them alike: ratios and spreads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["MOST_ROUNDS", "STEADY", "Side", "race", "ratios", "rotated", "seconds", "spread"]

STEADY = 0.1
"""Spread of a ratio above which rounds are added."""

MOST_ROUNDS = 3
"""Rounds at most, as a multiple of those asked for."""

LIMIT = 15.0
"""Seconds after which a race ends, once it has `FEWEST_ROUNDS`."""

FEWEST_ROUNDS = 3

_WARM_UP = 0.2
_FEWEST_WARM_UPS = 3
_LONG = 2.0
"""Seconds of a call that warms up by itself."""

_TIMED = 0.04
"""Seconds of the calls that a round times."""

_MOST_REPEATS = 2000
_PAUSE = 0.02
"""Seconds in which the other side's threads stop spinning."""


def seconds(call: Callable[[], object], repeats: int, wait: Callable[[], object] | None = None) -> float:
    """Return the mean seconds of `repeats` calls, the wait at their end included."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    if wait:
        wait()
    return (time.perf_counter() - started) / repeats


@dataclass
class Side:
    """A call to be timed in a race.

    Attributes:
        call: what is timed.
        wait: called after the last of several calls, and timed with them.
        own_clock: `call` is not timed but returns seconds, as one that starts a process does.
    """

    call: Callable[[], Any]
    wait: Callable[[], object] | None = None
    own_clock: bool = False

    def seconds(self, repeats: int) -> float:
        """Return the mean seconds of `repeats` calls."""
        if not self.own_clock:
            return seconds(self.call, repeats, self.wait)
        return statistics.fmean(self.call() for _ in range(repeats))

    def warm_up(self) -> int:
        """Call until kernels are compiled and caches are warm; return how many calls a round times."""
        if self.own_clock:
            self.call()  # fills the caches of bytecode
            return 1
        end, count, least = time.perf_counter() + _WARM_UP, 0, float("inf")
        while count < _FEWEST_WARM_UPS or time.perf_counter() < end:
            taken = self.seconds(1)
            count, least = count + 1, min(least, taken)
            if taken > _LONG:
                break
        return max(1, min(_MOST_REPEATS, round(_TIMED / least)))


def race(sides: Mapping[str, Side], rounds: int, reference: str = "ours") -> dict[str, list[float]]:
    """Time all sides once in each round.

    Rounds are added, up to three times as many, while the ratio of the reference to another side, or its times where
    there is no other, spread by more than 10%. After 15 seconds three rounds are enough.

    Args:
        sides: what is timed, by name.
        rounds: how many, at least; but for the 15 seconds.
        reference: the name of the side whose ratios to the others are to be steady.

    Returns:
        By side, the seconds of a call in each round.
    """
    repeats = {name: side.warm_up() for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    end = time.perf_counter() + LIMIT
    for number in range(rounds * MOST_ROUNDS):
        if number >= rounds and all(spread(values) <= STEADY for values in _compared(times, reference)):
            break
        if number >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        for name in rotated(names, number):
            time.sleep(_PAUSE)
            times[name].append(sides[name].seconds(repeats[name]))
    return times


def _compared(times: Mapping[str, Sequence[float]], reference: str) -> list[Sequence[float]]:
    others = [name for name in times if name != reference]
    return [ratios(times[reference], times[name]) for name in others] or [times[reference]]


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Return the order of the sides in a round, so that none always follows the same other.

    Example:
        >>> rotated(["ours", "torch", "jax"], 1)
        ['torch', 'jax', 'ours']
    """
    shift = number % len(names)
    return [*names[shift:], *names[:shift]]


def ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios of two sides' times, round by round: what slows the machine for a while affects both."""
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

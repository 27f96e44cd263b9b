"""Times of calls that alternate, so that other load on the machine affects all of them alike: ratios and spreads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..runtime.driving import drive
from ..runtime.measure import STEADY, Plan, Times, rotated, rounds as rounds_of, seconds, spread

__all__ = ["MOST_ROUNDS", "STEADY", "Side", "race", "ratios", "rotated", "seconds", "spread"]

MOST_ROUNDS = 3
"""Rounds at most, as a multiple of those requested."""

LIMIT = 15.0
"""Seconds after which a race ends, once it has `FEWEST_ROUNDS`."""

FEWEST_ROUNDS = 3

_PLAN = Plan(warm_up=3, warming=0.2, sample=0.04, repeats=2000, long=0.2)
_PAUSE = 0.02
"""Seconds in which the other side's threads stop spinning."""


@dataclass
class Side:
    """A call to be timed in a race.

    Attributes:
        call: the call that is timed.
        wait: called after the last of several calls, and timed with them.
        own_clock: `call` is not timed but returns seconds, as one that starts a process does; it is not repeated.
    """

    call: Callable[[], Any]
    wait: Callable[[], object] | None = None
    own_clock: bool = False

    def seconds(self, repeats: int) -> float:
        """Return the mean seconds of `repeats` calls."""
        return float(self.call()) if self.own_clock else seconds(self.call, repeats, self.wait)


def race(sides: Mapping[str, Side], rounds: int, reference: str = "ours") -> dict[str, list[float]]:
    """Time all sides once in each round.

    Rounds are added, up to three times as many, while the ratio of the reference to another side, or its times where
    there is no other, spread by more than 10%. After 15 seconds three rounds are enough.

    Args:
        sides: the calls to time, by name.
        rounds: the least number of rounds, unless 15 seconds pass before.
        reference: the name of the side whose ratios to the others are to be steady.

    Returns:
        By side, the seconds of a call in each round.
    """

    def are_enough(times: Mapping[str, Times]) -> bool:
        is_due = all(len(values) >= rounds for values in times.values())
        return is_due and all(spread(values) <= STEADY for values in _compared(times, reference))

    def answer(request: tuple[str, int]) -> float:
        time.sleep(_PAUSE)
        name, repeats = request
        return sides[name].seconds(repeats)

    plan = _PLAN._replace(fewest=min(rounds, FEWEST_ROUNDS), most=rounds * MOST_ROUNDS, at_most=LIMIT / len(sides))
    return {name: list(values) for name, values in drive(rounds_of(list(sides), plan, are_enough), answer).items()}


def _compared(times: Mapping[str, Sequence[float]], reference: str) -> list[Sequence[float]]:
    others = [name for name in times if name != reference]
    return [ratios(times[reference], times[name]) for name in others] or [times[reference]]


def ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios of two sides' times, round by round, so that other load on the machine affects both."""
    return [ours / theirs for ours, theirs in zip(times, others, strict=True)]

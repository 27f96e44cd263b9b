"""Times of calls, measured in one way: warmed up, repeated as often as the clock needs, in rounds, by their median.

`rounds` decides what is called next and when there is enough; it has no clock. `timed` answers it with calls of the
host, the tuner with what a device measured, and a compiled step with the calls that a user makes anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from .driving import drive

__all__ = ["STEADY", "Plan", "Rounds", "Times", "fastest", "rotated", "rounds", "seconds", "spread", "timed"]

_Name = TypeVar("_Name", bound=Hashable)

STEADY = 0.1
"""Spread of times below which no more rounds are needed."""


class Plan(NamedTuple):
    """How long something is measured.

    Attributes:
        warm_up: calls before the first that counts; the least of those after the first, which compiles, calibrates.
        warming: seconds of the calls after the first for which warming up goes on.
        sample: seconds of the calls between two waits: shorter calls are repeated.
        repeats: calls between two waits, at most.
        samples: those that count in each round.
        settling: those that do not, at the beginning of each round but the first.
        fewest: rounds that there are at least, unless one name alone is left.
        most: rounds that there are at most, where times are not steady.
        at_most: seconds for each name, after which `fewest` rounds are enough.
        long: seconds of a call after which there are no more to warm up.
        hopeless: times that the fastest takes, beyond which a name is not measured again.
    """

    warm_up: int = 2
    warming: float = 0.0
    sample: float = 5e-3
    repeats: int = 64
    samples: int = 1
    settling: int = 0
    fewest: int = 3
    most: int = 9
    at_most: float = 0.15
    long: float = 0.05
    hopeless: float = float("inf")


class Times(list[float]):
    """Seconds of a call, one number for each sample."""

    @property
    def median(self) -> float:
        """The middle one, which neither a slow nor a fast exception moves."""
        return _quantile(self, 0.5)

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median."""
        return spread(self)


Rounds = Generator[tuple[_Name, int], float, dict[_Name, Times]]
"""Yields a name and how often to call it before a wait, is sent the seconds of one call, and returns the times."""


def _are_steady(times: Mapping[Any, Times]) -> bool:
    return all(own.spread <= STEADY for own in times.values())


def rounds(
    names: Sequence[_Name],
    plan: Plan = Plan(),  # noqa: B008
    are_enough: Callable[[Mapping[_Name, Times]], bool] = _are_steady,
) -> Rounds[_Name]:
    """Measure what these names stand for, each once in every round, so that other load affects all of them alike.

    Args:
        names: what is measured.
        plan: how long.
        are_enough: says of the times of those that are not hopeless that no more are needed; by default that the spread
            of each is at most `STEADY`. Rounds end too when time is over, or when all others are hopeless.

    Example:
        >>> from optirs_web.runtime.measure import Plan, rounds
        >>> measuring = rounds(["a", "b"], Plan(warm_up=1, fewest=1))
        >>> asked, seconds = [next(measuring)], {"a": 1e-3, "b": 2e-3}
        >>> try:
        ...     while True:
        ...         asked.append(measuring.send(seconds[asked[-1][0]]))
        ... except StopIteration as end:
        ...     asked, end.value["b"].median
        ([('a', 1), ('a', 5), ('b', 1), ('b', 2)], 0.002)
    """
    times = {name: Times() for name in names}
    repeats = dict.fromkeys(names, 1)
    running, spent = list(names), 0.0
    for number in range(plan.most):
        for name in rotated(running, number):
            own = times[name]
            if number == 0:
                least = yield from _warm_up(name, plan)
                best = min((spread.median for spread in times.values() if spread), default=float("inf"))
                if least > max(plan.long, plan.hopeless * best):
                    own.append(least)
                    continue
                repeats[name] = max(1, min(plan.repeats, round(plan.sample / max(least, 1e-9))))
            for _ in range(plan.settling if number else 0):
                yield name, repeats[name]
            for _ in range(plan.samples):
                own.append((yield name, repeats[name]))
                spent += own[-1] * repeats[name]
        best = min(times[name].median for name in running)
        running = [name for name in running if times[name].median <= plan.hopeless * best] or running
        if len(running) == 1 < len(names):
            break
        is_over = spent > plan.at_most * len(names)
        if number + 1 >= plan.fewest and (is_over or are_enough({name: times[name] for name in running})):
            break
    return times


def _warm_up(name: _Name, plan: Plan) -> Generator[tuple[_Name, int], float, float]:
    """Call until kernels are compiled and caches are warm; return the least seconds of a call after the first."""
    least, calls, repeats, spent = (yield name, 1), 1, 1, 0.0
    while calls < plan.warm_up or (spent < plan.warming and repeats <= plan.repeats):
        taken = yield name, repeats
        least = taken if calls == 1 else min(least, taken)
        calls += 1
        spent += taken * repeats
        if taken > plan.long:
            break
        if calls >= plan.warm_up:
            repeats *= 2
    return least


def timed(
    calls: Mapping[_Name, tuple[Callable[[], object], Callable[[], object] | None]],
    plan: Plan = Plan(),  # noqa: B008
) -> dict[_Name, Times]:
    """Measure calls of the host: by name, what is called, and what waits for it after the last of several calls."""
    return drive(
        rounds(list(calls), plan), lambda request: seconds(calls[request[0]][0], request[1], calls[request[0]][1])
    )


def seconds(call: Callable[[], object], repeats: int, wait: Callable[[], object] | None = None) -> float:
    """Return the mean seconds of `repeats` calls, the wait at their end included."""
    started = perf_counter()
    for _ in range(repeats):
        call()
    if wait:
        wait()
    return (perf_counter() - started) / repeats


def fastest(times: Mapping[_Name, Times]) -> _Name:
    """Return the name with the least median; the first of those that are equal."""
    return min(times, key=lambda name: times[name].median)


def rotated(names: Sequence[_Name], number: int) -> list[_Name]:
    """Return the order of a round, so that none always follows the same other.

    Example:
        >>> from optirs_web.runtime.measure import rotated
        >>> rotated(["ours", "torch", "jax"], 1)
        ['torch', 'jax', 'ours']
    """
    shift = number % len(names)
    return [*names[shift:], *names[:shift]]


def spread(values: Sequence[float]) -> float:
    """Return the interquartile range as a share of the median; 0 for fewer than two values.

    Example:
        >>> from optirs_web.runtime.measure import spread
        >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
        0.6666666666666666
    """
    low, middle, high = (_quantile(values, share) for share in (0.25, 0.5, 0.75))
    return (high - low) / middle if high > low else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share of them lies, between two of them by proportion."""
    ordered = sorted(values)
    number, part = divmod(share * (len(ordered) - 1), 1)
    low = ordered[int(number)]
    high = ordered[int(number) + 1] if part else low
    return low if low == high else low + part * (high - low)  # infinite ones too

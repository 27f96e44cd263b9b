"""Which way a stretch of operations runs, from one wait to the next: one that comes again is tried each way.

The times of single operations say too little: they are measured in a row, with their operands in place and nothing
beside them. But a loop does the same over and over. So its stretches are run on each device, and with each operation
placed by itself, for some of their turns, and then the fastest way. Nothing is run twice or left out.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from time import perf_counter
from typing import Any

from ..runtime.device import Device

__all__ = ["Stretches", "Way"]

Way = Device | None
"""All operations on one device; None for each where it is the faster by itself."""

_WARM = 2
"""Turns of each way that do not count: kernels are compiled, and operands carried over."""

_TIMED = 5
_ROUNDS = 2
"""The least of so many times counts, in each round; there is no second one where the first is clear."""

_CLEAR = 2.0
_HOPELESS = 3.0
_NOT_SHORT = 0.02
"""A way that takes so many times the least so far, and these seconds, is not tried any further."""

_LONGEST = 4096
"""Operations, after which a stretch without a wait is given up."""

_MOST = 256
"""Stretches that are remembered."""


def _trial(ways: Sequence[Way]) -> Generator[Way, float, Way]:
    """Yields the way for each turn, is sent the seconds that it took, and returns the fastest."""
    seconds = dict.fromkeys(ways, math.inf)
    order = list(ways)
    for _ in range(_ROUNDS):
        for way in order:
            its = math.inf
            for _ in range(_WARM):
                its = yield way
            if its > max(_NOT_SHORT, _HOPELESS * min(seconds.values())):
                seconds[way] = min(seconds[way], its)
                continue
            for _ in range(_TIMED):
                seconds[way] = min(seconds[way], (yield way))
        if max(seconds.values()) > _CLEAR * min(seconds.values()):
            break
        order.reverse()  # the next turn is as the last one was
    return min(seconds, key=lambda way: seconds[way])


class _Stretch:
    """One that came before, and the way that it goes next time."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._trial: Generator[Way, float, Way] | None = _trial(ways)
        self.way = next(self._trial)

    def took(self, way: Way, seconds: float) -> None:
        if self._trial is None or way is not self.way:
            return
        try:
            self.way = self._trial.send(seconds)
        except StopIteration as over:
            self.way, self._trial = over.value, None


class Stretches:
    """Follows the operations and the waits of a program."""

    def __init__(self, candidates: Sequence[Device], near: float) -> None:
        """All on one device is not tried where the operations would take `near` times as long as on the other."""
        self._candidates = tuple(candidates)
        self._near = near
        self._known: dict[int, _Stretch] = {}  # by what identifies them: a hash over their operations
        self._comes_next: dict[tuple[int, Any], int] = {}  # by the one before, and the first operation
        self._before = 0
        self._ended = 0.0
        self._reset()

    def _reset(self) -> None:
        self._way: Way = None
        self._starts: tuple[int, Any] | None = None
        self._started = 0.0
        self._operations = self._length = 0
        self._seconds = [0.0] * len(self._candidates)
        self._used: set[Device] = set()

    def way_for(self, key: Any) -> Way:
        """The way of the next operation."""
        if self._ended:
            self._end()
        if self._starts is None:
            self._starts = self._before, key
            expected = self._known.get(self._comes_next.get(self._starts, 0))
            self._way = expected.way if expected is not None else None
            self._started = perf_counter()
        self._operations = hash((self._operations, key))
        self._length += 1
        if self._length == _LONGEST:
            self._reset()
        return self._way

    def placed(self, device: Device, seconds: Sequence[float]) -> None:
        """The operation was placed by itself; these are its seconds on each candidate."""
        self._used.add(device)
        for number, its in enumerate(seconds):
            self._seconds[number] += its

    def ran(self) -> None:
        """The operation has run; if anything waited, that was a part of it."""
        self._ended = 0.0

    def waited(self) -> None:
        """Somebody has waited for a device."""
        self._ended = self._ended or perf_counter()

    def _end(self) -> None:
        if self._starts is not None:
            if len(self._known) == _MOST:
                self._known.clear()
                self._comes_next.clear()
            self._before = self._comes_next[self._starts] = self._operations
            known = self._known.get(self._operations)
            if known is not None:
                known.took(self._way, self._ended - self._started)
            elif self._way is None:
                self._known[self._operations] = _Stretch(self._worth_trying())
        self._ended = 0.0
        self._reset()

    def _worth_trying(self) -> list[Way]:
        at_most = self._near * min(self._seconds)
        ways: list[Way] = [
            one for one, its in zip(self._candidates, self._seconds, strict=True) if its < at_most or one in self._used
        ]
        return ways if len(self._used) == 1 else [None, *ways]

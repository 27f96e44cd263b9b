"""Which of several ways is the fastest, found out by turns of work that is to be done anyway."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import TypeVar

__all__ = ["trial"]

_Way = TypeVar("_Way")

_WARM = 2
"""Turns of each way that do not count: kernels are compiled, steps recorded, and operands carried over."""

_ROUNDS = 2
"""There is no second round where one way is ahead by `_CLEAR` in the first."""

_CLEAR = 2.0
_HOPELESS = 3.0
_NOT_SHORT = 0.02
"""A way that takes `_HOPELESS` times the least so far, and these seconds, is not tried any further."""


def trial(ways: Sequence[_Way], timed: int) -> Generator[_Way, float, _Way]:
    """Yields the way for each turn, is sent the seconds that it took, and returns the fastest.

    Of each way the least of `timed` turns counts, in each round, so that what else the machine does is left out if it
    leaves one turn alone.
    """
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
            for _ in range(timed):
                seconds[way] = min(seconds[way], (yield way))
        if max(seconds.values()) > _CLEAR * min(seconds.values()):
            break
        order.reverse()  # the next turn is as the last one was
    return min(seconds, key=lambda way: seconds[way])

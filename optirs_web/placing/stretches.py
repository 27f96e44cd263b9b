"""Which way a stretch of operations runs, from one wait to the next: one that comes again is tried each way.

The times of single operations say too little: they are measured in a row, with their operands in place and nothing
beside them. But a loop does the same over and over. So its stretches are run on each device, and with each operation
placed by itself, for some of their turns, and then the fastest way. Nothing is run twice or left out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..runtime.device import Device
from .trial import trial

if TYPE_CHECKING:
    from .choice import Call

__all__ = ["Stretches", "Way"]

Way = Device | None
"""All operations on one device; None for each where it is the faster by itself."""

_Mark = tuple[Any, tuple[int, ...]]  # an operation, and the shape of its first tensor

_TIMED = 5
"""Turns of each way that count, in each round."""

_LONGEST = 4096
"""Operations, after which a stretch without a wait is given up."""

_MOST = 256
"""Stretches that are remembered."""


class _Stretch:
    """One that came before, and the way that it goes next time.

    Attributes:
        identity: a hash over the keys of its operations.
        marks: of its operations: quicker to compare, though some that differ have the same.
    """

    def __init__(self, identity: int, marks: Sequence[_Mark], ways: Sequence[Way]) -> None:
        self.identity, self.marks = identity, marks
        self._trial: Generator[Way, float, Way] | None = trial(ways, _TIMED)
        self.way = next(self._trial)

    @property
    def is_settled(self) -> bool:
        return self._trial is None

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
        self._known: dict[int, _Stretch] = {}
        self._comes_next: dict[tuple[int, _Mark], _Stretch] = {}  # by the one before, and the first operation
        self._before = 0
        self._ended = 0.0
        self._ended_before = 0.0  # as it was when the operation came that runs now
        self._reset()

    def _reset(self) -> None:
        self._starts: tuple[int, _Mark] | None = None
        self._started = 0.0
        self._way: Way = None
        self._follows: _Stretch | None = None  # one that is settled, as long as what comes is what came before
        self._to_come: Iterator[_Mark] = iter(())
        self._learns = True
        self._identity = 0
        self._marks: list[_Mark] = []
        self._seconds = [0.0] * len(self._candidates)
        self._used: set[Device] = set()

    def way_for(self, call: Call) -> Way:
        """The way of the next operation."""
        if self._ended:
            self._end()
        self._ended_before = 0.0
        mark = call.operation, call.tensors[0].shape
        if self._starts is None:
            self._start((self._before, mark))
        if self._follows is not None:
            if next(self._to_come, None) != mark:
                self._lose()
        elif self._learns:
            self._identity = hash((self._identity, call.key()))
            self._marks.append(mark)
            if len(self._marks) == _LONGEST:
                self._lose()
        return self._way

    def placed(self, device: Device, seconds: Sequence[float]) -> None:
        """The operation was placed by itself; these are its seconds on each candidate."""
        self._used.add(device)
        for number, its in enumerate(seconds):
            self._seconds[number] += its

    def stays(self) -> None:
        """An operation comes that is not placed."""
        self._ended_before = self._ended

    def ran(self) -> None:
        """The operation has run; if anything waited, that was a part of it."""
        self._ended = self._ended_before

    def waited(self) -> None:
        """Somebody has waited for a device."""
        self._ended = self._ended or perf_counter()

    def _start(self, starts: tuple[int, _Mark]) -> None:
        self._starts = starts
        expected = self._comes_next.get(starts)
        if expected is not None:
            self._way = expected.way
            if expected.is_settled:
                self._follows, self._to_come = expected, iter(expected.marks)
        self._started = perf_counter()

    def _lose(self) -> None:
        """What comes is something else than expected, or too long: nothing is learned from it."""
        if self._starts is not None:
            self._comes_next.pop(self._starts, None)
        self._way = self._follows = None
        self._learns = False
        self._identity = 0

    def _end(self) -> None:
        if self._follows is not None and next(self._to_come, None) is not None:
            self._lose()
        if self._follows is not None:
            self._before = self._follows.identity
        else:
            self._before = self._identity
            if self._starts is not None and self._learns:
                self._learn(self._starts)
        self._ended = 0.0
        self._reset()

    def _learn(self, starts: tuple[int, _Mark]) -> None:
        known = self._known.get(self._identity)
        if known is not None:
            known.took(self._way, self._ended - self._started)
        elif self._way is None:
            if len(self._known) == _MOST:
                self._known.clear()
                self._comes_next.clear()
            known = self._known[self._identity] = _Stretch(self._identity, self._marks, self._worth_trying())
        if known is None:
            self._comes_next.pop(starts, None)
        else:
            self._comes_next[starts] = known

    def _worth_trying(self) -> list[Way]:
        at_most = self._near * min(self._seconds)
        ways: list[Way] = [
            one for one, its in zip(self._candidates, self._seconds, strict=True) if its < at_most or one in self._used
        ]
        return ways if len(self._used) == 1 else [None, *ways]

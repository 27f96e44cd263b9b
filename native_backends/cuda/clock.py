"""When work ran on a GPU, by its own clock: an event before and one behind each piece, in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...runtime.timing import Timed, Work
from . import driver

__all__ = ["Clock", "Measured"]


class Measured(NamedTuple):
    """A piece of work between its events; of an upload, whose time nobody asks for, `work` is None."""

    work: Work | None
    start: driver.Handle
    end: driver.Handle


class Clock:
    """That of one stream. Events are used again."""

    def __init__(self, stream: driver.Handle) -> None:
        """Without events."""
        self._stream = stream
        self._made: list[driver.Handle] = []
        self._idle: list[driver.Handle] = []
        self._mark: tuple[driver.Handle, float] | None = None  # an event, and its time in seconds

    def measured(self, runs: Iterable[tuple[Work | None, Callable[[], None]]]) -> list[Measured]:
        """Enqueue what these do, with the events that `times` needs."""
        pieces: list[Measured] = []
        try:
            for work, run in runs:
                pieces.append(Measured(work, self._event(), self._event()))
                driver.record_event(pieces[-1].start, self._stream)
                run()
                driver.record_event(pieces[-1].end, self._stream)
        except BaseException:
            for piece in pieces:
                self._idle += (piece.start, piece.end)
            raise
        return pieces

    def times(self, pieces: Iterable[Measured]) -> list[Timed]:
        """When they ran, once; they have run."""
        timed = []
        for work, start, end in pieces:
            started = self._seconds(start)
            if work is not None:
                timed.append(Timed((work,), started, started + driver.seconds_between(start, end)))
            self._idle.append(end)
        return timed

    def close(self) -> None:
        """Give all events back. All that was enqueued has run."""
        for event in self._made:
            driver.destroy_event(event)
        self._made.clear()
        self._idle.clear()
        self._mark = None

    def _event(self) -> driver.Handle:
        if not self._idle:
            self._made.append(driver.create_event(is_timed=True))
            return self._made[-1]
        return self._idle.pop()

    def _seconds(self, event: driver.Handle) -> float:
        """The time of an event, from which the next one is measured: the driver tells it in a float of 32 bits."""
        since = 0.0
        if self._mark is not None:
            mark, at = self._mark
            since = at + driver.seconds_between(mark, event)
            self._idle.append(mark)
        self._mark = event, since
        return since

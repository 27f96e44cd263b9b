"""Who reads and writes what in a list of launches and copies, and where most memory is needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate

from .buffer import Buffer, View
from .launches import Recorded

__all__ = ["Uses"]


class Uses:
    """Who reads and writes each buffer, by place in a list."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self.readers: defaultdict[Buffer, list[int]] = defaultdict(list)
        self.writers: defaultdict[Buffer, list[int]] = defaultdict(list)
        for at, one in enumerate(recorded):
            for view in one.reads:
                self.readers[view.buffer].append(at)
            for view in one.writes:
                self.writers[view.buffer].append(at)

    def held(self, is_temporary: Callable[[Buffer], bool], count: int) -> list[int]:
        """Bytes needed at each place for what is between."""
        changes = [0] * (count + 1)
        for buffer in {*self.readers, *self.writers}:
            if is_temporary(buffer):
                places = [*self.readers[buffer], *self.writers[buffer]]
                changes[min(places)] += buffer.nbytes
                changes[max(places) + 1] -= buffer.nbytes
        return [*accumulate(changes)]

    def writer(self, view: View, before: int) -> int | None:
        """The one launch that writes the buffer of this view, if there is one, before another."""
        writers = self.writers[view.buffer]
        return writers[0] if len(writers) == 1 and writers[0] < before else None

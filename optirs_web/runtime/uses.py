"""Who reads and writes what in a list of launches and copies, and where most memory is needed; buffers exchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from .buffer import Buffer, View
from .launches import Copy, Launch, Recorded

__all__ = ["Uses", "renamed"]


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


def renamed(one: Recorded, names: Mapping[Buffer, Buffer]) -> Recorded:
    """The launch or copy with other buffers in the place of some."""
    if not any(view.buffer in names for view in (*one.reads, *one.writes)):
        return one
    if isinstance(one, Copy):
        return Copy(_moved(one.source, names), _moved(one.target, names))
    return Launch(one.kernel, tuple(_moved(view, names) for view in one.views), one.grid, one.parameters)


def _moved(view: View, names: Mapping[Buffer, Buffer]) -> View:
    return View(names[view.buffer], view.offset, view.nbytes) if view.buffer in names else view

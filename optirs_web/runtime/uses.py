"""Who reads and writes what in a list of launches and copies, and where most memory is needed; buffers exchanged."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from .buffer import Buffer, View
from .launches import Copy, Launch, Recorded

__all__ = ["Uses", "placed", "renamed"]


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

    def repeat(self, launches: Sequence[Recorded], kept: Buffer, at: int) -> None:
        """Enter launches before index `at`, by which nobody reads a buffer that was kept from there on.

        What they write is left out: nobody repeats it once more.
        """
        self.readers[kept] = [reader for reader in self.readers[kept] if reader < at]
        for launch in launches:
            for view in launch.reads:
                insort(self.readers[view.buffer], at)

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
    return _with_views(one, lambda view: View(names.get(view.buffer, view.buffer), view.offset, view.nbytes))


def placed(one: Recorded, places: Mapping[Buffer, View]) -> Recorded:
    """Return the launch or copy with the memory of some buffers in their place."""

    def moved(view: View) -> View:
        place = places.get(view.buffer)
        return view if place is None else View(place.buffer, place.offset + view.offset, view.nbytes)

    return _with_views(one, moved)


def _with_views(one: Recorded, change: Callable[[View], View]) -> Recorded:
    if isinstance(one, Copy):
        return Copy(change(one.source), change(one.target))
    return Launch(one.kernel, tuple(map(change, one.views)), one.grid, one.parameters)

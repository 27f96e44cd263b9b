"""The launches and copies of a list that read and write each buffer, and the replacement of buffers in them."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from .buffer import Buffer, View
from .launches import Copy, Launch, Recorded

__all__ = ["Uses", "relocated", "renamed"]


class Uses:
    """The launches and copies that read and write each buffer, by index in a list."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self.readers: defaultdict[Buffer, list[int]] = defaultdict(list)
        self.writers: defaultdict[Buffer, list[int]] = defaultdict(list)
        for at, command in enumerate(recorded):
            for view in command.reads:
                self.readers[view.buffer].append(at)
            for view in command.writes:
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
        """Return for each index the bytes of temporary buffers that are alive."""
        changes = [0] * (count + 1)
        for buffer in {*self.readers, *self.writers}:
            if is_temporary(buffer):
                indices = [*self.readers[buffer], *self.writers[buffer]]
                changes[min(indices)] += buffer.nbytes
                changes[max(indices) + 1] -= buffer.nbytes
        return [*accumulate(changes)]

    def writer(self, view: View, before: int) -> int | None:
        """Return the index of the only launch that writes the buffer of a view, if it is less than `before`."""
        writers = self.writers[view.buffer]
        return writers[0] if len(writers) == 1 and writers[0] < before else None


def renamed(command: Recorded, names: Mapping[Buffer, Buffer]) -> Recorded:
    """Return the launch or copy with some of its buffers replaced by others."""
    if not any(view.buffer in names for view in (*command.reads, *command.writes)):
        return command
    return _with_views(command, lambda view: View(names.get(view.buffer, view.buffer), view.offset, view.nbytes))


def relocated(command: Recorded, locations: Mapping[Buffer, View]) -> Recorded:
    """Return the launch or copy with some of its buffers replaced by their locations."""

    def moved(view: View) -> View:
        location = locations.get(view.buffer)
        return view if location is None else View(location.buffer, location.offset + view.offset, view.nbytes)

    return _with_views(command, moved)


def _with_views(command: Recorded, change: Callable[[View], View]) -> Recorded:
    if isinstance(command, Copy):
        return Copy(change(command.source), change(command.target))
    return Launch(command.kernel, tuple(map(change, command.views)), command.grid, command.parameters)

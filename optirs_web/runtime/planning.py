"""The memory of a program: buffers that are not needed at the same time share bytes."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .backend import Capabilities
from .buffer import Buffer
from .launches import Recorded
from .pool import size_class

__all__ = ["Location", "Plan", "plan"]

_CACHE_LINE = 64
"""Bytes."""


class Location(NamedTuple):
    """The memory of a buffer: the number of a piece, and the offset in it in bytes."""

    piece: int
    offset: int


class Plan(NamedTuple):
    """The memory of a program.

    Attributes:
        sizes: of the pieces, in bytes.
        locations: by buffer.
    """

    sizes: list[int]
    locations: dict[Buffer, Location]


class _Span(NamedTuple):
    """From the first launch that touches a buffer to the last."""

    first: int
    last: int
    buffer: Buffer


class _Taken(NamedTuple):
    """Bytes of a piece, from `start` to `end`, that a buffer takes during its span."""

    start: int
    end: int
    first: int
    last: int


def plan(
    recorded: Sequence[Recorded],
    is_own: Callable[[Buffer], bool],
    is_temporary: Callable[[Buffer], bool],
    capabilities: Capabilities,
) -> Plan:
    """Return pieces of memory, and the location of each buffer, in as few bytes as a greedy choice finds.

    The largest buffers choose first, of equal ones those that are needed longest. Each takes the first bytes of the
    first piece that are free during its span, or begins a piece where there are none; without parts it takes all of
    the smallest piece. A buffer that is read afterwards begins with its piece, since tensors know no offset. Pieces
    have sizes of the pool, which it would round them to.

    Args:
        recorded: launches and copies, in order.
        is_own: whether the program has to provide the memory of a buffer.
        is_temporary: whether nobody reads it afterwards.
        capabilities: of the device.
    """
    sizes: list[int] = []
    locations: dict[Buffer, Location] = {}
    taken: list[list[_Taken]] = []  # of each piece, by start
    apart = _apart(recorded, is_own) if capabilities.parts == "apart" else {}
    has_parts = capabilities.parts != "none"
    alignment = max(_CACHE_LINE, capabilities.offset_alignment)
    spans = _spans(recorded, is_own, is_temporary, len(recorded))
    for span in sorted(spans, key=lambda span: (-span.buffer.nbytes, span.first - span.last)):
        nbytes = span.buffer.nbytes
        refused = {locations[other].piece for other in apart.get(span.buffer, ()) if other in locations}
        for piece in range(len(sizes)) if has_parts else reversed(range(len(sizes))):
            offset = _free_offset(taken[piece], span)
            may_begin_there = offset == 0 or is_temporary(span.buffer)
            if piece not in refused and may_begin_there and offset + nbytes <= sizes[piece]:
                break
        else:
            piece, offset = len(sizes), 0
            rounded = size_class(nbytes)
            sizes.append(rounded if rounded <= capabilities.max_buffer_bytes else nbytes)
            taken.append([])
        locations[span.buffer] = Location(piece, offset)
        end = -(-(offset + nbytes) // alignment) * alignment if has_parts else sizes[piece]
        insort(taken[piece], _Taken(offset, end, span.first, span.last))
    return Plan(sizes, locations)


def _free_offset(taken: Sequence[_Taken], span: _Span) -> int:
    """Return the first offset at which a buffer overlaps none of `taken`, in order of start, that lives in its span."""
    offset, nbytes = 0, span.buffer.nbytes
    for start, end, first, last in taken:
        if first <= span.last and span.first <= last:
            if offset + nbytes <= start:
                break
            offset = max(offset, end)
    return offset


def _apart(recorded: Sequence[Recorded], is_own: Callable[[Buffer], bool]) -> dict[Buffer, set[Buffer]]:
    """Return by buffer those that share a launch with it which writes one of the two."""
    apart: defaultdict[Buffer, set[Buffer]] = defaultdict(set)
    for launch in recorded:
        written = {view.buffer for view in launch.writes if is_own(view.buffer)}
        touched = written | {view.buffer for view in launch.reads if is_own(view.buffer)}
        for buffer in touched:
            apart[buffer] |= (touched if buffer in written else written) - {buffer}
    return apart


def _spans(
    recorded: Sequence[Recorded], is_own: Callable[[Buffer], bool], is_temporary: Callable[[Buffer], bool], end: int
) -> list[_Span]:
    """Return the span of launches that need each buffer of the program, by indices into `recorded`, the earliest first.

    It ends at `end` for a buffer that is not temporary.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for index, launch in enumerate(recorded):
        for view in (*launch.reads, *launch.writes):
            if is_own(view.buffer):
                first.setdefault(view.buffer, index)
                last[view.buffer] = index
    return [_Span(index, last[buffer] if is_temporary(buffer) else end, buffer) for buffer, index in first.items()]

"""Memory of a program: which of its buffers may lie in the same place, because one is done before the other begins."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .buffer import Buffer
from .launches import Recorded

__all__ = ["Plan", "plan"]


class Plan(NamedTuple):
    """Where the buffers of a program lie.

    Attributes:
        sizes: of each piece of memory, in bytes.
        places: the piece of each buffer.
    """

    sizes: list[int]
    places: dict[Buffer, int]


class _Span(NamedTuple):
    """From the first launch that touches a buffer to the last."""

    first: int
    last: int
    buffer: Buffer


def plan(
    recorded: Sequence[Recorded], is_own: Callable[[Buffer], bool], is_temporary: Callable[[Buffer], bool]
) -> Plan:
    """Give each buffer of the program a piece of memory, in as few bytes as a greedy choice finds.

    The largest buffers take theirs first, of equal ones those that are needed longest, and each the smallest piece that
    is free meanwhile. Two buffers of one launch never share a piece: a kernel cannot be shown one for reading and for
    writing.

    Args:
        recorded: launches and copies, in order.
        is_own: whether the program has to find memory for a buffer.
        is_temporary: whether nobody reads it afterwards.
    """
    sizes: list[int] = []
    places: dict[Buffer, int] = {}
    taken: list[list[_Span]] = []  # of each piece, in order
    spans = _spans(recorded, is_own, is_temporary, len(recorded))
    for span in sorted(spans, key=lambda one: (-one.buffer.nbytes, one.first - one.last)):
        free = (at for at, others in enumerate(taken) if _is_free(others, span))
        piece = min(free, key=lambda at: sizes[at], default=len(sizes))
        if piece == len(sizes):
            sizes.append(span.buffer.nbytes)
            taken.append([])
        insort(taken[piece], span, key=lambda one: one.first)
        places[span.buffer] = piece
    return Plan(sizes, places)


def _is_free(taken: list[_Span], span: _Span) -> bool:
    """None of what has been given a piece needs it at the same time."""
    at = bisect(taken, span.first, key=lambda one: one.first)
    return not (at and taken[at - 1].last >= span.first) and not (at < len(taken) and taken[at].first <= span.last)


def _spans(
    recorded: Sequence[Recorded], is_own: Callable[[Buffer], bool], is_temporary: Callable[[Buffer], bool], end: int
) -> list[_Span]:
    """Return the span of launches that need each buffer of the program, by indices into `recorded`, the earliest first.

    It ends at `end` for a buffer that is not temporary.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for at, one in enumerate(recorded):
        for view in (*one.reads, *one.writes):
            if is_own(view.buffer):
                first.setdefault(view.buffer, at)
                last[view.buffer] = at
    return [_Span(at, last[one] if is_temporary(one) else end, one) for one, at in first.items()]

"""Memory of a program: which of its buffers may lie in the same place, because one is done before the other begins."""

from __future__ import annotations

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

    A buffer takes the free piece that fits best; where none is large enough, the largest grows. Two buffers of one
    launch never share a piece: a kernel cannot be shown one piece for reading and for writing.

    Args:
        recorded: launches and copies, in order.
        is_own: whether the program has to find memory for a buffer.
        is_temporary: whether nobody reads it afterwards.
    """
    sizes: list[int] = []
    places: dict[Buffer, int] = {}
    free: list[int] = []
    spans = _spans(recorded, is_own, is_temporary, len(recorded))
    ending: list[_Span] = []
    for span in spans:
        done = [one for one in ending if one.last < span.first]
        free += [places[one.buffer] for one in done]
        ending = [one for one in ending if one.last >= span.first]
        wanted = span.buffer.nbytes
        piece = _best(free, sizes, wanted)
        if piece is None:
            sizes.append(wanted)
            piece = len(sizes) - 1
        else:
            free.remove(piece)
            sizes[piece] = max(sizes[piece], wanted)
        places[span.buffer] = piece
        ending.append(span)
    return Plan(sizes, places)


def _best(free: Sequence[int], sizes: Sequence[int], wanted: int) -> int | None:
    """The smallest free piece that is large enough, else the largest one."""
    enough = [one for one in free if sizes[one] >= wanted]
    if enough:
        return min(enough, key=lambda one: sizes[one])
    return max(free, key=lambda one: sizes[one], default=None)


def _spans(
    recorded: Sequence[Recorded], is_own: Callable[[Buffer], bool], is_temporary: Callable[[Buffer], bool], end: int
) -> list[_Span]:
    """Of each buffer of the program, the earliest first."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for at, one in enumerate(recorded):
        for view in (*one.reads, *one.writes):
            if is_own(view.buffer):
                first.setdefault(view.buffer, at)
                last[view.buffer] = at
    return [_Span(at, last[one] if is_temporary(one) else end, one) for one, at in first.items()]

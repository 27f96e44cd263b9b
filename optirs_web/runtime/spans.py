"""The axes of a tensor that is placed in a part of a map: padded, or one of the parts of its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..lower.maps import Places, SpanForm

__all__ = ["Span", "simplified", "spans_of"]

Shape = tuple[int, ...]


class Span(NamedTuple):
    """An axis of a tensor that is placed in a part of a map; see `lower.maps.SpanForm`.

    Attributes:
        steps: by how much the position on it grows along each axis of the map.
        start: that of the tensor's first element, before it is subtracted.
        extent: the number of positions from the first element to the last, both included.
        stride: the distance of neighbours in memory.
        spacing: the number of positions from one to the next.
    """

    steps: Shape
    start: int
    extent: int
    stride: int
    spacing: int = 1

    @property
    def form(self) -> SpanForm:
        """The span as a shader knows it."""
        return _form(self.steps, self.spacing > 1)

    @property
    def words(self) -> list[int]:
        """The parameters of a launch."""
        axes, is_spaced, has_steps = self.form
        words = [self.start, self.extent, self.stride]
        if is_spaced:
            words.append(self.spacing)
        if has_steps:
            words += [self.steps[axis] for axis in axes]
        return words


@lru_cache(1024)
def _form(steps: Shape, is_spaced: bool) -> SpanForm:
    axes = tuple(axis for axis, step in enumerate(steps) if step)
    return SpanForm(axes, is_spaced, any(steps[axis] != 1 for axis in axes))


def spans_of(places: Places, words: Iterator[int | float]) -> dict[str, list[Span]]:
    """Return the spans of each array that is placed, from the parameters of a launch that come next."""
    spans: dict[str, list[Span]] = {}
    for name, forms in places.spans:
        spans[name] = []
        for axes, is_spaced, has_steps in forms:
            start, extent, stride = int(next(words)), int(next(words)), int(next(words))
            spacing = int(next(words)) if is_spaced else 1
            steps = [0] * places.rank
            for axis in axes:
                steps[axis] = int(next(words)) if has_steps else 1
            spans[name].append(Span(tuple(steps), start, extent, stride, spacing))
    return spans


def simplified(strides: Shape, spans: Sequence[Span], dims: Shape) -> tuple[Shape, tuple[Span, ...]]:
    """Return strides, and spans along fewer axes: without those that never decide whether there is an element.

    Such axes get a stride instead.
    """
    own_strides, own_spans = list(strides), list(spans)
    for number, (steps, start, extent, stride, spacing) in enumerate(spans):
        own = [axis for axis, size in enumerate(dims) if steps[axis] and size > 1]
        for unit in sorted({steps[axis] for axis in own}, reverse=True):
            outer = [axis for axis in own if steps[axis] >= unit]
            inner = [axis for axis in own if steps[axis] < unit]
            furthest = sum(steps[axis] * (dims[axis] - 1) for axis in inner)
            if (
                spacing > 1
                or furthest >= unit
                or any(n % unit for n in (start, extent, *(steps[axis] for axis in outer)))
            ):
                continue
            for axis in inner:
                own_strides[axis] += steps[axis] * stride
            kept = tuple(step // unit if axis in outer else 0 for axis, step in enumerate(steps))
            own_spans[number] = Span(kept, start // unit, extent // unit, stride * unit)
            break
    return tuple(own_strides), tuple(own_spans)

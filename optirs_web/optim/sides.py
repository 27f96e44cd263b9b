"""State for the two sides of a matrix: square matrices over the rows and over the columns of each tensor.

A tensor is treated as a matrix of `rows` and `columns`. Its left side is a (rows, rows) matrix, its right side one of
(columns, columns). Sides of one size are stored contiguously in a buffer, left and right ones together, so that one
dispatch works on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..runtime.buffer import Buffer, View
from .matrices import Batch, Matrices, MatrixLayout
from .shards import Shard
from .stacks import matrices_of, room, state_views_at

__all__ = ["LEFT", "RIGHT", "SidedLayout", "Sides"]

LEFT, RIGHT = "L", "R"
_ITEMSIZE = 4


@dataclass(frozen=True)
class Sides:
    """Sides of one size, of tensors with the same number of sides.

    Attributes:
        size: rows and columns of each.
        order: number of sides of each of the tensors.
        members: tensor and side, in the order in which they are stored.
        buffers: one for each kind of state, by the kind's name.
    """

    size: int
    order: int
    members: tuple[tuple[int, str], ...]
    buffers: Mapping[str, Buffer]
    stored: ClassVar[Mapping[str, str]] = {}

    def matrices(self, kind: str, members: Sequence[int]) -> Matrices:
        """Return the matrices of a kind of state at these positions."""
        return matrices_of(self.buffers[kind], (self.size, self.size), members)

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Yield the tensor, name and view of each state."""
        shapes = dict.fromkeys(self.buffers, (self.size, self.size))
        for position, (tensor, side) in enumerate(self.members):
            for kind, view in state_views_at(self.buffers, shapes, position, self.stored):
                yield tensor, kind + side, view


class SidedLayout(MatrixLayout):
    """A layout with `kinds` of state for each side that is no larger than the group's `max_preconditioner_dim`.

    The limit is one of the flags. A vector has a left side only, and none if `precondition_1d` is a flag and not set.
    """

    kinds: ClassVar[tuple[str, ...]] = ()
    """The prefixes of "L" and "R" in the names of state."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.sides: list[Sides] = []
        self._side_of: dict[tuple[int, str], tuple[int, int]] = {}  # index in `sides`, and the position there
        for shard in self.shards:
            self._add_sides_of(shard)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.more_state = tuple(kind + side for kind in cls.kinds for side in (LEFT, RIGHT))

    @classmethod
    def state_shape(cls, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a parameter's state of that name."""
        if name not in cls.more_state:
            return super().state_shape(name, shape)
        size = cls.matrix_shape(shape)[name.endswith(RIGHT)]
        return size, size

    def _add_sides_of(self, shard: Shard) -> None:
        by_size: dict[tuple[int, int], list[tuple[int, str]]] = {}
        options = dict(shard.flags)
        most, has_vectors = options["max_preconditioner_dim"], options.get("precondition_1d", True)
        for number in shard.numbers.values():
            rows, columns = self.shapes[number]
            sizes = {LEFT: rows, RIGHT: columns} if self.is_matrix[number] else {LEFT: rows} if has_vectors else {}
            present = {side: size for side, size in sizes.items() if 0 < size <= most}
            for side, size in present.items():
                by_size.setdefault((size, len(present)), []).append((number, side))
        for (size, order), members in by_size.items():
            limit = max(1, self.device.capabilities.max_binding_bytes // (room(size * size) * _ITEMSIZE))
            for start in range(0, len(members), limit):
                self._add_sides(size, order, members[start : start + limit])

    def _add_sides(self, size: int, order: int, members: Sequence[tuple[int, str]]) -> None:
        for position, member in enumerate(members):
            self._side_of[member] = len(self.sides), position
        buffers = {
            kind: self.device.allocate_zeroed(len(members) * room(size * size) * _ITEMSIZE) for kind in self.kinds
        }
        self.sides.append(Sides(size, order, tuple(members), buffers))
        self.state.add(self.sides[-1])

    def _batch_key(self, number: int) -> tuple[int, ...]:
        """Return the key by which tensors are batched: the shape, and the buffers of their sides."""
        return (*self.shapes[number], *(self._side_of.get((number, side), (-1,))[0] for side in (LEFT, RIGHT)))

    def side(self, batch: Batch, side: str, kind: str) -> Matrices | None:
        """Return a kind of state of a side of each tensor in a batch; None if they have no such side."""
        if (batch.tensors[0], side) not in self._side_of:
            return None
        locations = [self._side_of[number, side] for number in batch.tensors]
        return self.sides[locations[0][0]].matrices(kind, [position for _, position in locations])

    def live_sides(self, live: Sequence[bool]) -> Iterator[tuple[Sides, list[int], list[int]]]:
        """Yield the sides in one buffer, the positions of the live ones, and their tensors."""
        for sides in self.sides:
            positions = [position for position, (number, _) in enumerate(sides.members) if live[number]]
            if positions:
                yield sides, positions, [sides.members[position][0] for position in positions]

"""State per row and per column: where it lies beside an arena, the tables that lead there, and its place in a step.

See `wgsl.line_lookup` for how the state lies, and `wgsl.factored_shell` for the tiles and lines that a step works on.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..errors import CheckpointError
from ..runtime.buffer import Buffer, View
from ..runtime.factored import PASSES, LineMeasureKernel, LineSettleKernel, measured_words
from ..runtime.rules import Flags
from ..tensors import Parameter
from ..wgsl.factored_shell import GROUP_WORDS, LINES_PER_GROUP, TILE, TILE_WORDS
from ..wgsl.line_lookup import LINE_STRUCTS, SHAPE_WORDS, line_members
from ..wgsl.shell import BLOCK
from .layout import Layout, Shard, Slots

__all__ = ["FactoredLayout"]

_ITEMSIZE = 4
_MEAN = "mean_"
"""What the name of a member of Matrix begins with that is the mean of a member of Row: no state dict shows it."""

_PARTIALS_PER_INVOCATION = 16
"""So many partials of a line are summed by one invocation before several share the line."""


class Stack(NamedTuple):
    """A tensor as a stack of matrices in its last two dimensions; a vector is a matrix of one row."""

    matrices: int
    rows: int
    columns: int
    is_matrix: bool

    @staticmethod
    def of(shape: Sequence[int]) -> Stack:
        """The stack that a tensor of that shape is."""
        if len(shape) < 2:
            return Stack(1, 1, math.prod(shape), False)
        return Stack(math.prod(shape[:-2]), shape[-2], shape[-1], True)

    @property
    def size(self) -> int:
        """Elements."""
        return self.matrices * self.rows * self.columns

    def count(self, kind: str) -> int:
        """How many lines of a kind there are."""
        return self.matrices * {"row": self.rows, "column": self.columns, "matrix": 1}[kind]

    @property
    def tile_logs(self) -> tuple[int, int]:
        """The logarithms of the rows and columns of a tile: as square as the matrix allows."""
        rows, columns = _log(self.rows), _log(self.columns)
        while rows + columns > _log(TILE):
            if rows > columns:
                rows -= 1
            else:
                columns -= 1
        return rows, columns

    def tiles(self) -> Iterator[tuple[int, int, int]]:
        """The first matrix, row and column of each tile."""
        rows, columns = self.tile_logs
        for matrix in range(0, self.matrices, TILE >> (rows + columns)):
            for row in range(0, self.rows, 1 << rows):
                for column in range(0, self.columns, 1 << columns):
                    yield matrix, row, column

    def tile_span(self, matrix: int, row: int, column: int) -> tuple[int, int]:
        """The first element of a tile, and the end of its last."""
        rows, columns = self.tile_logs
        matrices = min(TILE >> (rows + columns), self.matrices - matrix)
        last_row = (matrix + matrices - 1) * self.rows + min(row + (1 << rows), self.rows) - 1
        end = last_row * self.columns + min(column + (1 << columns), self.columns)
        return (matrix * self.rows + row) * self.columns + column, end

    def partials(self) -> dict[str, int]:
        """In how many tiles each line of a kind lies."""
        rows, columns = self.tile_logs
        strips, chunks = -(-self.columns >> columns), -(-self.rows >> rows)
        return {"row": strips, "column": chunks, "matrix": strips * chunks}


def _log(size: int) -> int:
    """The logarithm of the least power of two that is not smaller."""
    return max(0, size - 1).bit_length()


class _Place(NamedTuple):
    """Where a member of a tensor's lines lies in the buffer ``lines``, in words."""

    kind: str
    member: str
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of an arena that a kernel sees at once."""

    first_block: int
    blocks: int
    shapes: Buffer
    tiles: Buffer | None
    tile_count: int


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of the tensors of a shard."""

    lines: Buffer
    partials: Buffer
    places: Mapping[int, tuple[_Place, ...]]
    windows: Mapping[int, _Window]
    groups: Mapping[str, tuple[Buffer, int]]  # for each pass the table and its length

    @property
    def buffers(self) -> Iterator[Buffer]:
        """All of them."""
        yield from (self.lines, self.partials, *(table for table, _ in self.groups.values()))
        for window in self.windows.values():
            yield from (one for one in (window.shapes, window.tiles) if one is not None)


class FactoredLayout(Layout):
    """A layout for a rule with Row and Column.

    Attributes:
        row_names, column_names: the members of Row and Column.
        vector_names: what the state dict calls a member of Column in the state of a vector, where it is as good as
            state per element; what is not named is not shown.
        keeps_dimensions: the row state of a matrix of n rows has the shape (n, 1), not (n,); that of columns likewise.
        updates_first: `update` comes before the new lines, and sees the old ones.
    """

    row_names: ClassVar[tuple[str, ...]] = ()
    column_names: ClassVar[tuple[str, ...]] = ()
    vector_names: ClassVar[Mapping[str, str]] = {}
    keeps_dimensions: ClassVar[bool] = True
    updates_first: ClassVar[bool] = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """See `Layout`."""
        super().__init__(*arguments, **more)
        self._members = line_members(self.rule.linked(("update",), ()))
        self._passes = [suffix for suffix in PASSES if self.rule.has(f"measure_lines{suffix}")]
        self._lines = [self._lines_of(shard) for shard in self._shards]

    def _look_at(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        self._stacks = [Stack.of(one.shape) for one in params]

    # Tables.

    def _lines_of(self, shard: Shard) -> _Lines:
        places: dict[int, tuple[_Place, ...]] = {}
        partials: dict[int, int] = {}  # where those of each tensor begin
        words = entries = 0
        windows = list(shard.arena.windows())
        for index, number in shard.numbers.items():
            stack = self._stacks[number]
            places[number] = tuple(self._place_members(stack, words))
            words += sum(one.length for one in places[number])
            partials[number] = entries
            turns = len(self._turns(shard, index, windows))
            entries += turns * sum(stack.count(kind) * tiles for kind, tiles in stack.partials().items())
        seen = {first: self._window(shard, first, blocks, windows, places, partials) for first, blocks in windows}
        return _Lines(
            self._table(max(1, words)),
            self._table(max(1, entries) * measured_words(self.rule)),
            places,
            seen,
            {suffix: self._groups(shard, suffix, windows) for suffix in self._passes},
        )

    def _place_members(self, stack: Stack, first: int) -> Iterator[_Place]:
        for kind, members in self._members.items():
            for member in members:
                yield _Place(kind, member, first, stack.count(kind))
                first += stack.count(kind)

    @staticmethod
    def _turns(shard: Shard, index: int, windows: Sequence[tuple[int, int]]) -> list[int]:
        """The first blocks of the windows that show some of a tensor."""
        first = shard.arena.firsts[index] // BLOCK
        end = first + -(-shard.arena.sizes[index] // BLOCK)
        return [start for start, blocks in windows if start < end and first < start + blocks]

    def _window(
        self,
        shard: Shard,
        first: int,
        blocks: int,
        windows: Sequence[tuple[int, int]],
        places: Mapping[int, Sequence[_Place]],
        partials: Mapping[int, int],
    ) -> _Window:
        shapes = array("I", bytes(_ITEMSIZE * SHAPE_WORDS * (len(self.groups) + 1)))
        tiles = array("I")
        for index, number in shard.numbers.items():
            stack, turns = self._stacks[number], self._turns(shard, index, windows)
            begin = shard.arena.firsts[index] - first * BLOCK
            if not stack.size:
                continue
            shapes[SHAPE_WORDS * number : SHAPE_WORDS * (number + 1)] = array(
                "I",
                (
                    begin % 2**32,
                    *stack[:3],
                    places[number][0].first,
                    partials[number],
                    *stack.tile_logs,
                    len(turns),
                    stack.is_matrix,
                ),
            )
            if first in turns:
                turn = turns.index(first)
                for tile in stack.tiles():
                    low, high = stack.tile_span(*tile)
                    if begin + high > 0 and begin + low < blocks * BLOCK:
                        tiles.extend((number, *tile, turn))
        table = self._filled(tiles) if tiles else None
        return _Window(first, blocks, self._filled(shapes), table, len(tiles) // TILE_WORDS)

    def _groups(self, shard: Shard, suffix: str, windows: Sequence[tuple[int, int]]) -> tuple[Buffer, int]:
        kernel = LineSettleKernel.of(self.rule, shard.flags, suffix)
        groups = array("I")
        for index, number in shard.numbers.items():
            stack, turns = self._stacks[number], len(self._turns(shard, index, windows))
            for kind_number, kind in enumerate(LINE_STRUCTS):
                if kind not in kernel.functions or not stack.size:
                    continue
                shared = -(-turns * stack.partials()[kind] // _PARTIALS_PER_INVOCATION)
                log_team = min(_log(shared), _log(LINES_PER_GROUP))
                for first in range(0, stack.count(kind), LINES_PER_GROUP >> log_team):
                    groups.extend((number, kind_number, first, log_team))
        return self._filled(groups or array("I", bytes(_ITEMSIZE * GROUP_WORDS))), len(groups) // GROUP_WORDS

    def _filled(self, words: array[int]) -> Buffer:
        buffer = self._table(len(words))
        self.device.write(View.whole(buffer), memoryview(words).cast("B"))
        return buffer

    def retire(self) -> None:
        super().retire()
        for lines in self._lines:
            for buffer in lines.buffers:
                buffer.retired = True

    # Work.

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for number in range(len(self._shards)):
            self._measure_lines(number, PASSES[0], shared)
            if not self.updates_first:
                self._settle_lines(number, PASSES[0], shared)

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for suffix in self._passes[1:]:
            for number in range(len(self._shards)):
                self._measure_lines(number, suffix, shared)
                self._settle_lines(number, suffix, shared)

    def _after_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        if self.updates_first:
            for number in range(len(self._shards)):
                self._settle_lines(number, PASSES[0], shared)

    def _measure_lines(self, number: int, suffix: str, shared: Mapping[str, View]) -> None:
        shard, lines = self._shards[number], self._lines[number]
        kernel = LineMeasureKernel.of(self.rule, shard.flags, suffix, shard.stored)
        for window in lines.windows.values():
            if window.tiles is not None:
                views = {**shared, "tiles": View.whole(window.tiles)}
                self._run_window(shard, kernel, views, window.first_block, window.blocks, window.tile_count)

    def _settle_lines(self, number: int, suffix: str, shared: Mapping[str, View]) -> None:
        shard, lines = self._shards[number], self._lines[number]
        groups, count = lines.groups[suffix]
        views = {**shared, **self._views_of(shard, 0), "groups": View.whole(groups)}
        self._run(LineSettleKernel.of(self.rule, shard.flags, suffix), views, count)

    def _views_of(self, shard: Shard, first: int) -> dict[str, View]:
        lines = self._lines[self._shards.index(shard)]
        return {
            "lines": View.whole(lines.lines),
            "line_partials": View.whole(lines.partials),
            "shapes": View.whole(lines.windows[first].shapes),
        }

    # State.

    @classmethod
    def state_shape(cls, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the state of that name of a parameter.

        Raises:
            CheckpointError: a parameter of this shape has no such state.
        """
        of_matrices = name in (*cls.row_names, *cls.column_names)
        if name in cls.more_state and of_matrices != (len(shape) > 1):
            raise CheckpointError(f"a parameter of the shape {shape} has no state '{name}'")
        kept = (1,) if cls.keeps_dimensions else ()
        if name in cls.row_names:
            return (*shape[:-1], *kept)
        if name in cls.column_names:
            return (*shape[:-2], *kept, shape[-1])
        return super().state_shape(name, shape)

    def _is_shown(self, number: int, name: str) -> bool:
        """Whether state dicts show the state of that name of a tensor."""
        is_matrix = self._stacks[number].is_matrix
        return name in (self.more_state if is_matrix else self.vector_names.values())

    def _name(self, number: int, place: _Place) -> str:
        """What a member is called in the state of a tensor."""
        if not self._stacks[number].is_matrix and place.kind == "column":
            return self.vector_names.get(place.member, place.member)
        return place.member

    def _line_places(self, shard_number: int) -> Iterator[tuple[int, str, _Place]]:
        for number, places in self._lines[shard_number].places.items():
            for place in places:
                yield number, self._name(number, place), place

    def state_views(self) -> dict[str, View]:
        lines = {f"{number}.lines": View.whole(one.lines) for number, one in enumerate(self._lines)}
        return {**super().state_views(), **lines}

    def state_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        found = super().state_in(contents)
        for shard_number in range(len(self._shards)):
            raw = contents[f"{shard_number}.lines"]
            for number, name, place in self._line_places(shard_number):
                if self._is_shown(number, name):
                    found[number][name] = raw[_ITEMSIZE * place.first : _ITEMSIZE * (place.first + place.length)]
        return found

    def _line_slots(self) -> Slots:
        return {
            (number, name): View(self._lines[shard_number].lines, _ITEMSIZE * place.first, _ITEMSIZE * place.length)
            for shard_number in range(len(self._shards))
            for number, name, place in self._line_places(shard_number)
            if place.length
        }

    def slots(self) -> Slots:
        return {**super().slots(), **self._line_slots()}

    def places(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        found = super().places(scalars)
        for (number, name), place in self._line_slots().items():
            if self._is_shown(number, name):
                found[number][name] = place
            else:
                found[number].pop(name, None)
        return found

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        super().write_state(given)
        for shard_number, lines in enumerate(self._lines):
            content = memoryview(bytearray(lines.lines.nbytes)).cast("f")
            for number, name, place in self._line_places(shard_number):
                entry = given.get(number, {})
                if name in entry:
                    content[place.first : place.first + place.length] = memoryview(entry[name]).cast("B").cast("f")
                elif name.removeprefix(_MEAN) in entry:
                    rows = memoryview(entry[name.removeprefix(_MEAN)]).cast("B").cast("f")
                    count = self._stacks[number].rows
                    for matrix in range(place.length):
                        content[place.first + matrix] = sum(rows[matrix * count : (matrix + 1) * count]) / max(count, 1)
            self.device.write(View.whole(lines.lines), content.cast("B"))

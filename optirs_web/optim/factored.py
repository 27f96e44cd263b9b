"""State per row and per column of matrices: its buffers, the tables by which kernels address it, and its update.

A line is a row, a column or a whole matrix. See `wgsl.line_lookup` for the layout of the state, and
`wgsl.factored_shell` for the tiles and lines over which a step runs.
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
from ..wgsl.line_lookup import LINE_STRUCTS, SHAPE_WORDS, line_counts, line_members, tiles_of_lines
from ..wgsl.shell import BLOCK
from .layout import Layout
from .shards import Shard

__all__ = ["FactoredLayout"]

_ITEMSIZE = 4
_MEAN = "mean_"
"""The prefix of a member of Matrix that is the mean of a member of Row, and is not in state dicts."""

_PARTIALS_PER_INVOCATION = 16
"""Partials of a line that one invocation sums; with more, several invocations share the line."""


class Stack(NamedTuple):
    """A tensor as a stack of matrices in its last two dimensions; a vector is a matrix of one row."""

    matrices: int
    rows: int
    columns: int
    is_matrix: bool

    @staticmethod
    def of(shape: Sequence[int]) -> Stack:
        """Return the stack of matrices of a tensor of that shape."""
        if len(shape) < 2:
            return Stack(1, 1, math.prod(shape), False)
        return Stack(math.prod(shape[:-2]), shape[-2], shape[-1], True)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.matrices * self.rows * self.columns

    def count(self, kind: str) -> int:
        """Return the number of lines of a kind."""
        return line_counts(self.matrices, self.rows, self.columns)[kind]

    @property
    def tile_logs(self) -> tuple[int, int]:
        """The base-2 logarithms of the rows and columns of a tile: as square as the matrix allows."""
        rows, columns = _log(self.rows), _log(self.columns)
        while rows + columns > _log(TILE):
            if rows > columns:
                rows -= 1
            else:
                columns -= 1
        return rows, columns

    def tiles(self) -> Iterator[tuple[int, int, int]]:
        """Yield the first matrix, row and column of each tile."""
        rows, columns = self.tile_logs
        for matrix in range(0, self.matrices, TILE >> (rows + columns)):
            for row in range(0, self.rows, 1 << rows):
                for column in range(0, self.columns, 1 << columns):
                    yield matrix, row, column

    def tile_span(self, matrix: int, row: int, column: int) -> tuple[int, int]:
        """Return the offset of the first element of a tile, and the end of its last one."""
        rows, columns = self.tile_logs
        matrices = min(TILE >> (rows + columns), self.matrices - matrix)
        last_row = (matrix + matrices - 1) * self.rows + min(row + (1 << rows), self.rows) - 1
        end = last_row * self.columns + min(column + (1 << columns), self.columns)
        return (matrix * self.rows + row) * self.columns + column, end

    def partials(self) -> dict[str, int]:
        """Return the number of tiles that each line of a kind crosses, by kind."""
        return tiles_of_lines(self.rows, self.columns, *self.tile_logs)


def _log(size: int) -> int:
    """Return the base-2 logarithm of a size, rounded up."""
    return max(0, size - 1).bit_length()


class _MemberRange(NamedTuple):
    """The range of a member of a tensor's lines in the buffer ``lines``, in words, and its name in the state."""

    name: str
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class _BindingRange:
    """A binding range of an arena, with the tables of its tiles."""

    first_block: int
    blocks: int
    shapes: Buffer
    tiles: Buffer | None
    tile_count: int


@dataclass(frozen=True, slots=True)
class _Lines:
    """The buffers and tables of the lines of a shard's tensors."""

    lines: Buffer
    partials: Buffer
    members: Mapping[int, tuple[_MemberRange, ...]]
    ranges: Mapping[int, _BindingRange]
    groups: Mapping[str, tuple[Buffer, int]]  # for each pass the table and its length

    @property
    def tables(self) -> Iterator[Buffer]:
        """The buffers that hold no state."""
        yield from (self.partials, *(table for table, _ in self.groups.values()))
        for range_ in self.ranges.values():
            yield from (table for table in (range_.shapes, range_.tiles) if table is not None)

    # The interface `StateBuffers`.

    stored: ClassVar[Mapping[str, str]] = {}

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """The buffer of the state."""
        return {"lines": self.lines}

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Yield the number of the tensor, name and view of each member."""
        for number, members in self.members.items():
            for member in members:
                yield number, member.name, View(self.lines, _ITEMSIZE * member.first, _ITEMSIZE * member.length)


class FactoredLayout(Layout):
    """A layout for a rule with Row and Column.

    Attributes:
        row_names, column_names: the members of Row and Column.
        vector_names: the names in state dicts of members of Column in the state of a vector, which is then state per
            element; other members are not shown.
        keeps_dimensions: the row state of a matrix of n rows has the shape (n, 1), not (n,); that of columns likewise.
        updates_first: `update` runs before the lines are updated, and reads the old ones.
    """

    row_names: ClassVar[tuple[str, ...]] = ()
    column_names: ClassVar[tuple[str, ...]] = ()
    vector_names: ClassVar[Mapping[str, str]] = {}
    keeps_dimensions: ClassVar[bool] = True
    updates_first: ClassVar[bool] = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._members = line_members(self.rule.linked(("update",), ()))
        self._passes = [suffix for suffix in PASSES if self.rule.has(f"measure_lines{suffix}")]
        self._lines = [self._lines_of(shard) for shard in self.shards]
        for lines in self._lines:
            self.state.add(lines)

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        self._stacks = [Stack.of(param.shape) for param in params]

    # Tables.

    def _lines_of(self, shard: Shard) -> _Lines:
        members: dict[int, tuple[_MemberRange, ...]] = {}
        partials: dict[int, int] = {}  # where those of each tensor begin
        words = entries = 0
        ranges = list(shard.arena.binding_ranges())
        for index, number in shard.numbers.items():
            stack = self._stacks[number]
            members[number] = tuple(self._member_ranges(stack, words))
            words += sum(member.length for member in members[number])
            partials[number] = entries
            passes = len(self._ranges_with(shard, index, ranges))
            entries += passes * sum(stack.count(kind) * tiles for kind, tiles in stack.partials().items())
        by_first = {
            first_block: self._range(shard, first_block, blocks, ranges, members, partials)
            for first_block, blocks in ranges
        }
        return _Lines(
            self.device.allocate_zeroed(_ITEMSIZE * max(1, words)),
            self.device.allocate_zeroed(_ITEMSIZE * max(1, entries) * measured_words(self.rule)),
            members,
            by_first,
            {suffix: self._groups(shard, suffix, ranges) for suffix in self._passes},
        )

    def _member_ranges(self, stack: Stack, first_index: int) -> Iterator[_MemberRange]:
        for kind, members in self._members.items():
            for member in members:
                is_of_vector = kind == "column" and not stack.is_matrix
                name = self.vector_names.get(member, member) if is_of_vector else member
                yield _MemberRange(name, first_index, stack.count(kind))
                first_index += stack.count(kind)

    @staticmethod
    def _ranges_with(shard: Shard, index: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Return the first blocks of the binding ranges that contain part of a tensor."""
        tensor_first = shard.arena.firsts[index] // BLOCK
        end = tensor_first + -(-shard.arena.sizes[index] // BLOCK)
        return [
            first_block for first_block, blocks in ranges if first_block < end and tensor_first < first_block + blocks
        ]

    def _range(
        self,
        shard: Shard,
        first_block: int,
        blocks: int,
        ranges: Sequence[tuple[int, int]],
        members: Mapping[int, Sequence[_MemberRange]],
        partials: Mapping[int, int],
    ) -> _BindingRange:
        shapes = array("I", bytes(_ITEMSIZE * SHAPE_WORDS * (len(self.groups) + 1)))
        tiles = array("I")
        for index, number in shard.numbers.items():
            stack, passes = self._stacks[number], self._ranges_with(shard, index, ranges)
            begin = shard.arena.firsts[index] - first_block * BLOCK
            if not stack.size:
                continue
            shapes[SHAPE_WORDS * number : SHAPE_WORDS * (number + 1)] = array(
                "I",
                (
                    begin % 2**32,
                    *stack[:3],
                    members[number][0].first,
                    partials[number],
                    *stack.tile_logs,
                    len(passes),
                    stack.is_matrix,
                ),
            )
            if first_block in passes:
                pass_number = passes.index(first_block)
                for tile in stack.tiles():
                    low, high = stack.tile_span(*tile)
                    if begin + high > 0 and begin + low < blocks * BLOCK:
                        tiles.extend((number, *tile, pass_number))
        table = self.device.constant(tiles) if tiles else None
        return _BindingRange(first_block, blocks, self.device.constant(shapes), table, len(tiles) // TILE_WORDS)

    def _groups(self, shard: Shard, suffix: str, ranges: Sequence[tuple[int, int]]) -> tuple[Buffer, int]:
        kernel = LineSettleKernel.of(self.rule, shard.flags, suffix)
        groups = array("I")
        for index, number in shard.numbers.items():
            stack, passes = self._stacks[number], len(self._ranges_with(shard, index, ranges))
            for kind_number, kind in enumerate(LINE_STRUCTS):
                if kind not in kernel.functions or not stack.size:
                    continue
                groups_of_partials = -(-passes * stack.partials()[kind] // _PARTIALS_PER_INVOCATION)
                log_invocations = min(_log(groups_of_partials), _log(LINES_PER_GROUP))
                for first_line in range(0, stack.count(kind), LINES_PER_GROUP >> log_invocations):
                    groups.extend((number, kind_number, first_line, log_invocations))
        return self.device.constant(groups or array("I", bytes(_ITEMSIZE * GROUP_WORDS))), len(groups) // GROUP_WORDS

    def retire(self) -> None:
        super().retire()
        for lines in self._lines:
            for table in lines.tables:
                table.retired = True

    # Work.

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for number in range(len(self.shards)):
            self._measure_lines(number, PASSES[0], shared)
            if not self.updates_first:
                self._settle_lines(number, PASSES[0], shared)

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for suffix in self._passes[1:]:
            for number in range(len(self.shards)):
                self._measure_lines(number, suffix, shared)
                self._settle_lines(number, suffix, shared)

    def _after_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        if self.updates_first:
            for number in range(len(self.shards)):
                self._settle_lines(number, PASSES[0], shared)

    def _measure_lines(self, number: int, suffix: str, shared: Mapping[str, View]) -> None:
        shard, lines = self.shards[number], self._lines[number]
        kernel = LineMeasureKernel.of(self.rule, shard.flags, suffix, shard.stored)
        for range_ in lines.ranges.values():
            if range_.tiles is not None:
                views = {**shared, "tiles": View.whole(range_.tiles)}
                self.run_range(shard, kernel, views, range_.first_block, range_.blocks, range_.tile_count)

    def _settle_lines(self, number: int, suffix: str, shared: Mapping[str, View]) -> None:
        shard, lines = self.shards[number], self._lines[number]
        groups, count = lines.groups[suffix]
        views = {**shared, **self._views_of(shard, 0), "groups": View.whole(groups)}
        self.run(LineSettleKernel.of(self.rule, shard.flags, suffix), views, count)

    def _views_of(self, shard: Shard, first_block: int) -> dict[str, View]:
        lines = self._lines[self.shards.index(shard)]
        return {
            "lines": View.whole(lines.lines),
            "line_partials": View.whole(lines.partials),
            "shapes": View.whole(lines.ranges[first_block].shapes),
        }

    # State.

    @classmethod
    def state_shape(cls, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a parameter's state of that name.

        Raises:
            CheckpointError: a parameter of this shape has no such state.
        """
        is_for_matrices = name in (*cls.row_names, *cls.column_names)
        if name in cls.more_state and is_for_matrices != (len(shape) > 1):
            raise CheckpointError(f"a parameter of the shape {shape} has no state '{name}'")
        kept = (1,) if cls.keeps_dimensions else ()
        if name in cls.row_names:
            return (*shape[:-1], *kept)
        if name in cls.column_names:
            return (*shape[:-2], *kept, shape[-1])
        return super().state_shape(name, shape)

    def _is_shown(self, number: int, name: str) -> bool:
        """Return whether state dicts show a tensor's state of that name."""
        is_matrix = self._stacks[number].is_matrix
        return name in (self.more_state if is_matrix else self.vector_names.values())

    def _hidden(self) -> Iterator[tuple[int, str]]:
        """Yield the number of the tensor and name of each member of lines that state dicts do not show."""
        for lines in self._lines:
            for number, members in lines.members.items():
                yield from ((number, member.name) for member in members if not self._is_shown(number, member.name))

    def state_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        state = super().state_in(contents)
        for number, name in self._hidden():
            del state[number][name]
        return state

    def tensor_views(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        views = super().tensor_views(scalars)
        for number, name in self._hidden():
            del views[number][name]
        return views

    def write_state(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        super().write_state({number: {**self._means(number, slots), **slots} for number, slots in state.items()})

    def _means(self, number: int, slots: Mapping[str, memoryview]) -> dict[str, memoryview]:
        """Return the members of Matrix that are means of the members of Row in the state of a tensor."""
        stack, means = self._stacks[number], {}
        for member in self._members.get("matrix", ()):
            if member.startswith(_MEAN) and member.removeprefix(_MEAN) in slots:
                rows = slots[member.removeprefix(_MEAN)].cast("B").cast("f")
                sums = (sum(rows[matrix * stack.rows : (matrix + 1) * stack.rows]) for matrix in range(stack.matrices))
                means[member] = memoryview(array("f", (total / max(stack.rows, 1) for total in sums))).cast("B")
        return means

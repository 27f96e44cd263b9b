"""The device side of gradient transforms: the tables that their kernels read besides those of the layout.

`transforms` (one struct with the options of each), `block_entries` and `row_entries` (the tensor and the offset of each
block and row), `rowsN` (a number for each row), and `partials` of their own.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..runtime.buffer import Buffer, View
from ..runtime.rules import KEPT, Rule
from ..runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ..tensors import Parameter
from ..wgsl.shell import BLOCK, struct_of
from .tables import HostTable

if TYPE_CHECKING:
    from .layout import Layout
    from .shards import Shard
    from .transforms import Transform

__all__ = ["IS_KNOWN", "Pipeline", "live_words", "rule_with"]

IS_KNOWN = 1 << 31
"""The bit of `on` that every tensor of the optimizer has."""


def rule_with(rule: Rule, transforms: Sequence[Transform]) -> Rule:
    """Return the rule with the transforms that have a kernel in front of it."""
    stages = tuple(transform.stage for transform in transforms if transform.stage is not None)
    return replace(rule, stages=stages) if stages else rule


def live_words(transforms: Sequence[Transform], params: Sequence[Parameter]) -> list[tuple[bool, int]]:
    """Return for each parameter whether it is trained, and the bits of the transforms that apply to it."""
    staged = [transform for transform in transforms if transform.stage is not None]
    words = []
    for param in params:
        is_trained = all(transform.stage is not None or not transform.applies_to(param) for transform in transforms)
        bits = sum(1 << number + 1 for number, transform in enumerate(staged) if transform.applies_to(param))
        words.append((is_trained, bits | IS_KNOWN if staged else 0))
    return words


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one arena that kernels of transforms bind."""

    block_entries: Buffer | None
    row_entries: Buffer | None
    row_count: int
    rows: Mapping[str, Buffer]

    def buffers(self) -> Iterator[Buffer]:
        """Return the tables that exist."""
        for buffer in (self.block_entries, self.row_entries, *self.rows.values()):
            if buffer is not None:
                yield buffer


class Pipeline:
    """The buffers that the transforms of a layout keep on the device, and the launches over them.

    Args:
        layout: the layout, which has its shards and its rule already.
        params: the parameters, in order.
        blocks: the number of blocks of all shards.
    """

    def __init__(self, layout: Layout, params: Sequence[Parameter], blocks: int) -> None:
        self.layout = layout
        self.rule = layout.rule
        self.transforms: list[Transform] = []
        device = layout.device
        self._neutral: Buffer | None = None
        self._options = HostTable(device, len(self.rule.transforms))
        self._words = {
            number: len(struct_of(self.rule.linked((f"measure_transform_{number}",), ()), f"Partial{number}").members)
            for number, stage in enumerate(self.rule.stages)
            if stage.over in ("all", "tensor")
        }
        most = max(self._words.values(), default=0)
        self._partials = device.allocate_zeroed(4 * most * blocks) if most else None
        self._tables = {id(shard): self._tables_for(shard, params) for shard in layout.shards}

    def _tables_for(self, shard: Shard, params: Sequence[Parameter]) -> _Tables:
        device, stages = self.layout.device, self.rule.stages
        has_rows = any(stage.over == "row" for stage in stages)
        if has_rows and len(list(shard.arena.binding_ranges())) > 1:
            raise UnsupportedError(
                "transforms of rows need all parameters of an arena in one binding; these are too large for "
                f"'{device.name}'"
            )
        block_entries = entries = None
        count = 0
        rows: dict[str, Buffer] = {}
        if has_rows or any(stage.name == "add_noise" for stage in stages):
            table, row_table = _tables_of(shard, params)
            block_entries, count = device.constant(table), len(row_table) // 4
            if has_rows:
                entries = device.constant(row_table)
                names = [f"rows{number}" for number, stage in enumerate(stages) if stage.over == "row"]
                rows = {name: device.allocate_zeroed(4 * count) for name in names}
        return _Tables(block_entries, entries, count, rows)

    def retire(self) -> None:
        """Mark the buffers as replaced: programs that use them must be recorded again."""
        for buffer in self._own():
            buffer.retired = True

    def _own(self) -> Iterator[Buffer]:
        yield self._options.view.buffer
        if self._partials is not None:
            yield self._partials
        for tables in self._tables.values():
            yield from tables.buffers()

    # Work.

    def write_options(self) -> None:
        """Write the struct `transforms`, whose members have 4 bytes each, if it has changed."""
        words = []
        members = iter(self.rule.transforms)
        for transform, stage in zip(self.transforms, self.rule.stages, strict=True):
            for _ in range(stage.members):
                name, type_ = next(members)
                value = transform.options[name] if name in stage.options else 0
                words.append(struct.pack("<I" if type_ == "u32" else "<f", value))
        self._options.write(b"".join(words))

    def shared(self, scaler: View | None) -> dict[str, View]:
        """Return the views that kernels of all arenas may bind, by name of the binding."""
        return {"transforms": self._options.view, "scaler": self.neutral_scaler() if scaler is None else scaler}

    def neutral_scaler(self) -> View:
        """Return the state of a scaler whose scale is 1."""
        if self._neutral is None:
            self._neutral = self.layout.device.allocate_zeroed(4 * 3)
            self.layout.device.write(View.whole(self._neutral), memoryview(struct.pack("<3f", 1, 0, 0)))
        return View.whole(self._neutral)

    def views_of(self, shard: Shard, first: int, blocks: int) -> dict[str, View]:
        """Return the views that kernels may bind for blocks of a shard's arena, by name of the binding."""
        tables = self._tables[id(shard)]
        views = {name: View.whole(buffer) for name, buffer in tables.rows.items()}
        if KEPT in shard.state:
            views["kept"] = shard.arena.range_view(shard.state[KEPT], first, blocks)
        if tables.block_entries is not None:
            views["block_entries"] = View(tables.block_entries, 12 * first, 12 * blocks)
        if tables.row_entries is not None:
            views["row_entries"] = View.whole(tables.row_entries)
        return views

    def all_partials(self, number: int) -> View:
        """Return the partial results of a transform over all blocks."""
        assert self._partials is not None
        words = self._words[number]
        return View(self._partials, 0, 4 * words * self.layout.block_count)

    def measure(self, number: int, shared: Mapping[str, View]) -> None:
        """Launch the kernels that measure transform `number` over all arenas; they write partial sums of each block."""
        assert self._partials is not None
        nbytes = 4 * self._words[number]
        for shard in self.layout.shards:
            kernel = TransformMeasureKernel.of(self.rule, shard.flags, number)
            for first, blocks in shard.arena.binding_ranges():
                partials = View(self._partials, (shard.first_block + first) * nbytes, blocks * nbytes)
                views = {**shared, "partials": partials}
                self.layout.run_range(
                    shard, kernel, views, first, blocks, -(-blocks * BLOCK // kernel.elements_per_workgroup)
                )

    def after_advance(self, shared: Mapping[str, View]) -> None:
        """Launch the measures that `advance` does not compute itself, and the kernels that settle them."""
        first = self.rule.first_measure
        for number, stage in enumerate(self.rule.stages):
            if stage.over == "row":
                self._measure_rows(number, shared)
            elif stage.over and (number != first or stage.over != "all"):
                if number != first:
                    self.measure(number, shared)
                kernel = TransformSettleKernel.of(self.rule, self.layout.shards[0].flags, number)
                views = {**shared, "partials": self.all_partials(number)}
                self.layout.run(kernel, views, 1 if kernel.over_all else len(self.layout.groups))

    def _measure_rows(self, number: int, shared: Mapping[str, View]) -> None:
        for shard in self.layout.shards:
            kernel = TransformRowsKernel.of(self.rule, shard.flags, number)
            count = self._tables[id(shard)].row_count
            if count:
                self.layout.run_range(shard, kernel, shared, 0, shard.arena.blocks, count)


def _tables_of(shard: Shard, params: Sequence[Parameter]) -> tuple[array[int], array[int]]:
    """Return `block_entries` and `row_entries` of an arena. A tensor of one dimension or none is one row."""
    block_entries, entries = array("I"), array("I")
    rows = 0
    for index in shard.arena.order:
        size = shard.arena.sizes[index]
        blocks = -(-size // BLOCK)
        number = shard.numbers.get(index)
        shape = params[number].shape if number is not None else ()
        count = shape[0] if len(shape) > 1 and size else 1
        length = max(1, size // count)
        for block in range(blocks):
            block_entries.extend((block, rows, length))
        if number is not None and size:
            first = shard.arena.firsts[index]
            for row in range(count):
                entries.extend((number, first + row * length, row * length, length))
            rows += count
    block_entries.extend([0, 0, 1] * (shard.arena.blocks - len(block_entries) // 3))
    return block_entries, entries

"""The buffers of an optimizer on the device: state slots for each arena, and the tables that its kernels read.

Tensors are numbered in the order of the parameter groups; one more number stands for tensors of an arena
that belong to another optimizer. The tables are those that `wgsl.rule_shell` declares: `tensors` (an entry for each),
`hyper` (one row per group), `tensor_scalars` (is_active, hyper, scalars), `blocks` (tensor, size), `partials` (the
measures of each block, for all arenas in sequence).
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runtime.arena import BLOCKS_PER_WINDOW, Arena, Home, blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.program import Program
from ..runtime.rules import KEPT, Flags, Rule, Stored
from ..tensors import Parameter
from ..wgsl import param_storage, slot_storage
from ..wgsl.rule_shell import ENTRY_WORDS
from ..wgsl.shell import BLOCK, struct_of
from .arenas import slot_of

if TYPE_CHECKING:
    from .pipeline import Pipeline

__all__ = ["Shard", "Tables"]

_LARGEST_BYTES = 4  # of a block whose state is stored in 8 bits

_OF_A_SCHEDULE = b"\xff\xff\xff\xff"  # a NaN that no option is


@dataclass(frozen=True, slots=True)
class Shard:
    """The tensors of one arena that have the same flags and types of state."""

    arena: Arena
    flags: Flags
    stored: Stored
    state: Mapping[str, Buffer]
    blocks: Buffer
    numbers: Mapping[int, int]  # index in the arena -> number in the optimizer
    first_block: int  # of the arena, among the blocks of all shards

    def block_view(self, first_block: int, blocks: int) -> View:
        """Return a part of the table of blocks, of 8 bytes each."""
        return View(self.blocks, 8 * first_block, 8 * blocks)


class Tables:
    """The tables and the slots of one optimizer.

    Args:
        rule: the update rule.
        params: all parameters, each in an arena.
        groups: the group of each.
        group_count: number of groups, empty ones too.
        flags: the flags of each.
        checked: skip a step whose gradients are not finite.
        stored: the types of the state of each, where not float32.
    """

    def __init__(
        self,
        rule: Rule,
        params: Sequence[Parameter],
        groups: Sequence[int],
        group_count: int,
        flags: Sequence[Flags],
        checked: bool,
        stored: Sequence[Stored] | None = None,
    ) -> None:
        self.device: Device = params[0].device
        self.groups = list(groups)
        self.hyper_count = group_count
        self.checked = checked
        self.rule = rule
        self._inspect(params, flags)
        self._words = 1 + len(rule.hyper) + len(rule.scalars) + (1 + len(rule.transforms) if rule.stages else 0)

        rows = len(params) + 1
        self._tensors = self._table(ENTRY_WORDS * rows)
        self._hyper = self._table(len(rule.hyper) * self.hyper_count)
        self._tensor_scalars = self._table(self._words * rows)
        self._found_inf = self._table(2)
        self._zero = self._table(1)
        members: dict[tuple[int, Flags, Stored], dict[int, Home]] = {}
        for number, (param, tensor_flags, tensor_stored) in enumerate(
            zip(params, flags, stored or [()] * len(params), strict=True)
        ):
            home = slot_of(param)
            members.setdefault((id(home.arena), tensor_flags, tensor_stored), {})[number] = home
        self._shards: list[Shard] = []
        blocks = 0
        for (_, tensor_flags, tensor_stored), homes in members.items():
            self._shards.append(self._shard(tensor_flags, tensor_stored, homes, len(params), blocks))
            blocks += -(-self._shards[-1].arena.blocks // BLOCKS_PER_WINDOW) * BLOCKS_PER_WINDOW
        self._as_float32 = {
            (number, name)
            for shard in self._shards
            for name in self.rule.slots(shard.flags)
            if name not in dict(shard.stored)
            for number in shard.numbers.values()
        }
        self._block_ranges = [(0, 0, 0)] * len(params)  # first block, blocks and size of each tensor
        for shard in self._shards:
            for index, number in shard.numbers.items():
                size = shard.arena.sizes[index]
                first_block = shard.first_block + shard.arena.firsts[index] // BLOCK
                self._block_ranges[number] = first_block, blocks_of(size), size
        self._measured_words = len(struct_of(rule.linked(("measure",), ()), "Measured").members) if rule.measures else 0
        self._partials = self._table(blocks * self._measured_words) if rule.measures else None
        self.block_count = blocks
        self._pipeline: Pipeline | None = None  # made when transforms are put to use
        self._hyper_rows: list[list[float]] = []
        self._written: dict[Buffer, bytes] = {}
        self._recorded: tuple[weakref.ref[Program], bytes] | None = None
        self.scheduled: set[int] = set()  # words of `hyper` that schedules have written since the host did
        self._followed: dict[int, View] = {}  # words of `hyper` that are copied from elsewhere

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        """Inspect the tensors before the tables are made; a subclass may assign them other rows of `hyper`."""

    def _table(self, words: int) -> Buffer:
        return self.device.allocate_zeroed(4 * words)

    def _shard(self, flags: Flags, stored: Stored, homes: Mapping[int, Home], absent: int, first_block: int) -> Shard:
        arena = next(iter(homes.values())).arena
        numbers = {home.index: number for number, home in homes.items()}
        table = arena.block_table(numbers, absent)
        blocks = self.device.allocate_zeroed(4 * len(table))
        self.device.write(View.whole(blocks), memoryview(table).cast("B"))
        state = {}
        for name in self.rule.slots(flags):
            kind = dict(stored).get(name, "float32")
            state[name] = arena.new_buffer(BLOCK * slot_storage.BITS[kind] // 8)
            if slot_storage.is_blockwise([kind]):
                state[slot_storage.largest_name(name)] = arena.new_buffer(_LARGEST_BYTES)
        extra_slot = param_storage.SLOTS.get(dict(stored).get(param_storage.PARAM, ""))
        if extra_slot is not None:
            state[extra_slot] = arena.new_buffer(BLOCK * 2)
        if self.rule.gathers:
            state[KEPT] = arena.new_buffer()
        return Shard(arena, flags, stored, state, blocks, numbers, first_block)

    def retire(self) -> None:
        """Retire the buffers, so that programs that use this layout are recorded again."""
        for buffer in (self._tensors, self._hyper, self._tensor_scalars, self._found_inf, self._partials):
            if buffer is not None:
                buffer.retired = True
        for shard in self._shards:
            for buffer in (shard.blocks, *shard.state.values()):
                buffer.retired = True
        if self._pipeline is not None:
            self._pipeline.retire()

    def set_hyper(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Write the hyper-parameters, a row for each group, and the options of transforms, if they have changed.

        Words that schedules have written on the device, or that are copied on the device, are not written.
        """
        if self._pipeline is not None:
            self._write_if_changed(*self._pipeline.options())
        self._hyper_rows = [[row[name] for name in self.rule.hyper] for row in rows]
        words = [word for row in self._hyper_rows for word in row]
        content = bytearray(struct.pack(f"<{len(words)}f", *words))
        for word in (*self.scheduled, *self._followed):
            content[4 * word : 4 * word + 4] = _OF_A_SCHEDULE
        before = self._written.get(self._hyper, bytes(len(content)))
        end = 0
        for start in range(0, len(content), 4):
            if start < end or not _is_to_write(content, before, start):
                continue
            end = start + 4
            while end < len(content) and _is_to_write(content, before, end):
                end += 4
            self.device.write(View(self._hyper, start, end - start), memoryview(content)[start:end])
        self._written[self._hyper] = bytes(content)

    def follow(self, rates: Mapping[int, View]) -> None:
        """Have `copy_rates` set `lr` of these groups from these views."""
        if "lr" in self.rule.hyper:
            column, width = self.rule.hyper.index("lr"), len(self.rule.hyper)
            words = {width * row + column: view for group, view in rates.items() for row in self.hyper_rows(group)}
            self._followed = words

    def copy_rates(self) -> None:
        """Enqueue copies of the learning rates that are tensors."""
        for word, view in self._followed.items():
            self.device.copy(view, View(self._hyper, 4 * word, 4))

    def hyper_rows(self, group: int) -> Sequence[int]:
        """Return the rows of `hyper` that are set from a group."""
        return [group]

    @property
    def hyper_buffer(self) -> Buffer:
        """The table of hyper-parameters."""
        return self._hyper

    def _write_if_changed(self, buffer: Buffer, content: bytes) -> None:
        if self._written.get(buffer) != content:
            self.device.write(View.whole(buffer), memoryview(content))
            self._written[buffer] = content


def _is_to_write(content: bytearray, before: bytes, offset: int) -> bool:
    word = content[offset : offset + 4]
    return word != before[offset : offset + 4] and word != _OF_A_SCHEDULE

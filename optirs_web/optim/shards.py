"""Shards: the tensors of one arena whose state has the same slots and types, with the buffers of that state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..runtime.arena import BLOCKS_PER_RANGE, Arena, Home, blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.rules import KEPT, Flags, Rule, Stored
from ..tensors import Parameter
from ..wgsl import param_storage, slot_storage
from ..wgsl.shell import BLOCK
from .arenas import home_of

__all__ = ["Shard", "block_ranges", "shards_of"]

_LARGEST_BYTES = 4  # of a block whose state is stored in 8 bits


@dataclass(frozen=True, slots=True)
class Shard:
    """The tensors of one arena that have the same flags and types of state."""

    arena: Arena
    flags: Flags
    stored: Stored
    state: Mapping[str, Buffer]
    blocks: Buffer
    numbers: Mapping[int, int]  # index in the arena -> number in the optimizer, as they follow one another there
    first_block: int  # of the arena, among the blocks of all shards

    def block_view(self, first_block: int, blocks: int) -> View:
        """Return a part of the table of blocks, of 8 bytes each."""
        return View(self.blocks, 8 * first_block, 8 * blocks)

    def views(self, name: str) -> Iterator[tuple[int, View]]:
        """Yield the number of each tensor and the view of its state of that name."""
        for index, number in self.numbers.items():
            yield number, self.arena.tensor_view(self.state[name], index)


def shards_of(rule: Rule, params: Sequence[Parameter], flags: Sequence[Flags], stored: Sequence[Stored]) -> list[Shard]:
    """Return shards of these parameters, with state of zeros.

    Args:
        rule: the update rule.
        params: all parameters of an optimizer, each in an arena.
        flags: the flags of each.
        stored: the types of the state of each, where not float32.
    """
    members: dict[tuple[int, Flags, Stored], dict[int, Home]] = {}
    for number, (param, tensor_flags, tensor_stored) in enumerate(zip(params, flags, stored, strict=True)):
        home = home_of(param)
        members.setdefault((id(home.arena), tensor_flags, tensor_stored), {})[number] = home
    shards: list[Shard] = []
    first_block = 0
    for (_, tensor_flags, tensor_stored), homes in members.items():
        arena = next(iter(homes.values())).arena
        of_index = {home.index: number for number, home in homes.items()}
        numbers = {index: of_index[index] for index in arena.order if index in of_index}
        blocks = arena.device.constant(arena.block_table(numbers, len(params)))
        state = _state_buffers(rule, arena, tensor_flags, tensor_stored)
        shards.append(Shard(arena, tensor_flags, tensor_stored, state, blocks, numbers, first_block))
        first_block += -(-arena.blocks // BLOCKS_PER_RANGE) * BLOCKS_PER_RANGE
    return shards


def _state_buffers(rule: Rule, arena: Arena, flags: Flags, stored: Stored) -> dict[str, Buffer]:
    kinds = dict(stored)
    state = {}
    for name in rule.slots(flags):
        kind = kinds.get(name, "float32")
        state[name] = arena.new_buffer(BLOCK * slot_storage.BITS[kind] // 8)
        if slot_storage.is_blockwise([kind]):
            state[slot_storage.largest_name(name)] = arena.new_buffer(_LARGEST_BYTES)
    extra_slot = param_storage.SLOTS.get(kinds.get(param_storage.PARAM, ""))
    if extra_slot is not None:
        state[extra_slot] = arena.new_buffer(BLOCK * 2)
    if rule.gathers:
        state[KEPT] = arena.new_buffer()
    return state


def block_ranges(shards: Sequence[Shard]) -> list[tuple[int, int, int]]:
    """Return the first block, among those of all shards, the blocks and the size of each tensor, by number."""
    ranges = {}
    for shard in shards:
        for index, number in shard.numbers.items():
            size = shard.arena.sizes[index]
            ranges[number] = shard.first_block + shard.arena.firsts[index] // BLOCK, blocks_of(size), size
    return [ranges[number] for number in range(len(ranges))]

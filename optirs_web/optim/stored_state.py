"""The state of an optimizer's tensors, in buffers on a device: how it is read, written and copied, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..runtime.buffer import Buffer, View
from ..runtime.rules import KEPT
from ..wgsl import slot_storage
from ..wgsl.param_storage import PARAM, SLOTS
from .shards import Shard

__all__ = ["Slots", "StateBuffers", "StoredState"]

Slots = dict[tuple[int, str], View]
"""Views of state by number of the tensor and name of the slot."""

_INTERNAL = (KEPT, *SLOTS.values())
"""Slots that are no state of the rule's."""


class StateBuffers(Protocol):
    """Buffers with the state of several tensors."""

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """The buffers, by name."""

    @property
    def stored(self) -> Mapping[str, str]:
        """The types by name of the slot, where not float32."""

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Yield the number of the tensor, name and view of each slot."""


class _ShardSlots:
    """The slots of a shard, but for those that are used within a step only."""

    def __init__(self, shard: Shard, scratch: Sequence[str]) -> None:
        self.shard = shard
        self.buffers = {name: buffer for name, buffer in shard.state.items() if name not in scratch}
        self.stored = dict(shard.stored)

    def views(self) -> Iterator[tuple[int, str, View]]:
        for name in self.buffers:
            for number, view in self.shard.views(name):
                yield number, name, view


class StoredState:
    """The state of tensors: the slots of shards, and what else is added.

    Args:
        shards: the tensors.
        scratch: slots that are used within a step only.
    """

    def __init__(self, shards: Sequence[Shard], scratch: Sequence[str]) -> None:
        self.shards = shards
        self._parts: list[StateBuffers] = [_ShardSlots(shard, scratch) for shard in shards]

    def add(self, part: StateBuffers) -> None:
        """Include the state in other buffers."""
        self._parts.append(part)

    def retire(self) -> None:
        """Retire the buffers, so that programs that use them are recorded again."""
        for part in self._parts:
            for buffer in part.buffers.values():
                buffer.retired = True

    def views(self) -> dict[str, View]:
        """Return the views whose contents `read` takes, by name."""
        buffers = {
            f"{number}.{name}": View.whole(buffer)
            for number, part in enumerate(self._parts)
            for name, buffer in part.buffers.items()
        }
        params = {  # the upper 16-bit words of weights that are stored in two
            f"{number}.{PARAM}": View.whole(shard.arena.params)
            for number, shard in enumerate(self.shards)
            if (PARAM, "master") in shard.stored
        }
        return {**buffers, **params}

    def read(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """Return the slots of each tensor, as bytes of float32."""
        state: dict[int, dict[str, memoryview]] = {
            number: {} for shard in self.shards for number in shard.numbers.values()
        }
        for part_number, part in enumerate(self._parts):
            raw = {id(buffer): contents[f"{part_number}.{name}"] for name, buffer in part.buffers.items()}
            for number, name, view in part.views():
                state[number][name] = _bytes_of(view, raw[id(view.buffer)])
        for shard_number, shard in enumerate(self.shards):
            if shard.stored:
                from .slot_codec import decode_slots  # which few optimizers need

                params = contents.get(f"{shard_number}.{PARAM}", memoryview(b""))
                for index, number in shard.numbers.items():
                    view = shard.arena.tensor_view(shard.arena.params, index)
                    decode_slots(shard.stored, state[number], _bytes_of(view, params))
        return state

    def write(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor from bytes of float32; those not in `state` become zero.

        Each buffer is written once.
        """
        encoded = dict(state)
        for shard in self.shards:
            if shard.stored:
                from .slot_codec import encode_slots  # which few optimizers need

                for number in shard.numbers.values():
                    encoded[number] = encode_slots(shard.stored, state.get(number, {}))
        for part in self._parts:
            for buffer in part.buffers.values():
                content = memoryview(bytearray(buffer.nbytes))
                for number, name, view in part.views():
                    if view.buffer is buffer and name in encoded.get(number, {}):
                        content[view.offset : view.offset + view.nbytes] = encoded[number][name]
                buffer.device.write(View.whole(buffer), content)

    def slots(self) -> Slots:
        """Return the view of each slot of each tensor."""
        return {(number, name): view for part in self._parts for number, name, view in part.views()}

    def float32_slots(self) -> Slots:
        """Return the views of the slots that are stored as float32."""
        return {
            (number, name): view
            for part in self._parts
            for number, name, view in part.views()
            if slot_storage.slot_of(name) not in part.stored and name not in _INTERNAL
        }

    def take_over(self, old_slots: Slots) -> None:
        """Copy these slots, where the state has slots of their tensor and name."""
        for key, view in self.slots().items():
            if key in old_slots and view.nbytes:
                view.buffer.device.copy(_in_words(old_slots[key]), _in_words(view))


def _in_words(view: View) -> View:
    """Return a view extended to whole 32-bit words, which devices copy, within the tensor's last block."""
    return View(view.buffer, view.offset, -(-view.nbytes // 4) * 4)


def _bytes_of(view: View, content: memoryview) -> memoryview:
    """Return the part of a buffer's content that a view is of."""
    return content[view.offset : view.offset + view.nbytes]

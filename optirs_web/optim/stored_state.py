"""The state of an optimizer in the buffers of its layout, with methods that read and write it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ..runtime.arena import blocks_of
from ..runtime.buffer import Buffer, View
from ..wgsl import slot_storage
from ..wgsl.param_storage import PARAM
from .tables import Tables

if TYPE_CHECKING:
    from .layout import Layout

__all__ = ["Slots", "StoredState"]

Slots = dict[tuple[int, str], View]
"""Views of state by number of the tensor and name of the slot."""


class StoredState(Tables):
    """Tables and slots with methods that read and write the state in them."""

    more_state: ClassVar[tuple[str, ...]] = ()
    """Names of a subclass's state besides that of the rule."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Members of State that are used within a step only: not part of the state, and float32 in any case."""
    stacked: ClassVar[tuple[str, ...]] = ()
    """Those of `more_state` that a subclass can store in fewer bits."""

    @classmethod
    def in_fewer_bits(cls, slots: Iterable[str]) -> tuple[str, ...]:
        """Return the names of state that may be stored in fewer bits, for a rule with these slots."""
        return (*(slot for slot in slots if slot not in cls.scratch), *cls.stacked)

    @property
    def skipped_view(self) -> View:
        """The view of the count, a u32, of steps skipped because a gradient was not finite."""
        return View(self._found_inf, 4, 4)

    def forget_skipped(self) -> None:
        """Set the count of skipped steps to zero."""
        self.device.write(self.skipped_view, memoryview(bytes(4)))

    @staticmethod
    def state_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a parameter's state of that name."""
        return (blocks_of(math.prod(shape)),) if slot_storage.is_largest(name) else shape

    def state_views(self) -> dict[str, View]:
        """Return the views whose contents `scalars_in` and `state_in` take: one for each slot of an arena."""
        views = {f"{shard_number}.{name}": View.whole(buffer) for shard_number, name, buffer in self._state_buffers()}
        params = {  # the upper 16-bit words of weights that are stored in two
            f"{number}.{PARAM}": View.whole(shard.arena.params)
            for number, shard in enumerate(self._shards)
            if (PARAM, "master") in shard.stored
        }
        return {"scalars": View.whole(self._tensor_scalars), **views, **params}

    def _state_buffers(self) -> Iterator[tuple[int, str, Buffer]]:
        for shard_number, shard in enumerate(self._shards):
            for name, buffer in shard.state.items():
                yield shard_number, name, buffer

    def _first_scalar(self, number: int) -> int:
        """Return the word of `tensor_scalars` where the scalars of a tensor begin."""
        return self._words * number + 1 + len(self.rule.hyper)

    def scalars_in(self, contents: Mapping[str, memoryview]) -> list[dict[str, float]]:
        """Return the scalars of each tensor, by name."""
        raw = contents["scalars"].cast("f")
        names = self.rule.scalars
        starts = (self._first_scalar(number) for number in range(len(self.groups)))
        return [dict(zip(names, raw[start : start + len(names)], strict=True)) for start in starts]

    def counters_in(self, contents: Mapping[str, memoryview]) -> list[dict[str, float]]:
        """Return the counters of transforms of each tensor, by name."""
        raw, bits = contents["scalars"].cast("f"), contents["scalars"].cast("I")
        counters = []
        for number in range(len(self.groups)):
            first_word = self._first_scalar(number) + len(self.rule.scalars) + 1
            tensor_counters = {}
            for name, index in self.rule.counters.items():
                is_integer = self.rule.transforms[index].type == "u32"
                tensor_counters[name] = float((bits if is_integer else raw)[first_word + index])
            counters.append(tensor_counters)
        return counters

    def write_scalars(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set the scalars of each tensor; those not named become 0, and `advance` computes them."""
        words: list[float] = []
        for group, row in zip(
            self.groups, rows, strict=True
        ):  # parts of a rule that run outside a step read hyper-parameters there
            words += [0.0, *(self._hyper_rows[group] if self._hyper_rows else [0.0] * len(self.rule.hyper))]
            words += [row.get(name, 0.0) for name in self.rule.scalars]
            if self.rule.stages:
                counted = [0.0] * (1 + len(self.rule.transforms))
                for name, index in self.rule.counters.items():
                    value = row.get(name, 0.0)
                    if self.rule.transforms[index].type == "u32":
                        (value,) = struct.unpack("<f", struct.pack("<I", int(value)))
                    counted[1 + index] = value
                words += counted
        content = struct.pack(f"<{len(words)}f", *words)
        self.device.write(View(self._tensor_scalars, 0, len(content)), memoryview(content))

    def state_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """Return the slots of each tensor's state, as bytes of float32."""
        state = self._stored_in(contents)
        for shard_number, shard in enumerate(self._shards):
            if not shard.stored:
                continue
            from .slot_codec import decode_slots

            for index, number in shard.numbers.items():
                view = shard.arena.place(shard.arena.params, index)
                params = contents.get(f"{shard_number}.{PARAM}", memoryview(b""))
                decode_slots(shard.stored, state[number], params[view.offset : view.offset + view.nbytes])
        return state

    def _stored_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """Return the slots of each tensor's state, in the types in which they are stored."""
        state: dict[int, dict[str, memoryview]] = {number: {} for number in range(len(self.groups))}
        for shard_number, name, buffer in self._state_buffers():
            raw, shard = contents[f"{shard_number}.{name}"], self._shards[shard_number]
            for index, number in shard.numbers.items():
                view = shard.arena.place(buffer, index)
                state[number][name] = raw[view.offset : view.offset + view.nbytes]
        return state

    def slots(self) -> Slots:
        """Return the view of each slot of each tensor's state."""
        return {
            (number, name): self._shards[shard_number].arena.place(buffer, index)
            for shard_number, name, buffer in self._state_buffers()
            for index, number in self._shards[shard_number].numbers.items()
        }

    def tensor_views(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        """Return the views of these scalars and of the float32 slots of each tensor."""
        views: list[dict[str, View]] = []
        for number in range(len(self.groups)):
            first_word = self._first_scalar(number)
            views.append(
                {
                    name: View(self._tensor_scalars, 4 * (first_word + self.rule.scalars.index(name)), 4)
                    for name in scalars
                }
            )
        for (number, name), view in self.slots().items():
            if (number, name) in self._as_float32:
                views[number][name] = view
        return views

    def take_over(self, old: Layout, unused: Slots) -> None:
        """Copy the state of another layout of the same tensors, to which some may have been appended.

        Args:
            old: the previous layout.
            unused: slots that it did not use, but an earlier layout did.
        """
        if old._words == self._words:
            nbytes = 4 * self._words * len(old.groups)
            self.device.copy(View(old._tensor_scalars, 0, nbytes), View(self._tensor_scalars, 0, nbytes))
        else:  # other transforms
            nbytes = 4 * min(self._words, old._words)
            for number in range(len(old.groups)):
                source = View(old._tensor_scalars, 4 * old._words * number, nbytes)
                self.device.copy(source, View(self._tensor_scalars, 4 * self._words * number, nbytes))
        self.device.copy(View.whole(old._found_inf), View.whole(self._found_inf))
        if self.rule.over_all:  # values that all tensors share are copied to the new ones
            common = [name for name in self.rule.scalars if name != "step"]
            old_scalars, *_ = old.tensor_views(common)
            for new_scalars in self.tensor_views(common)[len(old.groups) :]:
                for name in common:
                    self.device.copy(old_scalars[name], new_scalars[name])
        old_slots = {**unused, **old.slots()}
        for key, view in self.slots().items():
            if key in old_slots:
                self.device.copy(_in_words(old_slots[key]), _in_words(view))

    def write_state(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not in `state` become zero. One write for each buffer."""
        encoded = dict(state)
        for shard in self._shards:
            if shard.stored:
                from .slot_codec import encode_slots

                encoded_shard = {
                    number: encode_slots(shard.stored, state.get(number, {})) for number in shard.numbers.values()
                }
                encoded.update(encoded_shard)
        self._write_stored(encoded)

    def _write_stored(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Write slots that are encoded in the types in which they are stored."""
        for shard in self._shards:
            for name, buffer in shard.state.items():
                content = memoryview(bytearray(buffer.nbytes))
                for index, number in shard.numbers.items():
                    value = state.get(number, {}).get(name)
                    if value is not None:
                        view = shard.arena.place(buffer, index)
                        content[view.offset : view.offset + view.nbytes] = value
                self.device.write(View.whole(buffer), content)


def _in_words(view: View) -> View:
    """Return a view extended to whole 32-bit words, which devices copy, within the tensor's last block."""
    return View(view.buffer, view.offset, -(-view.nbytes // 4) * 4)

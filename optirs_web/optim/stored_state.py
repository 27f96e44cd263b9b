"""The state of an optimizer where it lies on the device, as what is read from there and written to it."""

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
"""By number of the tensor and name of the slot."""


class StoredState(Tables):
    """Reads and writes the state in the tables and slots."""

    more_state: ClassVar[tuple[str, ...]] = ()
    """Names of state that a subclass keeps besides that of the rule."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Members of State that mean nothing from one step to the next: not part of the state, and float32 in any case."""
    stacked: ClassVar[tuple[str, ...]] = ()
    """Those of `more_state` that a subclass can keep in fewer bits."""

    @classmethod
    def in_fewer_bits(cls, slots: Iterable[str]) -> tuple[str, ...]:
        """The names of state that may be stored in fewer bits, of a rule with these slots."""
        return (*(one for one in slots if one not in cls.scratch), *cls.stacked)

    @property
    def skipped_view(self) -> View:
        """Where the steps are counted that were skipped because a gradient was not finite: one u32."""
        return View(self._found_inf, 4, 4)

    def forget_skipped(self) -> None:
        """Start counting from zero."""
        self.device.write(self.skipped_view, memoryview(bytes(4)))

    @staticmethod
    def state_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the state of that name of a parameter."""
        return (blocks_of(math.prod(shape)),) if slot_storage.is_largest(name) else shape

    def state_views(self) -> dict[str, View]:
        """What `scalars_in` and `state_in` are given the contents of: one view for each slot of an arena."""
        views = {f"{shard_number}.{name}": View.whole(buffer) for shard_number, name, buffer in self._state_buffers()}
        params = {  # of what is kept in two halves the upper ones
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
        """The word of `tensor_scalars` where the scalars of a tensor begin."""
        return self._words * number + 1 + len(self.rule.hyper)

    def scalars_in(self, contents: Mapping[str, memoryview]) -> list[dict[str, float]]:
        """The scalars of each tensor."""
        raw = contents["scalars"].cast("f")
        names = self.rule.scalars
        starts = (self._first_scalar(number) for number in range(len(self.groups)))
        return [dict(zip(names, raw[start : start + len(names)], strict=True)) for start in starts]

    def counters_in(self, contents: Mapping[str, memoryview]) -> list[dict[str, float]]:
        """What transforms have counted of each tensor."""
        raw, bits = contents["scalars"].cast("f"), contents["scalars"].cast("I")
        found = []
        for number in range(len(self.groups)):
            first = self._first_scalar(number) + len(self.rule.scalars) + 1
            row = {}
            for name, index in self.rule.counters.items():
                is_integer = self.rule.transforms[index].type == "u32"
                row[name] = float((bits if is_integer else raw)[first + index])
            found.append(row)
        return found

    def write_scalars(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set the scalars of each tensor; those not named become 0, and `advance` computes them."""
        words: list[float] = []
        for group, row in zip(self.groups, rows, strict=True):  # parts that run on call read hyper-parameters there
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
        """The slots of each tensor's state, as bytes of float32."""
        found = self._stored_in(contents)
        for shard_number, shard in enumerate(self._shards):
            if not shard.stored:
                continue
            from .slot_codec import decode_slots

            for index, number in shard.numbers.items():
                place = shard.arena.place(shard.arena.params, index)
                params = contents.get(f"{shard_number}.{PARAM}", memoryview(b""))
                decode_slots(shard.stored, found[number], params[place.offset : place.offset + place.nbytes])
        return found

    def _stored_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """The same as it is stored."""
        found: dict[int, dict[str, memoryview]] = {number: {} for number in range(len(self.groups))}
        for shard_number, name, buffer in self._state_buffers():
            raw, shard = contents[f"{shard_number}.{name}"], self._shards[shard_number]
            for index, number in shard.numbers.items():
                place = shard.arena.place(buffer, index)
                found[number][name] = raw[place.offset : place.offset + place.nbytes]
        return found

    def slots(self) -> Slots:
        """Where each slot of each tensor's state lies."""
        return {
            (number, name): self._shards[shard_number].arena.place(buffer, index)
            for shard_number, name, buffer in self._state_buffers()
            for index, number in self._shards[shard_number].numbers.items()
        }

    def places(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        """Where these scalars and the slots of each tensor lie."""
        found: list[dict[str, View]] = []
        for number in range(len(self.groups)):
            first = self._first_scalar(number)
            found.append(
                {name: View(self._tensor_scalars, 4 * (first + self.rule.scalars.index(name)), 4) for name in scalars}
            )
        for (number, name), place in self.slots().items():
            if (number, name) in self._as_float32:
                found[number][name] = place
        return found

    def take_over(self, old: Layout, resting: Slots) -> None:
        """Go on with the state of another layout of the same tensors, to which some may have been appended.

        Args:
            old: the layout so far.
            resting: slots that it did not use, but a layout before it did.
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
        if self.rule.over_all:  # what the tensors so far have in common, the new ones have too
            common = [name for name in self.rule.scalars if name != "step"]
            known_scalars, *_ = old.places(common)
            for its_scalars in self.places(common)[len(old.groups) :]:
                for name in common:
                    self.device.copy(known_scalars[name], its_scalars[name])
        known = {**resting, **old.slots()}
        for key, place in self.slots().items():
            if key in known:
                self.device.copy(_in_words(known[key]), _in_words(place))

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not given become zero. One write for each slot of an arena."""
        encoded = dict(given)
        for shard in self._shards:
            if shard.stored:
                from .slot_codec import encode_slots

                more = {number: encode_slots(shard.stored, given.get(number, {})) for number in shard.numbers.values()}
                encoded.update(more)
        self._write_stored(encoded)

    def _write_stored(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """The same with state as it is stored."""
        for shard in self._shards:
            for name, buffer in shard.state.items():
                content = memoryview(bytearray(buffer.nbytes))
                for index, number in shard.numbers.items():
                    value = given.get(number, {}).get(name)
                    if value is not None:
                        place = shard.arena.place(buffer, index)
                        content[place.offset : place.offset + place.nbytes] = value
                self.device.write(View.whole(buffer), content)


def _in_words(place: View) -> View:
    """With what is left of its last word, as devices copy words; it is part of the tensor's last block."""
    return View(place.buffer, place.offset, -(-place.nbytes // 4) * 4)

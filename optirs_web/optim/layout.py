"""What an optimizer keeps on the device: state slots beside each arena, and the tables its kernels read.

Tensors are numbered in the order of the parameter groups; one more number stands for tensors of an arena
that belong to another optimizer. The tables are those that `wgsl.rule_shell` declares: `tensors` (an entry for each),
`hyper` (one row per group), `tensor_scalars` (is_active, hyper, scalars), `blocks` (tensor, size), `partials` (what was
measured of each block, those of all arenas one after the other).
"""

from __future__ import annotations

import math
import struct
import weakref
from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

from ..errors import UnsupportedError
from ..runtime.arena import BLOCKS_PER_WINDOW, Arena, Home, blocks_of, split_sizes
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.kernels import Kernel, cooperative
from ..runtime.program import Program
from ..runtime.rules import AdvanceKernel, Flags, MeasureKernel, Rule, SettleKernel, Stored, UpdateKernel
from ..tensors import Parameter, Tensor
from ..wgsl import slot_storage
from ..wgsl.rule_shell import ENTRY_WORDS
from ..wgsl.shell import BLOCK, struct_of
from .pipeline import KEPT, Pipeline, live_words
from .slot_codec import decode, encode, largest_of_blocks

if TYPE_CHECKING:
    from .transforms import Transform

__all__ = ["Layout", "Slots", "move_into_arenas"]

_LARGEST_BYTES = 4  # of a block whose state is stored in 8 bits

_OF_A_SCHEDULE = b"\xff\xff\xff\xff"  # a NaN that no option is

Slots = dict[tuple[int, str], View]
"""By number of the tensor and name of the slot."""


def move_into_arenas(params: Sequence[Parameter], kinds: Sequence[Hashable]) -> None:
    """Give every parameter that has no place yet one in an arena; those of one kind share one."""
    device = params[0].device
    for kind in dict.fromkeys(kinds):
        homeless = [one for one, its_kind in zip(params, kinds, strict=True) if its_kind == kind and not one._home]
        if not homeless:
            continue
        for members in split_sizes(device, [one.size for one in homeless]):
            arena = Arena(device, [homeless[index].size for index in members])
            if any(isinstance(homeless[index]._grad, Tensor) for index in members):
                _ = arena.grads  # all memory that is needed, before anything moves
            for place, index in enumerate(members):
                _move(homeless[index], Home(arena, place))


def _move(param: Parameter, home: Home) -> None:
    target = home.param_view()
    param.device.copy(param.view, target)
    param.view.buffer.retired = True
    param.view = target
    param._home = home
    if param._grad_place is not None:
        param._grad_place.buffer.retired = True
        param._grad_place = None
    if isinstance(param._grad, Tensor):
        place = home.grad_view()
        param.device.copy(param._grad.view, place)
        param._grad = Tensor(place, param.shape, param.dtype)


@dataclass(frozen=True, slots=True)
class _Shard:
    """The tensors of one arena that have the same flags, and state stored alike."""

    arena: Arena
    flags: Flags
    stored: Stored
    state: Mapping[str, Buffer]
    blocks: Buffer
    numbers: Mapping[int, int]  # index in the arena -> number in the optimizer
    first_block: int  # of the arena, among the blocks of all shards

    def block_view(self, first: int, blocks: int) -> View:
        """That part of the table of blocks, of 8 bytes each."""
        return View(self.blocks, 8 * first, 8 * blocks)


class Layout:
    """The device side of one optimizer.

    Args:
        rule: what is done.
        params: all parameters, each in an arena.
        groups: the group of each.
        group_count: how many groups there are, empty ones too.
        flags: the flags of each.
        checked: skip a step whose gradients are not finite.
        stored: how the state of each is stored, where not as float32.
    """

    more_state: ClassVar[tuple[str, ...]] = ()
    """Names of state that a subclass keeps besides that of the rule."""

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
        self.checked = checked
        self.rule = rule
        self._settle = SettleKernel.of(rule, flags[0])
        self._words = 1 + len(rule.hyper) + len(rule.scalars) + (1 + len(rule.transforms) if rule.stages else 0)
        self._live_bits = live_words((), params)

        rows = len(params) + 1
        self._tensors = self._table(ENTRY_WORDS * rows)
        self._hyper = self._table(len(rule.hyper) * group_count)
        self._tensor_scalars = self._table(self._words * rows)
        self._found_inf = self._table(2)
        self._zero = self._table(1)
        members: dict[tuple[int, Flags, Stored], dict[int, Home]] = {}
        for number, (param, its_flags, its) in enumerate(zip(params, flags, stored or repeat(()), strict=False)):
            home = _home(param)
            members.setdefault((id(home.arena), its_flags, its), {})[number] = home
        self._shards: list[_Shard] = []
        blocks = 0
        for (_, its_flags, its), homes in members.items():
            self._shards.append(self._shard(its_flags, its, homes, len(params), blocks))
            blocks += -(-self._shards[-1].arena.blocks // BLOCKS_PER_WINDOW) * BLOCKS_PER_WINDOW
        self._as_float32 = {
            (number, name)
            for shard in self._shards
            for name in self.rule.slots(shard.flags)
            if name not in dict(shard.stored)
            for number in shard.numbers.values()
        }
        self._places = [(0, 0, 0)] * len(params)  # first block, blocks and size of each tensor
        for shard in self._shards:
            for index, number in shard.numbers.items():
                size = shard.arena.sizes[index]
                first = shard.first_block + shard.arena.firsts[index] // BLOCK
                self._places[number] = first, blocks_of(size), size
        self._measured_words = len(struct_of(rule.linked(("measure",), ()), "Measured").members) if rule.measures else 0
        self._partials = self._table(blocks * self._measured_words) if rule.measures else None
        self.block_count = blocks
        self._pipeline = Pipeline(self, params, blocks) if rule.stages else None
        self._hyper_rows: list[list[float]] = []
        self._written: dict[Buffer, bytes] = {}
        self._recorded: tuple[weakref.ref[Program], bytes] | None = None
        self.scheduled: set[int] = set()  # words of `hyper` that schedules have written since the host did

    def use(self, transforms: Sequence[Transform], params: Sequence[Parameter]) -> None:
        """What gradients go through before they reach the rule, which has a stage for each that has a kernel."""
        self._live_bits = live_words(transforms, params)
        if self._pipeline is not None:
            self._pipeline.transforms = [one for one in transforms if one.stage is not None]

    def _table(self, words: int) -> Buffer:
        return self.device.allocate_zeroed(4 * words)

    def _shard(self, flags: Flags, stored: Stored, homes: Mapping[int, Home], absent: int, first_block: int) -> _Shard:
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
        if self.rule.gathers:
            state[KEPT] = arena.new_buffer()
        return _Shard(arena, flags, stored, state, blocks, numbers, first_block)

    def retire(self) -> None:
        """Programs that use this layout must be recorded again."""
        for buffer in (self._tensors, self._hyper, self._tensor_scalars, self._found_inf, self._partials):
            if buffer is not None:
                buffer.retired = True
        for shard in self._shards:
            for buffer in (shard.blocks, *shard.state.values()):
                buffer.retired = True
        if self._pipeline is not None:
            self._pipeline.retire()

    def set_hyper(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Hyper-parameters, a row for each group; written only if they changed. So is what transforms are given.

        What schedules have written on the device is left alone.
        """
        if self._pipeline is not None:
            self._write_if_changed(*self._pipeline.given())
        self._hyper_rows = [[row[name] for name in self.rule.hyper] for row in rows]
        words = [word for row in self._hyper_rows for word in row]
        content = bytearray(struct.pack(f"<{len(words)}f", *words))
        for word in self.scheduled:
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

    def hyper_rows(self, group: int) -> Sequence[int]:
        """The rows of `hyper` that are filled from a group."""
        return [group]

    @property
    def hyper_buffer(self) -> Buffer:
        """The table of hyper-parameters."""
        return self._hyper

    def _write_if_changed(self, buffer: Buffer, content: bytes) -> None:
        if self._written.get(buffer) != content:
            self.device.write(View.whole(buffer), memoryview(content))
            self._written[buffer] = content

    # Work.

    def dispatch(self, live: Sequence[bool], scaler: View | None = None) -> None:
        """One step: look for non-finite gradients if asked to, advance the scalars, update every arena.

        Args:
            live: which tensors have a gradient.
            scaler: the state of the scaler of the loss; a step with gradients that are not finite is left out then.

        Raises:
            UnsupportedError: a step that is being recorded would need two sets of hyper-parameters.
        """
        tensors = View.whole(self._live_table(live))
        shared = {
            "tensors": tensors,
            "hyper": View.whole(self._hyper),
            "tensor_scalars": View.whole(self._tensor_scalars),
            "found_inf": View.whole(self._found_inf),
        }
        checked = self.checked or scaler is not None
        measured = self.rule.first_measure
        if self._pipeline is not None:
            shared |= self._pipeline.shared(scaler)
        if self._pipeline is not None and measured is not None:
            self._pipeline.measure(measured, shared)
            shared["partials"] = self._pipeline.all_partials(measured)
        elif checked:
            for shard in self._shards:
                self._look_for_nonfinite(shard, shard.arena.grads, tensors, shared["found_inf"])
        self._run(AdvanceKernel.of(self.rule, self._shards[0].flags, checked), shared, 1)
        if self._pipeline is not None:
            self._pipeline.after_advance(shared)
        self._before_measure(live, shared)
        if self._partials is not None:
            for shard in self._shards:
                self._run_over(shard, MeasureKernel.of(self.rule, shard.flags, shard.stored), shared)
            shared["partials"] = View.whole(self._partials)
            self._run(self._settle, shared, 1 if self.rule.over_all else len(self.groups))
        self._before_update(live, shared)
        for shard in self._shards:
            self._run_over(shard, UpdateKernel.of(self.rule, shard.flags, "update", shard.stored), shared)
        self._after_update(live, shared)

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """What a subclass does once the scalars have advanced."""

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """What a subclass does once everything is measured."""

    def _after_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """What a subclass does at the end."""

    @staticmethod
    def _params_of(arena: Arena) -> Buffer:
        """What the rule changes."""
        return arena.params

    def _views_of(self, shard: _Shard, first: int) -> Mapping[str, View]:
        """What a subclass shows kernels of the part of an arena that begins at this block."""
        return {}

    def apply(self, part: str) -> None:
        """Run a part of the rule over all tensors that have taken a step."""
        shared = {"tensor_scalars": View.whole(self._tensor_scalars)}
        for shard in self._shards:
            self._run_over(shard, UpdateKernel.of(self.rule, shard.flags, part, shard.stored), shared)

    def _run_over(self, shard: _Shard, kernel: UpdateKernel | MeasureKernel, shared: Mapping[str, View]) -> None:
        for first, blocks in shard.arena.windows():
            views = dict(shared)
            if self._partials is not None:
                nbytes = 4 * self._measured_words
                views["partials"] = View(self._partials, (shard.first_block + first) * nbytes, blocks * nbytes)
            self._run_window(shard, kernel, views, first, blocks, -(-blocks * BLOCK // kernel.elements_per_workgroup))

    def _run_window(
        self, shard: _Shard, kernel: Kernel, shared: Mapping[str, View], first: int, blocks: int, workgroups: int
    ) -> None:
        """Run a kernel over a part of an arena."""
        arena = shard.arena
        buffers = {"params": self._params_of(arena), **shard.state}
        if any(one.name == "grads" for one in kernel.bindings):
            buffers["grads"] = arena.grads
        views = {name: arena.window(buffer, first, blocks) for name, buffer in buffers.items()}
        views["blocks"] = shard.block_view(first, blocks)
        if self._pipeline is not None:
            views |= self._pipeline.views_of(shard, first, blocks)
        self._run(kernel, {**views, **shared, **self._views_of(shard, first)}, workgroups)

    def _run(self, kernel: Kernel, views: Mapping[str, View], workgroups: int) -> None:
        """Run a kernel over what its bindings name."""
        self.device.dispatch(kernel, [views[binding.name] for binding in kernel.bindings], workgroups)

    def _look_for_nonfinite(self, shard: _Shard, buffer: Buffer, tensors: View, found_inf: View) -> None:
        for first, blocks in shard.arena.windows():
            views = {
                "grads": shard.arena.window(buffer, first, blocks),
                "blocks": shard.block_view(first, blocks),
                "tensors": tensors,
                "found_inf": found_inf,
            }
            self._run(cooperative("nonfinite"), views, -(-blocks * BLOCK // 1024))

    def neutral_scaler(self) -> View:
        """The state of a scaler that leaves the loss as it is; with it gradients are only checked."""
        assert self._pipeline is not None
        return self._pipeline.neutral_scaler()

    def unscale(self, live: Sequence[bool], scaler: View) -> None:
        """Divide the gradients by the scale of the loss, in place, and note whether one is not finite."""
        tensors, found_inf = View.whole(self._live_table(live)), View(self._found_inf, 0, 4)
        self.device.copy(View(self._zero, 0, 4), found_inf)
        for shard in self._shards:
            for first, blocks in shard.arena.windows():
                shared = {"tensors": tensors, "scaler": scaler, "found_inf": View.whole(self._found_inf)}
                self._run_window(shard, cooperative("unscale"), shared, first, blocks, -(-blocks * BLOCK // 1024))

    def _live_table(self, live: Sequence[bool]) -> Buffer:
        """The table of groups and gradients; in a recording one of its own, since that set is part of it."""
        words = self._live_words(live)
        recording = self.device.recording
        if recording is None:
            self._write_if_changed(self._tensors, words.tobytes())
            return self._tensors
        self._refuse_other_hyper(recording)
        table = self._table(len(words))
        recording.keep(table)
        self.device.write(View.whole(table), memoryview(words).cast("B"))
        return table

    def _live_words(self, live: Sequence[bool]) -> array[int]:
        words = array("I")
        for group, is_live, place, (is_trained, bits) in zip(
            self.groups, live, self._places, self._live_bits, strict=True
        ):
            words.extend((group, bits | (is_live and is_trained), *place))
        words.extend([0] * ENTRY_WORDS)
        return words

    def _refuse_other_hyper(self, recording: Program) -> None:
        current = self._written[self._hyper]
        if self._recorded is not None and self._recorded[0]() is recording and self._recorded[1] != current:
            raise UnsupportedError("a compiled step can step an optimizer several times, but not with changed options")
        self._recorded = (weakref.ref(recording), current)

    # Values read and written on request.

    @property
    def skipped_view(self) -> View:
        """Where the steps are counted that were skipped because a gradient was not finite: one u32."""
        return View(self._found_inf, 4, 4)

    def forget_skipped(self) -> None:
        """Begin to count anew."""
        self.device.write(self.skipped_view, memoryview(bytes(4)))

    def look_at_params(self) -> View:
        """Enqueue a look at all parameters. The u32 in this view is then 0 if all are finite."""
        result = self._table(2)
        everything = self._table(ENTRY_WORDS * (len(self.groups) + 1))
        self.device.write(View.whole(everything), memoryview(self._live_words([True] * len(self.groups))).cast("B"))
        for shard in self._shards:
            self._look_for_nonfinite(shard, shard.arena.params, View.whole(everything), View.whole(result))
        return View(result, 0, 4)

    @staticmethod
    def state_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the state of that name of a parameter."""
        is_of_blocks = name.endswith(slot_storage.largest_name(""))
        return (blocks_of(math.prod(shape)),) if is_of_blocks else shape

    def state_views(self) -> dict[str, View]:
        """What `scalars_in` and `state_in` are given the contents of: one view for each slot of an arena."""
        views = {f"{shard_number}.{name}": View.whole(buffer) for shard_number, name, buffer in self._state_buffers()}
        return {"scalars": View.whole(self._tensor_scalars), **views}

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
        """The slots of each tensor's state, as bytes."""
        found: dict[int, dict[str, memoryview]] = {number: {} for number in range(len(self.groups))}
        for shard_number, name, buffer in self._state_buffers():
            raw, shard = contents[f"{shard_number}.{name}"], self._shards[shard_number]
            for index, number in shard.numbers.items():
                place = shard.arena.place(buffer, index)
                found[number][name] = raw[place.offset : place.offset + place.nbytes]
        for shard in self._shards:
            for name, kind in shard.stored:
                for number in shard.numbers.values():
                    slots = found[number]
                    slots[name] = decode(kind, slots[name], slots.get(slot_storage.largest_name(name)))
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
                self.device.copy(known[key], place)

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not given become zero. One write for each slot of an arena."""
        for shard in self._shards:
            encoded = {number: _encoded(shard.stored, given.get(number, {})) for number in shard.numbers.values()}
            for name, buffer in shard.state.items():
                content = memoryview(bytearray(buffer.nbytes))
                for index, number in shard.numbers.items():
                    value = encoded.get(number, {}).get(name)
                    if value is not None:
                        place = shard.arena.place(buffer, index)
                        content[place.offset : place.offset + place.nbytes] = value
                self.device.write(View.whole(buffer), content)


def _encoded(stored: Stored, entry: Mapping[str, memoryview]) -> Mapping[str, memoryview]:
    """The state of a tensor as it is stored."""
    if not stored:
        return entry
    result = dict(entry)
    for name, kind in stored:
        values = entry.get(name)
        if values is not None:
            largest = slot_storage.largest_name(name)
            if slot_storage.is_blockwise([kind]):
                result.setdefault(largest, largest_of_blocks(values))
            result[name] = encode(kind, values, result.get(largest))
    return result


def _is_to_write(content: bytearray, before: bytes, at: int) -> bool:
    word = content[at : at + 4]
    return word != before[at : at + 4] and word != _OF_A_SCHEDULE


def _home(param: Parameter) -> Home:
    assert param._home is not None
    return param._home

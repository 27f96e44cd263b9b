"""What an optimizer keeps on the device: state slots beside each arena, and the tables its kernels read.

Tensors are numbered in the order of the parameter groups; one more number stands for tensors of an arena
that belong to another optimizer. The tables are those that `wgsl.shell` declares: `tensors` (group, live),
`hyper` (one row per group), `tensor_scalars` (is_active, group, scalars), `blocks` (tensor, size).
"""

from __future__ import annotations

import struct
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..runtime.arena import Arena, Home, split_sizes
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.kernels import AdvanceKernel, Kernel, UpdateKernel, cooperative, load_map_module
from ..runtime.program import Program
from ..tensors import Parameter, Tensor
from ..wgsl.shell import BLOCK, struct_of

__all__ = ["Flags", "Layout", "Slots", "move_into_arenas"]

Flags = tuple[tuple[str, bool], ...]
"""A rule's flags, sorted by name."""

Slots = dict[tuple[int, str], View]
"""By number of the tensor and name of the slot."""


def move_into_arenas(params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
    """Give every parameter that has no place yet one in an arena; those with equal flags share one."""
    device = params[0].device
    for kind in dict.fromkeys(flags):
        homeless = [one for one, its_flags in zip(params, flags, strict=True) if its_flags == kind and not one._home]
        if not homeless:
            continue
        for members in split_sizes(device, [one.size for one in homeless]):
            arena = Arena(device, [homeless[index].size for index in members])
            if any(homeless[index]._grad is not None for index in members):
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
    if param._grad is not None:
        place = home.grad_view()
        param.device.copy(param._grad.view, place)
        param._grad = Tensor(place, param.shape, param.dtype)


@dataclass(frozen=True, slots=True)
class _Shard:
    """The tensors of one arena that have the same flags."""

    arena: Arena
    kernel: UpdateKernel
    state: Mapping[str, Buffer]
    blocks: Buffer
    numbers: Mapping[int, int]  # index in the arena -> number in the optimizer

    def block_view(self, first: int, blocks: int) -> View:
        """That part of the table of blocks, of 8 bytes each."""
        return View(self.blocks, 8 * first, 8 * blocks)


class Layout:
    """The device side of one optimizer.

    Args:
        rule: the file in ``shaders/optimizers``.
        params: all parameters, each in an arena.
        groups: the group of each.
        group_count: how many groups there are, empty ones too.
        flags: the flags of each.
        checked: skip a step whose gradients are not finite.
    """

    def __init__(
        self,
        rule: str,
        params: Sequence[Parameter],
        groups: Sequence[int],
        group_count: int,
        flags: Sequence[Flags],
        checked: bool,
    ) -> None:
        self.device: Device = params[0].device
        self.groups = list(groups)
        self.checked = checked
        module = load_map_module("optimizers", rule, ("advance", "update"), flags[0])
        self.scalars = tuple(one.name for one in struct_of(module, "Scalars").members)
        self.hyper_names = tuple(one.name for one in struct_of(module, "Hyper").members)
        self.all_state_names = tuple(one.name for one in struct_of(module, "State").members)
        self._advance = AdvanceKernel.of(rule, flags[0], checked)
        self._words = 2 + len(self.scalars)

        rows = len(params) + 1
        self._tensors = self._table(2 * rows)
        self._hyper = self._table(len(self.hyper_names) * group_count)
        self._tensor_scalars = self._table(self._words * rows)
        self._found_inf = self._table(2)
        members: dict[tuple[int, Flags], dict[int, Home]] = {}
        for number, (param, its_flags) in enumerate(zip(params, flags, strict=True)):
            home = _home(param)
            members.setdefault((id(home.arena), its_flags), {})[number] = home
        self._shards = [self._shard(rule, key[1], homes, len(params)) for key, homes in members.items()]
        self._written: dict[Buffer, bytes] = {}
        self._recorded: tuple[weakref.ref[Program], bytes] | None = None

    def _table(self, words: int) -> Buffer:
        return self.device.allocate_zeroed(4 * words)

    def _shard(self, rule: str, flags: Flags, homes: Mapping[int, Home], absent: int) -> _Shard:
        arena = next(iter(homes.values())).arena
        kernel = UpdateKernel.of(rule, flags)
        numbers = {home.index: number for number, home in homes.items()}
        table = arena.block_table(numbers, absent)
        blocks = self.device.allocate_zeroed(4 * len(table))
        self.device.write(View.whole(blocks), memoryview(table).cast("B"))
        return _Shard(arena, kernel, {name: arena.new_buffer() for name in kernel.slots}, blocks, numbers)

    def retire(self) -> None:
        """Programs that use this layout must be recorded again."""
        for buffer in (self._tensors, self._hyper, self._tensor_scalars, self._found_inf):
            buffer.retired = True
        for shard in self._shards:
            for buffer in (shard.blocks, *shard.state.values()):
                buffer.retired = True

    def set_hyper(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Hyper-parameters, a row for each group; written only if they changed."""
        words = [row[name] for row in rows for name in self.hyper_names]
        self._write_if_changed(self._hyper, struct.pack(f"<{len(words)}f", *words))

    def _write_if_changed(self, buffer: Buffer, content: bytes) -> None:
        if self._written.get(buffer) != content:
            self.device.write(View.whole(buffer), memoryview(content))
            self._written[buffer] = content

    # Work.

    def dispatch(self, live: Sequence[bool]) -> None:
        """One step: look for non-finite gradients if asked to, advance the scalars, update every arena.

        Args:
            live: which tensors have a gradient.

        Raises:
            UnsupportedError: a step that is being recorded would need two sets of hyper-parameters.
        """
        shared = {
            "tensors": View.whole(self._live_table(live)),
            "hyper": View.whole(self._hyper),
            "tensor_scalars": View.whole(self._tensor_scalars),
            "found_inf": View.whole(self._found_inf),
        }
        if self.checked:
            for shard in self._shards:
                self._look_for_nonfinite(shard, shard.arena.grads, shared["tensors"], shared["found_inf"])
        self._run(self._advance, shared, 1)
        for shard in self._shards:
            arena = shard.arena
            buffers = {"params": arena.params, "grads": arena.grads, **shard.state}
            for first, blocks in arena.windows():
                views = {name: arena.window(buffer, first, blocks) for name, buffer in buffers.items()}
                views["blocks"] = shard.block_view(first, blocks)
                workgroups = -(-blocks * BLOCK // shard.kernel.elements_per_workgroup)
                self._run(shard.kernel, {**shared, **views}, workgroups)

    def _run(self, kernel: Kernel, views: Mapping[str, View], workgroups: int) -> None:
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
        for group, is_live in zip(self.groups, live, strict=True):
            words.extend((group, is_live))
        words.extend((0, 0))
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
        everything = self._table(2 * len(self.groups) + 2)
        self.device.write(View.whole(everything), memoryview(self._live_words([True] * len(self.groups))).cast("B"))
        for shard in self._shards:
            self._look_for_nonfinite(shard, shard.arena.params, View.whole(everything), View.whole(result))
        return View(result, 0, 4)

    def state_views(self) -> dict[str, View]:
        """What `scalars_in` and `state_in` are given the contents of: one view for each slot of an arena."""
        views = {f"{shard_number}.{name}": View.whole(buffer) for shard_number, name, buffer in self._state_buffers()}
        return {"scalars": View.whole(self._tensor_scalars), **views}

    def _state_buffers(self) -> Iterator[tuple[int, str, Buffer]]:
        for shard_number, shard in enumerate(self._shards):
            for name, buffer in shard.state.items():
                yield shard_number, name, buffer

    def scalars_in(self, contents: Mapping[str, memoryview]) -> list[dict[str, float]]:
        """The scalars of each tensor."""
        raw = contents["scalars"].cast("f")
        starts = (2 + self._words * number for number in range(len(self.groups)))
        return [dict(zip(self.scalars, raw[start : start + len(self.scalars)], strict=True)) for start in starts]

    def write_scalars(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set the scalars of each tensor; those not named become 0, and `advance` computes them."""
        words: list[float] = []
        for row in rows:
            words += [0.0, 0.0, *(row.get(name, 0.0) for name in self.scalars)]
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
        return found

    def slots(self) -> Slots:
        """Where each slot of each tensor's state lies."""
        return {
            (number, name): self._shards[shard_number].arena.place(buffer, index)
            for shard_number, name, buffer in self._state_buffers()
            for index, number in self._shards[shard_number].numbers.items()
        }

    def take_over(self, old: Layout, resting: Slots) -> None:
        """Go on with the state of another layout of the same tensors, to which some may have been appended.

        Args:
            old: the layout so far.
            resting: slots that it did not use, but a layout before it did.
        """
        nbytes = 4 * self._words * len(old.groups)
        self.device.copy(View(old._tensor_scalars, 0, nbytes), View(self._tensor_scalars, 0, nbytes))
        self.device.copy(View.whole(old._found_inf), View.whole(self._found_inf))
        known = {**resting, **old.slots()}
        for key, place in self.slots().items():
            if key in known:
                self.device.copy(known[key], place)

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not given become zero. One write for each slot of an arena."""
        for shard in self._shards:
            for name, buffer in shard.state.items():
                content = memoryview(bytearray(buffer.nbytes))
                for index, number in shard.numbers.items():
                    value = given.get(number, {}).get(name)
                    if value is not None:
                        place = shard.arena.place(buffer, index)
                        content[place.offset : place.offset + place.nbytes] = value
                self.device.write(View.whole(buffer), content)


def _home(param: Parameter) -> Home:
    assert param._home is not None
    return param._home

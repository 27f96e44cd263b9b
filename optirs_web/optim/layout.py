"""The layout of an optimizer on the device: its tables, the state of its tensors, and the dispatches of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ..runtime.arena import BLOCKS_PER_RANGE, Arena, blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.kernels import Kernel, cooperative
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, SettleKernel, UpdateKernel
from ..runtime.rules import Flags, Rule, Stored
from ..tensors import Parameter
from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK, struct_of
from .shards import Shard, block_ranges, shards_of
from .stored_state import Slots, StoredState
from .tables import HyperTable, ScalarTable, TensorTable

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .transforms import Transform

__all__ = ["Layout"]


class Layout:
    """The state and tables of an optimizer on the device, and the dispatches of its steps.

    Args:
        rule: the update rule.
        params: all parameters, each in an arena.
        groups: the group of each.
        group_count: number of groups, empty ones too.
        flags: the flags of each.
        checked: skip a step whose gradients are not finite.
        stored: the types of the state of each, where not float32.

    Attributes:
        groups: the row of `hyper` of each parameter.
        shards: the parameters by arena, flags and types of state.
        tensors, hyper, scalars: the tables; a fourth is the measures of each block, for all arenas in sequence.
        state: the state of each parameter.
    """

    more_state: ClassVar[tuple[str, ...]] = ()
    """Names of a subclass's state besides that of the rule."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Members of State that are used within a step only: not part of the state, and float32 in any case."""
    stacked: ClassVar[tuple[str, ...]] = ()
    """Those of `more_state` that a subclass can store in fewer bits."""

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
        self.shards = shards_of(rule, params, flags, stored or [()] * len(params))
        self.block_ranges = block_ranges(self.shards)
        self.tensors = TensorTable(self.device, self.groups, self.block_ranges)
        self.hyper = HyperTable(self.device, rule.hyper, self.hyper_count)
        self.scalars = ScalarTable(self.device, rule, len(params))
        self.state = StoredState(self.shards, self.scratch)
        self._found_inf = self._zeros(2)
        self._zero = self._zeros(1)
        last = self.shards[-1]
        self.block_count = last.first_block + -(-last.arena.blocks // BLOCKS_PER_RANGE) * BLOCKS_PER_RANGE
        self._measured_words = len(struct_of(rule.linked(("measure",), ()), "Measured").members) if rule.measures else 0
        self._partials = self._zeros(self.block_count * self._measured_words) if rule.measures else None
        self._pipeline: Pipeline | None = None  # made when transforms are put to use

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        """Inspect the tensors before the tables are made; a subclass may assign them other rows of `hyper`."""

    def _zeros(self, words: int) -> View:
        return View.whole(self.device.allocate_zeroed(4 * words))

    def retire(self) -> None:
        """Retire the buffers, so that programs that use this layout are recorded again."""
        for view in (self.tensors.view, self.hyper.view, self.scalars.view, self._found_inf, self._partials):
            if view is not None:
                view.buffer.retired = True
        for shard in self.shards:
            for buffer in (shard.blocks, *shard.state.values()):
                buffer.retired = True
        self.state.retire()
        if self._pipeline is not None:
            self._pipeline.retire()

    # Options.

    def set_hyper(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Write the hyper-parameters, a row for each group, and the options of transforms, if they have changed."""
        if self._pipeline is not None:
            self._pipeline.write_options()
        self.hyper.write(rows)

    def hyper_rows(self, group: int) -> Sequence[int]:
        """Return the rows of `hyper` that are set from a group."""
        return [group]

    def copy_rates_from(self, rates: Mapping[int, View]) -> None:
        """Have `copy_rates` set `lr` of these groups from these views."""
        if "lr" in self.rule.hyper:
            self.hyper.copied = {
                self.hyper.word(row, "lr"): view for group, view in rates.items() for row in self.hyper_rows(group)
            }

    def copy_rates(self) -> None:
        """Enqueue copies of the learning rates that are tensors."""
        for word, view in self.hyper.copied.items():
            self.device.copy(view, self.hyper.word_view(word))

    # State.

    @classmethod
    def in_fewer_bits(cls, slots: Iterable[str]) -> tuple[str, ...]:
        """Return the names of state that may be stored in fewer bits, for a rule with these slots."""
        return (*(slot for slot in slots if slot not in cls.scratch), *cls.stacked)

    @staticmethod
    def state_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a parameter's state of that name."""
        return (blocks_of(math.prod(shape)),) if slot_storage.is_largest(name) else shape

    def state_views(self) -> dict[str, View]:
        """Return the views of all state, whose contents `state_in` takes; "scalars" is the table of that name."""
        return {"scalars": self.scalars.view, **self.state.views()}

    def state_in(self, contents: Mapping[str, memoryview]) -> dict[int, dict[str, memoryview]]:
        """Return the slots of each tensor's state, as bytes of float32."""
        return self.state.read(contents)

    def write_scalars(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set the scalars of each tensor; those not named become 0, and `advance` computes them."""
        self.scalars.write(rows, [self.hyper.rows[row] for row in self.groups])

    def write_state(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state, from bytes of float32; those not in `state` become zero."""
        self.state.write(state)

    def slots(self) -> Slots:
        """Return the view of each slot of each tensor's state."""
        return self.state.slots()

    def tensor_views(self, scalars: Sequence[str]) -> list[dict[str, View]]:
        """Return the views of these scalars and of the float32 slots of each tensor."""
        views = self.scalars.views(scalars)
        for (number, name), view in self.state.float32_slots().items():
            views[number][name] = view
        return views

    def take_over(self, old: Layout, unused: Slots) -> None:
        """Copy the state of another layout of the same tensors, to which some may have been appended.

        Args:
            old: the previous layout.
            unused: slots that it did not use, but an earlier layout did.
        """
        self.scalars.take_over(old.scalars)
        self.device.copy(old._found_inf, self._found_inf)
        self.state.take_over({**unused, **old.slots()})

    @property
    def skipped_view(self) -> View:
        """The view of the count, a u32, of steps skipped because a gradient was not finite."""
        return self._found_inf.part(4, 4)

    def forget_skipped(self) -> None:
        """Set the count of skipped steps to zero."""
        self.device.write(self.skipped_view, memoryview(bytes(4)))

    # Steps.

    def use_transforms(self, transforms: Sequence[Transform], params: Sequence[Parameter]) -> None:
        """Set the transforms of gradients; the rule has a stage for each one that has a kernel."""
        if transforms:
            from .pipeline import Pipeline, live_words

            self.tensors.bits = live_words(transforms, params)
            if self.rule.stages:
                self._pipeline = Pipeline(self, params, self.block_count)
                self._pipeline.transforms = [transform for transform in transforms if transform.stage is not None]

    def dispatch(self, live: Sequence[bool], scaler: View | None = None) -> None:
        """Take a step: check for non-finite gradients if requested, advance the scalars, update every arena.

        Args:
            live: for each tensor, whether it has a gradient.
            scaler: the state of the scaler of the loss; a step with gradients that are not finite is skipped then.

        Raises:
            UnsupportedError: a step that is being recorded would need two sets of hyper-parameters.
        """
        tensors = self._upload_tensors(live)
        shared = {
            "tensors": tensors,
            "hyper": self.hyper.view,
            "tensor_scalars": self.scalars.view,
            "found_inf": self._found_inf,
        }
        checked = self.checked or scaler is not None
        measured = self.rule.first_measure
        if self._pipeline is not None:
            shared |= self._pipeline.shared(scaler)
        if self._pipeline is not None and measured is not None:
            self._pipeline.measure(measured, shared)
            shared["partials"] = self._pipeline.all_partials(measured)
        elif checked:
            self._check_grads(tensors, shared["found_inf"])
        self.run(AdvanceKernel.of(self.rule, self.shards[0].flags, checked), shared, 1)
        if self._pipeline is not None:
            self._pipeline.after_advance(shared)
        self._before_measure(live, shared)
        if self._partials is not None:
            for shard in self.shards:
                self.run_over(shard, MeasureKernel.of(self.rule, shard.flags, shard.stored), shared)
            shared["partials"] = self._partials
            self.run(self._settle, shared, 1 if self.rule.over_all else len(self.groups))
        self._before_update(live, shared)
        for shard in self.shards:
            self.run_over(shard, UpdateKernel.of(self.rule, shard.flags, "update", shard.stored), shared)
        self._after_update(live, shared)

    @property
    def _settle(self) -> SettleKernel:
        return SettleKernel.of(self.rule, self.shards[0].flags)

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """Dispatch a subclass's work after the scalars have advanced."""

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """Dispatch a subclass's work after all measures."""

    def _after_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        """Dispatch a subclass's work after the update."""

    @staticmethod
    def _params_of(arena: Arena) -> Buffer:
        """Return the buffer that the rule changes."""
        return arena.params

    def _views_of(self, shard: Shard, first_block: int) -> Mapping[str, View]:
        """Return a subclass's bindings for the part of an arena that begins at this block."""
        return {}

    def apply(self, part: str) -> None:
        """Run a part of the rule over all tensors that have taken a step."""
        shared = {"tensor_scalars": self.scalars.view}
        for shard in self.shards:
            self.run_over(shard, UpdateKernel.of(self.rule, shard.flags, part, shard.stored), shared)

    def round_params(self) -> None:
        """Round parameters with `param_dtype` bfloat16. A second call changes nothing."""
        shared = {"tensor_scalars": self.scalars.view}
        for shard in self.shards:
            self.run_over(shard, RoundKernel.of(self.rule, shard.flags, shard.stored), shared)

    def run_over(
        self, shard: Shard, kernel: UpdateKernel | MeasureKernel | RoundKernel, shared: Mapping[str, View]
    ) -> None:
        """Run a kernel over all blocks of an arena, in parts that fit bindings."""
        for first_block, blocks in shard.arena.binding_ranges():
            views = dict(shared)
            if self._partials is not None:
                nbytes = 4 * self._measured_words
                views["partials"] = self._partials.part((shard.first_block + first_block) * nbytes, blocks * nbytes)
            self.run_range(
                shard, kernel, views, first_block, blocks, -(-blocks * BLOCK // kernel.elements_per_workgroup)
            )

    def run_range(
        self, shard: Shard, kernel: Kernel, shared: Mapping[str, View], first_block: int, blocks: int, workgroups: int
    ) -> None:
        """Run a kernel over a part of an arena."""
        arena = shard.arena
        buffers = {"params": self._params_of(arena), **shard.state}
        if any(binding.name == "grads" for binding in kernel.bindings):
            buffers["grads"] = arena.grads
        views = {name: arena.range_view(buffer, first_block, blocks) for name, buffer in buffers.items()}
        views["blocks"] = shard.block_view(first_block, blocks)
        if self._pipeline is not None:
            views |= self._pipeline.views_of(shard, first_block, blocks)
        self.run(kernel, {**views, **shared, **self._views_of(shard, first_block)}, workgroups)

    def run(self, kernel: Kernel, views: Mapping[str, View], workgroups: int) -> None:
        """Run a kernel with the views that its bindings name."""
        self.device.dispatch(kernel, [views[binding.name] for binding in kernel.bindings], workgroups)

    def _check_grads(self, tensors: View, found_inf: View) -> None:
        for shard in self.shards:
            self._detect_nonfinite(shard, shard.arena.grads, tensors, found_inf)

    def _detect_nonfinite(self, shard: Shard, buffer: Buffer, tensors: View, found_inf: View) -> None:
        for first_block, blocks in shard.arena.binding_ranges():
            views = {
                "grads": shard.arena.range_view(buffer, first_block, blocks),
                "blocks": shard.block_view(first_block, blocks),
                "tensors": tensors,
                "found_inf": found_inf,
            }
            self.run(cooperative("nonfinite"), views, -(-blocks * BLOCK // 1024))

    def neutral_scaler(self) -> View:
        """Return the state of a scaler with scale 1, with which gradients are only checked."""
        assert self._pipeline is not None
        return self._pipeline.neutral_scaler()

    def unscale(self, live: Sequence[bool], scaler: View) -> None:
        """Divide the gradients by the scale of the loss, in place, and note whether one is not finite."""
        tensors, found_inf = self._upload_tensors(live), self._found_inf.part(0, 4)
        self.device.copy(self._zero, found_inf)
        for shard in self.shards:
            if not any(live[number] for number in shard.numbers.values()):
                continue
            for first_block, blocks in shard.arena.binding_ranges():
                shared = {"tensors": tensors, "scaler": scaler, "found_inf": self._found_inf}
                self.run_range(shard, cooperative("unscale"), shared, first_block, blocks, -(-blocks * BLOCK // 1024))

    def _upload_tensors(self, live: Sequence[bool]) -> View:
        recording = self.device.recording
        if recording is None:
            return self.tensors.upload(live)
        self.hyper.check_unchanged(recording)
        return self.tensors.recorded(live, recording)

    def check_params(self) -> View:
        """Enqueue a check of all parameters, and return the view of a u32 that is then 0 if all are finite."""
        result = self._zeros(2)
        tensors = self.tensors.new_table([True] * len(self.groups))
        for shard in self.shards:
            self._detect_nonfinite(shard, shard.arena.params, tensors, result)
        return result.part(0, 4)

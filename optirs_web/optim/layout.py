"""The layout of an optimizer on the device: the dispatches of a step over its tables and slots."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..runtime.arena import Arena
from ..runtime.buffer import Buffer, View
from ..runtime.kernels import Kernel, cooperative
from ..runtime.program import Program
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, RoundKernel, SettleKernel, UpdateKernel
from ..tensors import Parameter
from ..wgsl.rule_shell import ENTRY_WORDS
from ..wgsl.shell import BLOCK
from .arenas import move_into_arenas
from .stored_state import Slots, StoredState
from .tables import Shard

if TYPE_CHECKING:
    from .transforms import Transform

__all__ = ["Layout", "Shard", "Slots", "move_into_arenas"]


class Layout(StoredState):
    """The state and tables of an optimizer on the device, and the dispatches of its steps; see `Tables`."""

    _live_bits: Sequence[tuple[bool, int]] = ()
    _last_live: Sequence[bool] = ()
    _last_live_words: array[int]

    def use(self, transforms: Sequence[Transform], params: Sequence[Parameter]) -> None:
        """Set the transforms of gradients; the rule has a stage for each one that has a kernel."""
        if transforms:
            from .pipeline import Pipeline, live_words

            self._live_bits = live_words(transforms, params)
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
            self._check_grads(tensors, shared["found_inf"])
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

    @property
    def _settle(self) -> SettleKernel:
        return SettleKernel.of(self.rule, self._shards[0].flags)

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
        shared = {"tensor_scalars": View.whole(self._tensor_scalars)}
        for shard in self._shards:
            self._run_over(shard, UpdateKernel.of(self.rule, shard.flags, part, shard.stored), shared)

    def round_params(self) -> None:
        """Round parameters with `param_dtype` bfloat16. A second call changes nothing."""
        shared = {"tensor_scalars": View.whole(self._tensor_scalars)}
        for shard in self._shards:
            self._run_over(shard, RoundKernel.of(self.rule, shard.flags, shard.stored), shared)

    def _run_over(
        self, shard: Shard, kernel: UpdateKernel | MeasureKernel | RoundKernel, shared: Mapping[str, View]
    ) -> None:
        for first_block, blocks in shard.arena.windows():
            views = dict(shared)
            if self._partials is not None:
                nbytes = 4 * self._measured_words
                views["partials"] = View(self._partials, (shard.first_block + first_block) * nbytes, blocks * nbytes)
            self._run_window(
                shard, kernel, views, first_block, blocks, -(-blocks * BLOCK // kernel.elements_per_workgroup)
            )

    def _run_window(
        self, shard: Shard, kernel: Kernel, shared: Mapping[str, View], first_block: int, blocks: int, workgroups: int
    ) -> None:
        """Run a kernel over a part of an arena."""
        arena = shard.arena
        buffers = {"params": self._params_of(arena), **shard.state}
        if any(binding.name == "grads" for binding in kernel.bindings):
            buffers["grads"] = arena.grads
        views = {name: arena.window(buffer, first_block, blocks) for name, buffer in buffers.items()}
        views["blocks"] = shard.block_view(first_block, blocks)
        if self._pipeline is not None:
            views |= self._pipeline.views_of(shard, first_block, blocks)
        self._run(kernel, {**views, **shared, **self._views_of(shard, first_block)}, workgroups)

    def _run(self, kernel: Kernel, views: Mapping[str, View], workgroups: int) -> None:
        """Run a kernel with the views that its bindings name."""
        self.device.dispatch(kernel, [views[binding.name] for binding in kernel.bindings], workgroups)

    def _check_grads(self, tensors: View, found_inf: View) -> None:
        for shard in self._shards:
            self._detect_nonfinite(shard, shard.arena.grads, tensors, found_inf)

    def _detect_nonfinite(self, shard: Shard, buffer: Buffer, tensors: View, found_inf: View) -> None:
        for first_block, blocks in shard.arena.windows():
            views = {
                "grads": shard.arena.window(buffer, first_block, blocks),
                "blocks": shard.block_view(first_block, blocks),
                "tensors": tensors,
                "found_inf": found_inf,
            }
            self._run(cooperative("nonfinite"), views, -(-blocks * BLOCK // 1024))

    def neutral_scaler(self) -> View:
        """Return the state of a scaler with scale 1, with which gradients are only checked."""
        assert self._pipeline is not None
        return self._pipeline.neutral_scaler()

    def unscale(self, live: Sequence[bool], scaler: View) -> None:
        """Divide the gradients by the scale of the loss, in place, and note whether one is not finite."""
        tensors, found_inf = View.whole(self._live_table(live)), View(self._found_inf, 0, 4)
        self.device.copy(View(self._zero, 0, 4), found_inf)
        for shard in self._shards:
            if not any(live[number] for number in shard.numbers.values()):
                continue
            for first_block, blocks in shard.arena.windows():
                shared = {"tensors": tensors, "scaler": scaler, "found_inf": View.whole(self._found_inf)}
                self._run_window(shard, cooperative("unscale"), shared, first_block, blocks, -(-blocks * BLOCK // 1024))

    def _live_table(self, live: Sequence[bool]) -> Buffer:
        """Return the table of groups and gradients; a recording has one of its own, for the gradients at that time."""
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
        if self._last_live != live:  # which seldom changes, and there may be hundreds
            self._last_live, self._last_live_words = [*live], self._packed_live_words(live)
        return self._last_live_words

    def _packed_live_words(self, live: Sequence[bool]) -> array[int]:
        words = array("I")
        for group, is_live, block_range, (is_trained, bits) in zip(
            self.groups, live, self._block_ranges, self._live_bits or [(True, 0)] * len(live), strict=True
        ):
            words.extend((group, bits | (is_live and is_trained), *block_range))
        words.extend([0] * ENTRY_WORDS)
        return words

    def _refuse_other_hyper(self, recording: Program) -> None:
        current = self._written[self._hyper]
        if self._recorded is not None and self._recorded[0]() is recording and self._recorded[1] != current:
            raise UnsupportedError("a compiled step can step an optimizer several times, but not with changed options")
        self._recorded = (weakref.ref(recording), current)

    def check_params(self) -> View:
        """Enqueue a check of all parameters, and return the view of a u32 that is then 0 if all are finite."""
        result = self._table(2)
        tensors = self._table(ENTRY_WORDS * (len(self.groups) + 1))
        self.device.write(View.whole(tensors), memoryview(self._live_words([True] * len(self.groups))).cast("B"))
        for shard in self._shards:
            self._detect_nonfinite(shard, shard.arena.params, View.whole(tensors), View.whole(result))
        return View(result, 0, 4)

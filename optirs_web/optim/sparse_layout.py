"""The layout of an optimizer for gradients of some rows, and the selection of gradients that it steps by rows."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UnsupportedError
from ..runtime.arena import Home
from ..runtime.buffer import Buffer, View
from ..runtime.kernels import Kernel
from ..runtime.rows import RowsKernel
from ..runtime.rule_kernels import UpdateKernel
from ..sparse import Coalesced, SparseRows
from ..tensors import Parameter
from ..wgsl import slot_storage
from ..wgsl.param_storage import PARAM
from ..wgsl.shell import BLOCK
from .layout import Layout
from .shards import Shard

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = ["SparseLayout", "rows_of"]

Rows = Mapping[int, SparseRows]
"""The gradients of rows, by number of the parameter."""


def rows_of(optimizer: Optimizer, params: Sequence[Parameter]) -> Rows:
    """Return the gradients of rows that change these rows alone. Other gradients of rows are made dense in the arena.

    Raises:
        UnsupportedError: the optimizer, or one with these options, takes no gradients of rows; or takes no others.
    """
    rows = {}
    groups = [group for group in optimizer.param_groups for _ in group["params"]]
    for number, (param, group) in enumerate(zip(params, groups, strict=True)):
        grad: object = param._grad
        if isinstance(grad, SparseRows):
            if optimizer.changes_rows_alone(group):
                rows[number] = grad
            else:
                assert param._home is not None
                param.device.copy(grad.to_dense().view, param._home.grad_view())
        elif grad is not None and not optimizer.takes_dense:
            name = type(optimizer).__name__
            raise UnsupportedError(f"{name} does not support dense gradients, please consider Adam instead")
    return rows


_WHOLE = {
    "accumulate": "keeps whole gradients",
    "add_decayed_weights": "changes all rows",
    "add_noise": "changes all rows",
}
"""Transforms that cannot be applied to rows, and the reason."""


class SparseLayout(Layout):
    """A layout of a rule without measures, whose `update` does not change tensors without a gradient.

    In a step with gradients of rows `update` runs only over the blocks of tensors with dense gradients.
    """

    _initial: Mapping[int, Mapping[str, float]] = {}

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        # Of the current step with gradients of rows: these, their sums, and the tensors with dense gradients.
        self._rows: Rows = {}
        self._sums: Mapping[int, Coalesced] = {}
        self._others: Collection[int] | None = None
        self._shard_of = {number: shard for shard in self.shards for number in shard.numbers.values()}
        self._other_blocks: dict[tuple[int, ...], Buffer] = {}

    def retire(self) -> None:
        super().retire()
        for buffer in self._other_blocks.values():
            buffer.retired = True

    # State that does not begin with zero: a row may be touched for the first time at any step.

    def begin_with(self, initial: Mapping[int, Mapping[str, float]]) -> None:
        """Set the initial value of the elements of slots, by number of the tensor and name."""
        self._initial = initial
        if any(value for slots in initial.values() for value in slots.values()):
            self.write_state({})

    def write_state(self, state: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not in `state` get their initial values."""
        numbers = state.keys() | self._initial.keys()
        super().write_state({number: {**self._initial_slots(number), **state.get(number, {})} for number in numbers})

    def _initial_slots(self, number: int) -> dict[str, memoryview]:
        *_, size = self.block_ranges[number]
        slots = self._initial.get(number, {}).items()
        return {name: memoryview((array("f", [value]) * size).tobytes()) for name, value in slots if value}

    # Work.

    def dispatch_rows(self, live: Sequence[bool], rows: Rows, scaler: View | None = None) -> None:
        """Take a step in which some gradients are of rows.

        A transform that measures sees these gradients with all their rows.

        Args:
            live: for each tensor, whether it has a gradient.
            rows: the gradients of rows, by number of the tensor.
            scaler: see `dispatch`.

        Raises:
            UnsupportedError: a transform, or the type in which something is stored, does not support rows.
        """
        for number in rows:
            self._check_takes_rows(number)
        if any(stage.over for stage in self.rule.stages):
            for number, grad in rows.items():
                self.device.copy(grad.to_dense().view, self._home(number).grad_view())
        self._rows = rows
        self._sums = {number: rows_.coalesced() for number, rows_ in rows.items() if rows_.values.size}
        self._others = [number for number, is_live in enumerate(live) if is_live and number not in rows]
        try:
            self.dispatch(live, scaler)
        finally:
            self._rows, self._sums, self._others = {}, {}, None

    def _check_takes_rows(self, number: int) -> None:
        stored = dict(self._shard_of[number].stored)
        if PARAM in stored:
            raise UnsupportedError(
                "parameters in bfloat16 are rounded in whole tensors, not in rows; step with to_dense()"
            )
        if slot_storage.is_blockwise(stored.values()):
            raise UnsupportedError(
                "state in 8 bits is stored in blocks of 256 with a scale for each, of which rows change parts; "
                "use bfloat16 or float16 state"
            )
        _, bits = self.tensors.bits[number]
        for stage_number, stage in enumerate(self.rule.stages):
            if stage.name in _WHOLE and bits & 2 << stage_number:
                raise UnsupportedError(f"{stage.name} {_WHOLE[stage.name]}; step with to_dense()")

    def _home(self, number: int) -> Home:
        shard = self._shard_of[number]
        return Home(shard.arena, next(index for index, number_ in shard.numbers.items() if number_ == number))

    def _has_others(self, shard: Shard) -> bool:
        return self._others is None or any(number in self._others for number in shard.numbers.values())

    def _blocks_of_others(self, shard: Shard) -> Shard:
        """Return the shard with a table of blocks that leaves out the tensors with a gradient of rows."""
        key = (shard.first_block, *sorted(number for number in shard.numbers.values() if number in self._rows))
        if len(key) == 1:
            return shard
        if key not in self._other_blocks:
            others = {index: number for index, number in shard.numbers.items() if number not in self._rows}
            self._other_blocks[key] = self.device.constant(shard.arena.block_table(others, len(self.groups)))
        return replace(shard, blocks=self._other_blocks[key])

    def _check_grads(self, tensors: View, found_inf: View) -> None:
        for sums in self._sums.values():
            sums.dispatch("nonfinite_rows", found_inf)
        for shard in filter(self._has_others, self.shards):
            self._detect_nonfinite(self._blocks_of_others(shard), shard.arena.grads, tensors, found_inf)

    def run_range(
        self, shard: Shard, kernel: Kernel, shared: Mapping[str, View], first_block: int, blocks: int, workgroups: int
    ) -> None:
        if self._rows and isinstance(kernel, UpdateKernel):
            if not self._has_others(shard):
                return
            shared = {**shared, "blocks": self._blocks_of_others(shard).block_view(first_block, blocks)}
        super().run_range(shard, kernel, shared, first_block, blocks, workgroups)

    def _after_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for number, sums in self._sums.items():
            self._update_rows(number, sums)

    def _update_rows(self, number: int, sums: Coalesced) -> None:
        shard, home = self._shard_of[number], self._home(number)
        arena, kernel = shard.arena, RowsKernel.of(self.rule, shard.flags, shard.stored)
        views = {
            "rows": sums.rows.view,
            "sums": sums.sums.view,
            "tensor_scalars": self.scalars.view,
        }
        if self._pipeline is not None:
            views |= self._pipeline.views_of(shard, 0, arena.blocks)
        for view, first_element in sums.binding_ranges(home.param_view()):
            buffers = {"params": arena.params, **shard.state}
            ranges = {name: _like(view, buffer) for name, buffer in buffers.items()}
            bound = [{**views, **ranges}[binding.name] for binding in kernel.bindings]
            parameters = (*sums.parameters, first_element, number, arena.firsts[home.index] // BLOCK)
            self.device.dispatch(kernel, bound, sums.workgroups, parameters)


def _like(view: View, buffer: Buffer) -> View:
    """Return the part of another buffer of the arena for the same elements as a part of the parameters, in words."""
    whole = view.buffer.nbytes
    words = -(-view.nbytes * buffer.nbytes // (4 * whole))
    return View(buffer, view.offset * buffer.nbytes // whole, 4 * words)

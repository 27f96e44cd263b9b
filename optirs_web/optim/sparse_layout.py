"""The step of an optimizer for gradients of some rows: the device side, and which optimizers take them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..runtime.arena import Home
from ..runtime.buffer import Buffer, View
from ..runtime.rows import RowsKernel
from ..runtime.rules import AdvanceKernel
from ..sparse import Coalesced, SparseRows
from ..tensors import Parameter
from .layout import Layout, _Shard

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = ["SparseLayout", "rows_of"]

Rows = Mapping[int, SparseRows]
"""The gradients of rows, by number of the parameter."""


def rows_of(optimizer: Optimizer, params: Sequence[Parameter]) -> Rows:
    """The gradients of rows that change these rows alone. What others there are is made dense in the arena.

    Raises:
        UnsupportedError: this optimizer, or one with these options, takes none; or it takes no others.
    """
    found = {}
    groups = [group for group in optimizer.param_groups for _ in group["params"]]
    for number, (param, group) in enumerate(zip(params, groups, strict=True)):
        grad: object = param._grad
        if isinstance(grad, SparseRows):
            if optimizer.changes_rows_alone(group):
                found[number] = grad
            else:
                assert param._home is not None
                param.device.copy(grad.to_dense().view, param._home.grad_view())
        elif grad is not None and not optimizer.takes_dense:
            name = type(optimizer).__name__
            raise UnsupportedError(f"{name} does not support dense gradients, please consider Adam instead")
    return found


class SparseLayout(Layout):
    """A layout of a rule without measures, whose `update` leaves alone what has no gradient."""

    _row_tensors: Buffer | None = None
    _row_skips: Buffer | None = None
    _initial: Mapping[int, Mapping[str, float]] = {}

    def retire(self) -> None:
        super().retire()
        for one in (self._row_tensors, self._row_skips):
            if one is not None:
                one.retired = True

    # State that does not begin with zero: a row may be touched for the first time at any step.

    def begin_with(self, initial: Mapping[int, Mapping[str, float]]) -> None:
        """What every element of these slots begins with, by number of the tensor and name."""
        self._initial = initial
        if any(value for slots in initial.values() for value in slots.values()):
            self.write_state({})

    def write_state(self, given: Mapping[int, Mapping[str, memoryview]]) -> None:
        """Set the slots of each tensor's state; those not given become what they begin with."""
        numbers = given.keys() | self._initial.keys()
        super().write_state({number: {**self._begun(number), **given.get(number, {})} for number in numbers})

    def _begun(self, number: int) -> dict[str, memoryview]:
        *_, size = self._places[number]
        slots = self._initial.get(number, {}).items()
        return {name: memoryview((array("f", [value]) * size).tobytes()) for name, value in slots if value}

    # Work.

    def dispatch_rows(self, live: Sequence[bool], rows: Rows) -> None:
        """One step in which some gradients are of rows.

        Args:
            live: which tensors have a gradient.
            rows: the gradients of those that have one of rows.

        Raises:
            UnsupportedError: there are transforms or state in fewer bits, which work on whole tensors.
        """
        if self._pipeline is not None:
            raise UnsupportedError("transforms and the scale of a loss work on whole gradients; step with to_dense()")
        shards = {number: shard for shard in self._shards for number in shard.numbers.values()}
        if any(shards[number].stored for number in rows):
            raise UnsupportedError("state in fewer bits is stored in whole blocks, not in rows; use float32 state")
        sums = {number: one.coalesced() for number, one in rows.items() if one.values.size}
        found = View.whole(self._found_inf)
        dense = [is_live and number not in rows for number, is_live in enumerate(live)]
        if self.checked:
            for one in sums.values():
                one.dispatch("nonfinite_rows", found)
            if any(dense):
                found = self._keep_finding(dense, found)
        if any(dense):
            super().dispatch(dense)
        shared = {
            "tensors": View.whole(self._row_table([number in rows for number in range(len(live))])),
            "hyper": View.whole(self._hyper),
            "tensor_scalars": View.whole(self._tensor_scalars),
            "found_inf": found,
        }
        self._run(AdvanceKernel.of(self.rule, self._shards[0].flags, self.checked), shared, 1)
        for number, one in sums.items():
            self._update_rows(shards[number], number, one)

    def _keep_finding(self, dense: Sequence[bool], found: View) -> View:
        """What is found in any gradient, for the second of two turns: the first forgets it, and counts the step."""
        tensors = View.whole(self._live_table(dense))
        for shard in self._shards:
            self._look_for_nonfinite(shard, shard.arena.grads, tensors, found)
        self._row_skips = self._row_skips or self._table(2)
        kept = View.whole(self._row_skips)
        self.device.copy(found, kept)
        return kept

    def _row_table(self, live: Sequence[bool]) -> Buffer:
        """As `_live_table`, for the second of two turns."""
        words = self._live_words(live)
        recording = self.device.recording
        if recording is not None:
            return self._live_table(live)
        self._row_tensors = self._row_tensors or self._table(len(words))
        self._write_if_changed(self._row_tensors, words.tobytes())
        return self._row_tensors

    def _update_rows(self, shard: _Shard, number: int, sums: Coalesced) -> None:
        arena = shard.arena
        index = next(index for index, its_number in shard.numbers.items() if its_number == number)
        kernel = RowsKernel.of(self.rule, shard.flags)
        views = {
            "rows": sums.rows.view,
            "sums": sums.sums.view,
            "tensor_scalars": View.whole(self._tensor_scalars),
        }
        for view, first in sums.windows(Home(arena, index).param_view()):
            buffers = {"params": arena.params, **shard.state}
            windows = {name: View(buffer, view.offset, view.nbytes) for name, buffer in buffers.items()}
            bound = [{**views, **windows}[binding.name] for binding in kernel.bindings]
            self.device.dispatch(kernel, bound, sums.workgroups, (*sums.parameters, first, number))

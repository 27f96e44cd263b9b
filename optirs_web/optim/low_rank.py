"""Optimizers of a low rank: their state is Adam's moments of projected gradients, in stacks of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..runtime.arena import blocks_of
from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from ..runtime.rules import Flags, Stored
from ..tensors import Parameter
from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK
from .matrices import Batch, Matrices, MatrixLayout, MatrixOptimizer
from .packed import load, store
from .shards import Shard
from .stacks import AlikeStack, new_stack

__all__ = ["LowRankLayout", "LowRankOptimizer"]

_ITEMSIZE = 4
_MOMENTS = ("exp_avg", "exp_avg_sq")
_ADAM = ("one_minus_beta1", "beta2", "one_minus_beta2", "eps", "correction1", "correction2")


class LowRankLayout(MatrixLayout):
    """A layout whose gradients are projected along their short side. The rank is one of the flags."""

    owner: ClassVar[str]
    """The optimizer's name."""

    scratch: ClassVar[tuple[str, ...]] = ("direction",)
    more_state: ClassVar[tuple[str, ...]] = _MOMENTS
    stacked: ClassVar[tuple[str, ...]] = _MOMENTS

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.projected: list[AlikeStack] = []
        self._location: dict[int, tuple[int, int]] = {}  # of each tensor: index in `projected`, and its position there
        for shard in self.shards:
            self._add_stacks_of(shard)

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        ranks = {dict(param_flags)["rank"] for param_flags in flags}
        if len(ranks) > 1:
            raise ValueError(f"{self.owner} needs one rank for all groups, not {', '.join(map(str, sorted(ranks)))}")
        self.rank: int = ranks.pop()
        super()._inspect(params, flags)

    def _low_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the shape of the projection of a matrix."""
        rank = min(self.rank, rows, columns)
        return (rank, columns) if rows <= columns else (rows, rank)

    def _state_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, int]]:
        return dict.fromkeys(_MOMENTS, self._low_shape(rows, columns))

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:  # type: ignore[override]
        """Return the shape of a parameter's state of that name."""
        slot = slot_storage.slot_of(name)
        return super().state_shape(name, self._state_shapes(*self.matrix_shape(shape)).get(slot, shape))

    def _add_stacks_of(self, shard: Shard) -> None:
        by_shape: dict[tuple[int, int], list[int]] = {}
        for number in shard.numbers.values():
            by_shape.setdefault(self.shapes[number], []).append(number)
        for (rows, columns), numbers in by_shape.items():
            sizes = (blocks_of(a * b) * BLOCK for a, b in self._state_shapes(rows, columns).values())
            largest = max(min(rows, columns) ** 2, *sizes)
            if largest:
                limit = max(1, self.device.capabilities.max_binding_bytes // (largest * _ITEMSIZE))
                for start in range(0, len(numbers), limit):
                    self._add(rows, columns, numbers[start : start + limit], shard.stored)

    def _add(self, rows: int, columns: int, numbers: Sequence[int], stored: Stored) -> None:
        for position, number in enumerate(numbers):
            self._location[number] = len(self.projected), position
        self.projected.append(new_stack(self.device, numbers, self._state_shapes(rows, columns), stored))
        self.state.add(self.projected[-1])

    def _batch_key(self, number: int) -> tuple[int, ...]:
        return (*self.shapes[number], self._location[number][0])

    def state_of(self, batch: Batch, kind: str) -> Matrices:
        """Return a kind of state of a batch's tensors."""
        projected, positions = self._stack_of(batch)
        return projected.matrices(kind, positions)

    def _stack_of(self, batch: Batch) -> tuple[AlikeStack, list[int]]:
        """Return the stack with the state of a batch's tensors, and their positions in it."""
        locations = [self._location[number] for number in batch.tensors]
        return self.projected[locations[0][0]], [position for _, position in locations]

    def short_side_first(self, batch: Batch, low: Matrices) -> tuple[Matrices, Matrices]:
        """Return the directions of a batch and their projections, transposed where there are more rows than columns."""
        direction = batch.matrices(batch.shard.state["direction"])
        return (direction.transposed, low.transposed) if batch.rows > batch.columns else (direction, low)

    def adapt(
        self, batch: Batch, kernel: str, gradient: Matrices, parameters: Sequence[int], invocations: int, *more: View
    ) -> None:
        """Run a kernel that updates Adam's moments.

        Args:
            batch: the tensors.
            kernel: takes the gradient, both moments, `more`, a table of entries and the scalars.
            gradient: a matrix for each tensor.
            parameters: the first ones; the words of a tensor's row follow.
            invocations: for each tensor.
            more: other buffers.
        """
        projected, positions = self._stack_of(batch)
        packed = {kind: projected.packed(kind, positions) for kind in _MOMENTS if kind in projected.stored}
        for loaded, packed_state in packed.values():
            load(self.products, batch.tensors, packed_state, loaded)
        moments = [packed[kind][0] if kind in packed else projected.matrices(kind, positions) for kind in _MOMENTS]
        table = self.products.table(zip(batch.tensors, gradient.firsts, moments[0].firsts, strict=True))
        views = [
            gradient.view,
            *(matrices.view for matrices in moments),
            *more,
            table,
            self.scalars.view,
        ]
        grid = -(-invocations // 256), len(batch.tensors)
        self.device.dispatch(cooperative(kernel), views, grid, (*parameters, *self.products.words(*_ADAM)))
        for seed, (loaded, packed_state) in enumerate(packed.values()):
            store(self.products, batch.tensors, loaded, packed_state, seed)

    def adam(self, batch: Batch, gradient: Matrices) -> None:
        """Replace the gradient by Adam's step."""
        size = gradient.rows * gradient.columns
        self.adapt(batch, "low_rank_adam", gradient, (size,), size)


class LowRankOptimizer(MatrixOptimizer):
    """An optimizer with a `LowRankLayout`, and with options `rank` and `update_proj_gap`."""

    fixed: ClassVar[tuple[str, ...]] = ("rank",)
    layout_options: ClassVar[tuple[str, ...]] = ("rank",)
    """Options that are passed to the layout as flags."""

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        super().validate(group)
        for name in ("rank", "update_proj_gap"):
            if not group[name] >= 1:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides, and the flags of the layout."""
        return {**super().flags(group), **{name: group[name] for name in self.layout_options}}

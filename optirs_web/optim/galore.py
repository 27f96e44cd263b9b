"""GaLore."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Unpack

from ..runtime.arena import Home
from ..runtime.buffer import Buffer, View
from ..runtime.kernels import cooperative
from ..runtime.rules import Flags, Stored
from .layout import Layout, _Shard
from .matrices import Batch, Matrices, MatrixOptimizer, stack
from .optimizer import Options, Params, Rule
from .stacks import StackedLayout, matrices_of, places_of, room

__all__ = ["GaLore"]

_ITERATIONS = 5
_ITEMSIZE = 4


@dataclass(frozen=True)
class _Projected:
    """The projectors and moments of tensors of one shape."""

    tensors: tuple[int, ...]
    shapes: Mapping[str, tuple[int, int]]
    buffers: Mapping[str, Buffer]
    start: Buffer  # what the iteration for a projector begins with

    def matrices(self, kind: str, positions: Sequence[int]) -> Matrices:
        """Those of a kind of state at these places."""
        return matrices_of(self.buffers[kind], self.shapes[kind], positions)

    def views(self) -> Iterator[tuple[int, str, View]]:
        """Tensor, name of the state, and place."""
        for position, tensor in enumerate(self.tensors):
            for kind, view in places_of(self.buffers, self.shapes, position):
                yield tensor, kind, view


class _GaLoreLayout(StackedLayout):
    """Replaces the directions by projected steps, between `prepare` and `update`."""

    scratch: ClassVar[tuple[str, ...]] = ("direction",)
    more_state: ClassVar[tuple[str, ...]] = ("projector", "exp_avg", "exp_avg_sq")

    def __init__(
        self,
        rule: Rule,
        params: Sequence[Any],
        groups: Sequence[int],
        group_count: int,
        flags: Sequence[Flags],
        checked: bool,
    ) -> None:
        """See `Layout`."""
        ranks = {dict(one)["rank"] for one in flags}
        if len(ranks) > 1:
            raise ValueError(f"GaLore has one rank for all groups, not {', '.join(map(str, sorted(ranks)))}")
        (self._rank,) = ranks
        self._projected: list[_Projected] = []
        self._place: dict[int, tuple[int, int]] = {}  # of each tensor: index in `_projected`, and the place there
        super().__init__(rule, params, groups, group_count, flags, checked)

    def _stacks(self) -> Sequence[_Projected]:
        return self._projected

    def _low_shape(self, rows: int, columns: int) -> tuple[int, int]:
        rank = min(self._rank, rows, columns)
        return (rank, columns) if rows <= columns else (rows, rank)

    def _state_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, int]]:
        short, low = min(rows, columns), self._low_shape(rows, columns)
        return {"projector": (short, min(self._rank, short)), "exp_avg": low, "exp_avg_sq": low}

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the state of that name of a parameter."""
        return self._state_shapes(*self.matrix_shape(shape)).get(name, shape)

    def _shard(self, flags: Flags, stored: Stored, homes: Mapping[int, Home], absent: int, first_block: int) -> _Shard:
        by_shape: dict[tuple[int, int], list[int]] = {}
        for number in homes:
            by_shape.setdefault(self.shapes[number], []).append(number)
        for (rows, columns), numbers in by_shape.items():
            largest = max(
                min(rows, columns) ** 2, *(room(a * b) for a, b in self._state_shapes(rows, columns).values())
            )
            if largest:
                limit = max(1, self.device.capabilities.max_binding_bytes // (largest * _ITEMSIZE))
                for start in range(0, len(numbers), limit):
                    self._add(rows, columns, numbers[start : start + limit])
        return super()._shard(flags, stored, homes, absent, first_block)

    def _add(self, rows: int, columns: int, numbers: Sequence[int]) -> None:
        for position, number in enumerate(numbers):
            self._place[number] = len(self._projected), position
        shapes = self._state_shapes(rows, columns)
        buffers = {kind: self._table(len(numbers) * room(a * b)) for kind, (a, b) in shapes.items()}
        short, rank = shapes["projector"]
        random = Random(0)
        numbers_of_start = array("f", (random.gauss(0.0, 1.0) for _ in range(short * rank)))
        start = self._table(short * rank)
        self.device.write(View.whole(start), memoryview(numbers_of_start).cast("B"))
        self._projected.append(_Projected(tuple(numbers), shapes, buffers, start))

    def _batch_key(self, number: int) -> tuple[int, ...]:
        return (*self.shapes[number], self._place[number][0])

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)
        for batch in self._batches(live):
            self._step(batch)

    def _step(self, batch: Batch) -> None:
        """The short side is that of the rows, once a tall matrix is transposed."""
        tensors, multiply = batch.tensors, self.products.multiply
        projected = self._projected[self._place[tensors[0]][0]]
        positions = [self._place[number][1] for number in tensors]
        projector = projected.matrices("projector", positions)
        gradient = batch.matrices(batch.shard.state["direction"])
        low = self.products.stack(len(tensors), *projected.shapes["exp_avg"])
        is_tall = batch.rows > batch.columns
        x, projection = (gradient.transposed, low.transposed) if is_tall else (gradient, low)
        self._make_projectors(batch, projected, projector, x)
        multiply(tensors, projector.transposed, x, projection)
        self._adapt(batch, projected, positions, low)
        multiply(tensors, projector, projection, x)

    def _make_projectors(self, batch: Batch, projected: _Projected, projector: Matrices, x: Matrices) -> None:
        """Orthogonal iteration for the first singular vectors: P = QR(X Xᵀ P)."""
        tensors, count = batch.tensors, len(batch.tensors)
        gram = self.products.stack(count, x.rows, x.rows)
        self.products.multiply(tensors, x, x.transposed, gram, gate="refresh")
        work, columns = (self.products.stack(count, projector.columns, projector.rows) for _ in range(2))
        table = self.products.table(zip(tensors, work.firsts, projector.firsts, strict=True))
        views = [work.view, columns.view, projector.view, table, View.whole(self._tensor_scalars)]
        parameters = (projector.rows, projector.columns, *self.products.words("refresh"))
        one = stack(projected.start, 1, projector.rows, projector.columns)
        basis = Matrices(one.view, (0,) * count, one.rows, one.columns, one.row_stride, one.column_stride)
        for _ in range(_ITERATIONS):
            self.products.multiply(tensors, gram, basis, work.transposed, gate="refresh")
            self.device.dispatch(cooperative("orthogonalise"), views, count, parameters)
            basis = projector

    def _adapt(self, batch: Batch, projected: _Projected, positions: Sequence[int], low: Matrices) -> None:
        """Adam."""
        exp_avg, exp_avg_sq = (projected.matrices(kind, positions) for kind in ("exp_avg", "exp_avg_sq"))
        table = self.products.table(zip(batch.tensors, low.firsts, exp_avg.firsts, strict=True))
        views = [low.view, exp_avg.view, exp_avg_sq.view, table, View.whole(self._tensor_scalars)]
        names = ("one_minus_beta1", "beta2", "one_minus_beta2", "eps", "correction1", "correction2")
        size = low.rows * low.columns
        grid = -(-size // 256), len(batch.tensors)
        self.device.dispatch(cooperative("low_rank_adam"), views, grid, (size, *self.products.words(*names)))


class GaLore(MatrixOptimizer):
    """Adam on gradients projected to a low rank (Zhao et al. 2024, arXiv:2403.03507, algorithm 2).

        every update_proj_gap steps: P are the first `rank` left singular vectors of g
        R = Pᵀ g
        exp_avg = beta1 exp_avg + (1 - beta1) R
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) R²
        N = exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)
        param = param - lr (weight_decay param + scale P N)

    where g is the gradient (negated if `maximize`), transposed if it has more rows than columns. The moments have
    `rank` rows only. A tensor of more than two dimensions is seen as the matrix (first, all others), a vector as one
    column, which makes this Adam for it.

    The singular vectors are found on the device, for all matrices of one shape at once, by 5 orthogonal iterations
    P = QR(g gᵀ P) from random numbers, always the same: the projection is accurate to about
    (σ[rank + 1] / σ[rank])^10, and orthogonal to about 1e-6. optax's projects the long side, and with an SVD.

    Args:
        params: parameters, or dicts with "params" and options of their own.
        lr: learning rate.
        betas: decay of the averages of the projected gradient and of its square.
        eps: added to the root.
        weight_decay: decoupled.
        rank: of the projection; the same in all groups.
        update_proj_gap: steps from one projector to the next.
        scale: of the step.
        **options: see `Options`.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> ow.optim.GaLore([w], lr=0.5, rank=1, scale=1.0).step(grads=[[[4.0, 2.0], [0.0, 0.0]]])
        >>> [[round(x, 3) for x in row] for row in w.tolist()]
        [[1.5, -0.5], [0.0, 2.0]]
    """

    rule = Rule("galore")
    layout_type: ClassVar[type[Layout]] = _GaLoreLayout

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        rank: int = 128,
        update_proj_gap: int = 200,
        scale: float = 0.25,
        **options: Unpack[Options],
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "rank": rank,
            "update_proj_gap": update_proj_gap,
            "scale": scale,
        }
        super().__init__(params, defaults, **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        super().validate(group)
        for name in ("rank", "update_proj_gap"):
            if not group[name] >= 1:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """The rule's overrides; and the rank, since it is a matter of layout."""
        return {**super().flags(group), "rank": group["rank"]}

"""GaLore."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Unpack

from ..runtime.buffer import Buffer, View
from ..runtime.kernels import cooperative
from ..runtime.rules import Stored
from .arguments import documented, rule_options
from .layout import Layout
from .low_rank import LowRankLayout, LowRankOptimizer
from .matrices import Batch, Matrices, stack
from .optimizer import Options, Params, Rate, Rule

__all__ = ["GaLore"]

_ITERATIONS = 5


class _GaLoreLayout(LowRankLayout):
    """A layout that replaces the directions by projected steps, between `prepare` and `update`."""

    owner = "GaLore"
    more_state: ClassVar[tuple[str, ...]] = ("projector", *LowRankLayout.more_state)

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._starts: list[Buffer] = []  # of each of `projected`: the start of the iteration for a projector
        super().__init__(*arguments, **more)

    def _state_shapes(self, rows: int, columns: int) -> dict[str, tuple[int, int]]:
        short = min(rows, columns)
        return {"projector": (short, min(self.rank, short)), **super()._state_shapes(rows, columns)}

    def _add(self, rows: int, columns: int, numbers: Sequence[int], stored: Stored) -> None:
        super()._add(rows, columns, numbers, stored)
        short, rank = self._state_shapes(rows, columns)["projector"]
        random = Random(0)
        numbers_of_start = array("f", (random.gauss(0.0, 1.0) for _ in range(short * rank)))
        self._starts.append(self.device.constant(numbers_of_start))

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)
        for batch in self._batches(live):
            self._step(batch)

    def _step(self, batch: Batch) -> None:
        """Compute the projected step of a batch; a tall matrix is transposed, so that its rows are the short side."""
        tensors, multiply = batch.tensors, self.products.multiply
        projector = self.state_of(batch, "projector")
        low = self.products.stack(len(tensors), *self._low_shape(batch.rows, batch.columns))
        x, projection = self.short_side_first(batch, low)
        self._make_projectors(batch, projector, x)
        multiply(tensors, projector.transposed, x, projection)
        self.adam(batch, low)
        multiply(tensors, projector, projection, x)

    def _make_projectors(self, batch: Batch, projector: Matrices, x: Matrices) -> None:
        """Enqueue the orthogonal iteration for the first singular vectors: P = QR(X Xᵀ P)."""
        tensors, count = batch.tensors, len(batch.tensors)
        gram = self.products.stack(count, x.rows, x.rows)
        self.products.multiply(tensors, x, x.transposed, gram, gate="refresh")
        work, columns = (self.products.stack(count, projector.columns, projector.rows) for _ in range(2))
        table = self.products.table(zip(tensors, work.firsts, projector.firsts, strict=True))
        views = [work.view, columns.view, projector.view, table, self.scalars.view]
        parameters = (projector.rows, projector.columns, *self.products.words("refresh"))
        start = stack(self._starts[self._location[tensors[0]][0]], 1, projector.rows, projector.columns)
        basis = Matrices(start.view, (0,) * count, start.rows, start.columns, start.row_stride, start.column_stride)
        for _ in range(_ITERATIONS):
            self.products.multiply(tensors, gram, basis, work.transposed, gate="refresh")
            self.device.dispatch(cooperative("orthogonalise"), views, count, parameters)
            basis = projector


@documented
class GaLore(LowRankOptimizer):
    """Adam on gradients projected to a low rank (Zhao et al. 2024, arXiv:2403.03507, algorithm 2).

        every update_proj_gap steps: P are the first `rank` left singular vectors of g
        R = Pᵀ g
        exp_avg = beta1 exp_avg + (1 - beta1) R
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) R²
        N = exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)
        param = param - lr (weight_decay param + scale P N)

    where g is the gradient (negated if `maximize`), transposed if it has more rows than columns. The moments have
    `rank` rows only. A tensor of more than two dimensions is treated as the matrix (first, all others), a vector as one
    column, which makes this Adam for it.

    The singular vectors are computed on the device, for all matrices of one shape at once, by 5 orthogonal iterations
    P = QR(g gᵀ P) from random numbers, always the same: the projection is accurate to about
    (σ[rank + 1] / σ[rank])^10, and orthogonal to about 1e-6. optax's projects the long side, and with an SVD.

    Args:
        betas: decay of the averages of the projected gradient and of its square.
        weight_decay: decoupled.
        rank: of the projection; the same in all groups.
        update_proj_gap: steps from one projector to the next.
        scale: of the step.

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
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        rank: int = 128,
        update_proj_gap: int = 200,
        scale: float = 0.25,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

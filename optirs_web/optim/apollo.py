"""APOLLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from ..ops.random_state import checked_seed
from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from .arguments import documented, rule_options
from .layout import Layout
from .low_rank import LowRankLayout, LowRankOptimizer
from .matrices import Batch, Scaled
from .optimizer import Options, Params, Rate, Rule, at_least_zero

__all__ = ["APOLLO"]


class _ApolloLayout(LowRankLayout):
    """A layout that scales the directions in place, between `prepare` and `measure`."""

    owner = "APOLLO"

    @staticmethod
    def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows and columns of a tensor as a matrix: one column if it is none, which is never projected."""
        if len(shape) == 2:
            return shape[0], shape[1]
        size = 1
        for length in shape:
            size *= length
        return size, 1

    def _is_projected(self, rows: int, columns: int) -> bool:
        return min(rows, columns) > self.rank

    def _low_shape(self, rows: int, columns: int) -> tuple[int, int]:
        return super()._low_shape(rows, columns) if self._is_projected(rows, columns) else (rows, columns)

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:  # type: ignore[override]
        """Return the shape of a parameter's state of that name."""
        if not self._is_projected(*self.matrix_shape(shape)):
            return Layout.state_shape(name, shape)
        return super().state_shape(name, shape)

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)
        for batch in self._batches(live):
            if self._is_projected(batch.rows, batch.columns):
                self._scale(batch)
            else:
                self.adam(batch, batch.matrices(batch.shard.state["direction"]))

    def _scale(self, batch: Batch) -> None:
        """Compute R = P g, and multiply each channel of g by the factor of Adam for that channel of R."""
        tensors, scalars = batch.tensors, self.scalars.view
        options: dict[str, Any] = dict(batch.shard.flags)
        low = self.products.stack(len(tensors), *self._low_shape(batch.rows, batch.columns))
        x, r = self.short_side_first(batch, low)
        p = self.products.stack(len(tensors), r.rows, x.rows)
        size = p.rows * p.columns
        views = [p.view, self.products.table(zip(tensors, p.firsts, strict=True)), scalars]
        parameters = (size, options["seed"], *self.products.words("draw"))
        self.device.dispatch(cooperative("random_projection"), views, (-(-size // 256), len(tensors)), parameters)
        self.products.multiply(tensors, p, x, r, Scaled(r.rows**-0.5))

        is_shared = options["scale_type"] == "tensor"
        factors = self.products.stack(len(tensors), 1, 1 if is_shared else r.columns)
        strides = r.column_stride, r.row_stride, factors.columns
        self.adapt(batch, "channel_factors", low, (r.columns, r.rows, *strides), factors.columns, factors.view)

        size = x.rows * x.columns
        table = self.products.table(zip(tensors, x.firsts, factors.firsts, strict=True))
        parameters = (size, factors.columns, x.column_stride, *self.products.words())
        grid = -(-size // 256), len(tensors)
        self.device.dispatch(cooperative("scale_channels"), [x.view, factors.view, table, scalars], grid, parameters)


@documented
class APOLLO(LowRankOptimizer):
    """Gradients scaled by approximations of Adam of a low rank (Zhu et al. 2024, arXiv:2412.05270, algorithm 1).

        every update_proj_gap steps: the elements of P, of shape (rank, rows), are drawn from N(0, 1 / rank)
        R = P g
        exp_avg = beta1 exp_avg + (1 - beta1) R
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) R²
        R' = exp_avg / (sqrt(exp_avg_sq) + eps)
        s[j] = ‖R'[:, j]‖ / ‖R[:, j]‖ for each column, or s = ‖R'‖ / ‖R‖ for the tensor
        G = g diag(s), but at most gamma times as long as in the step before
        param = param - lr (weight_decay param + scale G sqrt(1 - beta2^t) / (1 - beta1^t))

    where g is the gradient (negated if `maximize`), transposed if it has more rows than columns. Tensors that are no
    matrices, or whose short side is not longer than the rank, take the steps of AdamW.

    Algorithm 1 has no corrections of the averages; they are those of the authors' code, behind the limiter of equation
    4. The first step is not limited, nor one after a step with G = 0, where their code all but stops. A factor is 0
    where R is 0. Their `scale` is the square of this one, which is the paper's alpha; their eps is 1e-6, and they draw
    other projections.

    P is not stored: it is drawn in each step from the seed, the parameter's number and the count of projections, with
    the same numbers on every device. Parameters in another order have other projections. A factor is about
    sqrt(rank / rows) times that of Adam itself, which `scale` can make up for. APOLLO-Mini is `rank=1,
    scale_type="tensor", scale=128**0.5`: its state is two numbers per column.

    Args:
        betas: decay of the averages of the projected gradient and of its square.
        weight_decay: decoupled.
        rank: of the projection; the same in all groups.
        update_proj_gap: steps from one projection to the next.
        scale: of the step, where gradients are projected.
        scale_type: "channel" or "tensor".
        gamma: by how much the norm of G may grow from one step to the next; 0: by any.
        seed: of the projections, from 0 to 2**32 - 1.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> optimizer = ow.optim.APOLLO([w], lr=0.5, rank=1)
        >>> optimizer.step(grads=[[[1.0, 0.0], [0.0, 0.0]]])
        >>> w.tolist()[0][0] < 1.0, w.tolist()[0][1], w.tolist()[1]
        (True, 1.0, [1.0, 1.0])
    """

    rule = Rule("apollo")
    layout_options: ClassVar[tuple[str, ...]] = ("rank", "scale_type", "seed")
    layout_type: ClassVar[type[Layout]] = _ApolloLayout
    scalars_in_state: ClassVar[tuple[str, ...]] = ("step", "norm")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        rank: int = 128,
        update_proj_gap: int = 200,
        scale: float = 1.0,
        scale_type: str = "channel",
        gamma: float = 1.01,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "scale", "gamma")
        checked_seed(group["seed"], 32)
        if group["scale_type"] not in ("channel", "tensor"):
            raise ValueError(f"Invalid scale_type value: {group['scale_type']}")

"""Shampoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from .arguments import documented, rule_options
from .layout import Layout
from .matrices import Batch, Matrices, MatrixOptimizer, Scaled
from .optimizer import Options, Params, Rate, Rule
from .sides import LEFT, RIGHT, SidedLayout, Sides

__all__ = ["Shampoo"]

_ITERATIONS = 22
"""Iterations that bring an eigenvalue of 1e-6 of the norm to 1: it grows by (1 + 1/p)^p at first, then converges
quadratically."""


class _ShampooLayout(SidedLayout):
    """A layout that preconditions the directions in place, between `prepare` and `update`."""

    scratch: ClassVar[tuple[str, ...]] = ("direction",)
    kinds: ClassVar[tuple[str, ...]] = ("", "root_")

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)
        batches = list(self._batches(live))
        for batch in batches:
            self._gather(batch)
        for sides, positions, tensors in self.live_sides(live):
            self._take_roots(sides, positions, tensors)
        for batch in batches:
            self._precondition(batch)

    def _gather(self, batch: Batch) -> None:
        """Compute L = L + G Gᵀ and R = R + Gᵀ G."""
        gradient = batch.matrices(batch.shard.state["direction"])
        for side, x in ((LEFT, gradient), (RIGHT, gradient.transposed)):
            statistic = self.side(batch, side, "")
            if statistic is not None:
                self.products.multiply(batch.tensors, x, x.transposed, statistic, plus=statistic)

    def _take_roots(self, sides: Sides, positions: Sequence[int], tensors: Sequence[int]) -> None:
        """Compute the inverse roots of order p: with T = ((1 + p) I - M) / p, M = Tᵖ M and H = H T, until M is I."""
        statistics, roots = (sides.matrices(kind, positions) for kind in self.kinds)
        order = 2 * sides.order
        stack = partial(self.products.stack, len(tensors), sides.size, sides.size)
        m, h = stack(), stack()
        self._start_roots(tensors, statistics, m, h, order)
        for iteration in range(_ITERATIONS):
            is_last = iteration == _ITERATIONS - 1
            h = self._multiply_by_t(tensors, h, m, roots if is_last else stack(), order)
            if not is_last:
                m = self._iterate(tensors, m, stack, order)

    def _start_roots(self, tensors: Sequence[int], statistics: Matrices, m: Matrices, h: Matrices, order: int) -> None:
        words = self.products.words("refresh", "eps")
        table = self.products.table(zip(tensors, statistics.firsts, m.firsts, strict=True))
        views = [statistics.view, m.view, h.view, table, self.scalars.view]
        parameters = (m.rows, order, *words)
        self.device.dispatch(cooperative("inverse_root_start"), views, len(tensors), parameters)

    def _multiply_by_t(
        self, tensors: Sequence[int], h: Matrices, m: Matrices, result: Matrices, order: int
    ) -> Matrices:
        self.products.multiply(tensors, h, m, result, Scaled(-1 / order), h, Scaled(1 + 1 / order), gate="refresh")
        return result

    def _iterate(self, tensors: Sequence[int], m: Matrices, stack: Callable[[], Matrices], order: int) -> Matrices:
        """Return Tᵖ M, with T² = M² / p² - 2 (1 + 1/p) M / p + (1 + 1/p)² I."""
        multiply = self.products.multiply
        leading = 1 + 1 / order
        power = stack()
        multiply(
            tensors,
            m,
            m,
            power,
            Scaled(order**-2),
            m,
            Scaled(-2 * leading / order),
            diagonal=leading**2,
            gate="refresh",
        )
        if order == 4:
            square, power = power, stack()
            multiply(tensors, square, square, power, gate="refresh")
        result = stack()
        multiply(tensors, power, m, result, gate="refresh")
        return result

    def _precondition(self, batch: Batch) -> None:
        """Multiply the directions by the roots of the sides that have one."""
        direction = batch.matrices(batch.shard.state["direction"])
        left, right = (self.side(batch, side, "root_") for side in (LEFT, RIGHT))
        self.products.enclose(batch.tensors, left, direction, right, direction)


@documented
class Shampoo(MatrixOptimizer):
    """Shampoo: a preconditioner for each mode of a tensor (Gupta, Koren & Singer 2018, arXiv:1802.09568, algorithm 1).

        G = g + weight_decay param
        L = L + G Gᵀ,  R = R + Gᵀ G
        momentum_buffer = momentum momentum_buffer + (L + eps I)^(-1/4) G (R + eps I)^(-1/4)
        param = param - lr momentum_buffer

    where g is the gradient (negated if `maximize`). A tensor of more than two dimensions is treated as the matrix
    (first, all others); a vector has only L, with the power -1/2. A side longer than `max_preconditioner_dim` has no
    preconditioner, and the other one then has the power -1/2.

    The roots are computed on the device by coupled Newton iterations in float32 (Guo & Higham 2006), for all sides of
    one size at once, in 86 dispatches (65 for the power -1/2), which end at once in steps that use the roots so far.
    Their relative error is about 5e-9 times the condition number; to bound that, the ridge is 1e-6 of the norm of L or
    R where eps is less.

    Args:
        momentum: of the preconditioned gradient.
        weight_decay: L2 penalty, through the gradient.
        eps: the ridge.
        update_freq: steps from one computation of the roots to the next.
        max_preconditioner_dim: the longest side that has a preconditioner.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> ow.optim.Shampoo([w], lr=0.5, eps=0.0).step(grads=[[[4.0, 0.0], [0.0, -9.0]]])
        >>> [[round(x, 4) for x in row] for row in w.tolist()]
        [[1.5, 0.0], [0.0, 2.5]]
    """

    rule = Rule("shampoo")
    layout_type: ClassVar[type[Layout]] = _ShampooLayout

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        eps: float = 1e-4,
        update_freq: int = 1,
        max_preconditioner_dim: int = 2048,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        super().validate(group)
        if not group["update_freq"] >= 1:
            raise ValueError(f"Invalid update_freq value: {group['update_freq']}")
        if not group["max_preconditioner_dim"] >= 0:
            raise ValueError(f"Invalid max_preconditioner_dim value: {group['max_preconditioner_dim']}")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides, and the limit of sides, which determines the layout."""
        return {**super().flags(group), "max_preconditioner_dim": group["max_preconditioner_dim"]}

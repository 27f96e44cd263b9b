"""SOAP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from .arguments import documented, rule_options
from .layout import Layout
from .matrices import Batch, Matrices, MatrixOptimizer, Scaled
from .optimizer import Options, Params, Rate, Rule, fractions
from .packed import load, packed_slot, store
from .sides import LEFT, RIGHT, SidedLayout, Sides

__all__ = ["SOAP"]


def _sweeps(size: int) -> int:
    """Return the number of sweeps of Jacobi rotations: a matrix of 16 needs 7, of 64 needs 11, of 150 needs 14."""
    return 2 + 2 * (size - 1).bit_length()


class _SoapLayout(SidedLayout):
    """A layout that rotates gradients to the eigenbasis before `adapt`, and steps back before `update`.

    It also updates the basis.
    """

    scratch: ClassVar[tuple[str, ...]] = ("direction",)
    kinds: ClassVar[tuple[str, ...]] = ("", "Q_")

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        batches = list(self._batches(live))
        self._run_part("prepare", shared)
        directions = [(batch, batch.matrices(batch.shard.state["direction"])) for batch in batches]
        for batch, direction in directions:
            self._gather(batch, direction)
            self._rotate(batch, direction, direction)
        self._run_part("adapt", shared)
        for batch, direction in directions:
            self._rotate(batch, direction, direction, is_back=True)
        # The average of the gradients is rotated back with the old basis, and to the new one.
        averages = [(batch, self._average(batch)) for batch in batches]
        rotated = [self.products.stack(len(batch.tensors), batch.rows, batch.columns) for batch in batches]
        for (batch, average), middle in zip(averages, rotated, strict=True):
            self._rotate(batch, average, middle, is_back=True, gate="refresh")
        for sides, positions, tensors in self.live_sides(live):
            self._make_basis(sides, positions, tensors)
            self._refresh_basis(sides, positions, tensors)
        for (batch, average), middle in zip(averages, rotated, strict=True):
            self._rotate(batch, middle, average, gate="refresh")
            packed = packed_slot(batch, "exp_avg")
            if packed is not None:
                store(self.products, batch.tensors, average, packed, gate="refresh")

    def _average(self, batch: Batch) -> Matrices:
        """Return the average of the gradients as float32."""
        packed = packed_slot(batch, "exp_avg")
        if packed is None:
            return batch.matrices(batch.shard.state["exp_avg"])
        loaded = self.products.stack(len(batch.tensors), batch.rows, batch.columns)
        load(self.products, batch.tensors, packed, loaded, "refresh")
        return loaded

    def _rotate(
        self,
        batch: Batch,
        source: Matrices,
        result: Matrices,
        *,
        is_back: bool = False,
        gate: str = "",
    ) -> None:
        """Compute Q_Lᵀ source Q_R, or the inverse, with the sides that have a basis; the result may be the source."""
        left, right = (self.side(batch, side, "Q_") for side in (LEFT, RIGHT))
        if is_back:
            left, right = left and left.transposed, right and right.transposed
        self.products.enclose(batch.tensors, left and left.transposed, source, right, result, gate=gate)

    def _gather(self, batch: Batch, gradient: Matrices) -> None:
        """Compute L = beta L + (1 - beta) G Gᵀ, and R likewise."""
        for side, x in ((LEFT, gradient), (RIGHT, gradient.transposed)):
            statistic = self.side(batch, side, "")
            if statistic is not None:
                alpha, beta = Scaled(1.0, "one_minus_shampoo_beta"), Scaled(1.0, "shampoo_beta")
                self.products.multiply(batch.tensors, x, x.transposed, statistic, alpha, statistic, beta)

    def _make_basis(self, sides: Sides, positions: Sequence[int], tensors: Sequence[int]) -> None:
        """Compute the eigenvectors Q, in the first step."""
        statistics, q = (sides.matrices(kind, positions) for kind in self.kinds)
        work, vectors = (self.products.stack(len(tensors), sides.size, sides.size) for _ in range(2))
        table = self.products.table(zip(tensors, statistics.firsts, work.firsts, q.firsts, strict=True))
        views = [statistics.view, work.view, vectors.view, q.view, table, self.scalars.view]
        count = _sweeps(sides.size)
        for sweep in range(count):
            parameters = (sides.size, sweep == 0, sweep == count - 1, *self.products.words("first"))
            self.device.dispatch(cooperative("eigenvectors"), views, len(tensors), parameters)

    def _refresh_basis(self, sides: Sides, positions: Sequence[int], tensors: Sequence[int]) -> None:
        """Compute Q, the orthogonal factor of L Q, in every `precondition_frequency`-th step."""
        statistics, q = (sides.matrices(kind, positions) for kind in self.kinds)
        work, columns = (self.products.stack(len(tensors), sides.size, sides.size) for _ in range(2))
        self.products.multiply(tensors, statistics, q, work.transposed, gate="refresh")
        table = self.products.table(zip(tensors, work.firsts, q.firsts, strict=True))
        views = [work.view, columns.view, q.view, table, self.scalars.view]
        parameters = (sides.size, sides.size, *self.products.words("refresh"))
        self.device.dispatch(cooperative("orthogonalise"), views, len(tensors), parameters)


@documented
class SOAP(MatrixOptimizer):
    """Adam in the eigenbasis of Shampoo's preconditioners (Vyas et al. 2024, arXiv:2409.11321, algorithm 3).

        G' = Q_Lᵀ g Q_R
        exp_avg = beta1 exp_avg + (1 - beta1) G'
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) G'²
        step = sqrt(1 - beta2^t) / (1 - beta1^t) exp_avg / (sqrt(exp_avg_sq) + eps)
        param = (1 - lr weight_decay) (param - lr Q_L step Q_Rᵀ)
        L = shampoo_beta L + (1 - shampoo_beta) g gᵀ,  R = shampoo_beta R + (1 - shampoo_beta) gᵀ g
        every precondition_frequency steps: Q_L = QR(L Q_L), Q_R = QR(R Q_R), and exp_avg is rotated to the new basis

    where g is the gradient (negated if `maximize`). The first step only makes L, R and their eigenvectors Q_L and Q_R;
    it is counted by `step`, but t is one less. A tensor of more than two dimensions is treated as the matrix (first,
    all others). Sides longer than `max_precond_dim`, and vectors unless `precondition_1d`, are not rotated: without
    any side this is Adam.

    Everything is computed on the device, in float32, for all sides of one size at once: the eigenvectors by Jacobi
    rotations, the orthogonal factor by Householder reflections. Both are orthogonal to about 1e-6 (an eigenvector is
    accurate to that divided by the relative gap of its eigenvalue). One workgroup computes one matrix, in a time that
    grows with the third power of its size, and the eigenvectors, in the first step, take 2 + 2 log2(size) times as long
    as a QR; hence `max_precond_dim` is 1,024, where the authors have 10,000. They also sort the basis by estimated
    eigenvalues before each QR, which the paper does not. Where L or R has no full rank, as at first for long and narrow
    matrices, eigenvectors of 0 are any basis, and devices take different ones.

    Args:
        shampoo_beta: decay of L and R; if negative, the second of the betas.
        weight_decay: decoupled, and applied after the step as the authors do.
        precondition_frequency: steps from one QR to the next.
        max_precond_dim: the longest side that is rotated.
        precondition_1d: rotate vectors too.
        correct_bias: of the averages.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> optimizer = ow.optim.SOAP([w], lr=0.5, weight_decay=0.0)
        >>> for _ in range(2):
        ...     optimizer.step(grads=[[[4.0, 0.0], [0.0, -9.0]]])
        >>> [[round(x, 4) for x in row] for row in w.tolist()]
        [[1.5, 0.0], [0.0, 2.5]]
    """

    rule = Rule("soap")
    layout_type: ClassVar[type[Layout]] = _SoapLayout

    def __init__(
        self,
        params: Params,
        lr: Rate = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        shampoo_beta: float = -1.0,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        precondition_frequency: int = 10,
        max_precond_dim: int = 1024,
        precondition_1d: bool = False,
        correct_bias: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        super().validate(group)
        if group["shampoo_beta"] >= 0:
            fractions(group, "shampoo_beta")
        if not group["precondition_frequency"] >= 1:
            raise ValueError(f"Invalid precondition_frequency value: {group['precondition_frequency']}")
        if not group["max_precond_dim"] >= 0:
            raise ValueError(f"Invalid max_precond_dim value: {group['max_precond_dim']}")

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides, and the options that determine the sides of the layout."""
        sides = {"max_preconditioner_dim": group["max_precond_dim"], "precondition_1d": group["precondition_1d"]}
        return {**super().flags(group), **sides}

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper."""
        beta = group["betas"][1] if group["shampoo_beta"] < 0 else group["shampoo_beta"]
        return super().hyper({**group, "shampoo_beta": beta})

"""Muon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

from ..runtime.buffer import View
from .arguments import documented, rule_options
from .layout import Layout
from .matrices import Batch, Matrices, MatrixLayout, MatrixOptimizer, Scaled
from .optimizer import Options, Params, Rate, Rule

__all__ = ["Muon"]

_ADJUSTMENTS = (None, "original", "match_rms_adamw")


class _MuonLayout(MatrixLayout):
    """A layout that orthogonalises the directions in place, between `settle` and `update`."""

    scratch: ClassVar[tuple[str, ...]] = ("direction",)

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for batch in self._batches(live):
            self._orthogonalise(batch)

    def _orthogonalise(self, batch: Batch) -> None:
        """Iterate X = a X + (b A + c A A) X with A = X Xᵀ, `ns_steps` times; X is first divided by its norm."""
        steps = dict(batch.shard.flags)["ns_steps"]
        direction = batch.matrices(batch.shard.state["direction"])
        count, rows, columns = len(batch.tensors), batch.rows, batch.columns
        x = direction
        for step in range(steps):
            is_first = step == 0
            # The last iteration writes the direction itself; a kernel does not read the buffer that it writes.
            goes_back = step == steps - 1 and not is_first
            target = direction if goes_back else self.products.stack(count, rows, columns)
            self._newton_schulz(batch.tensors, x, target, is_first)
            x = target
        if steps == 0:
            x = self.products.stack(count, rows, columns)
            self.products.copy(batch.tensors, direction, x, Scaled(1.0, "inverse_norm"))
        if steps < 2:
            self.products.copy(batch.tensors, x, direction)

    def _newton_schulz(self, tensors: Sequence[int], x: Matrices, target: Matrices, is_first: bool) -> None:
        multiply = self.products.multiply
        if x.rows > x.columns:
            x, target = x.transposed, target.transposed
        gram, polynomial = (self.products.stack(len(tensors), x.rows, x.rows) for _ in range(2))
        multiply(tensors, x, x.transposed, gram, Scaled(1.0, "inverse_norm_sq" if is_first else None))
        multiply(tensors, gram, gram, polynomial, Scaled(1.0, "c"), gram, Scaled(1.0, "b"))
        factor = Scaled(1.0, "inverse_norm" if is_first else None)
        multiply(tensors, polynomial, x, target, factor, x, Scaled(1.0, "first_a" if is_first else "a"))


@documented
class Muon(MatrixOptimizer):
    """Momentum orthogonalised by Newton-Schulz (Jordan et al. 2024), as `torch.optim.Muon`.

        momentum_buffer = momentum momentum_buffer + (1 - momentum) g
        X = g + momentum (momentum_buffer - g) with nesterov, else momentum_buffer; then X / max(‖X‖, eps)
        ns_steps times: X = a X + (b A + c A A) X with A = X Xᵀ
        param = param - lr (weight_decay param + ratio X)

    where g is the gradient (negated if `maximize`), and X is transposed while it has more rows than columns. torch
    computes the iteration in bfloat16, this one in float32. Matrices of one shape are one batch: a step has
    5 dispatches, and 3 ns_steps more for each shape, for any number of matrices.

    Args:
        params: matrices, or dicts with "params" and options of their own. Use AdamW for all other parameters.
        weight_decay: decoupled.
        momentum: decay of the average of the gradient.
        nesterov: look ahead along the gradient.
        ns_coefficients: a, b and c.
        eps: the least norm to divide by.
        ns_steps: iterations.
        adjust_lr_fn: the ratio: "original" (or None) is sqrt(max(1, rows / columns)), "match_rms_adamw" is
            0.2 sqrt(max(rows, columns)) (Liu et al. 2025, arXiv:2502.16982).

    Raises:
        ValueError: an option is out of range, or a parameter is no matrix.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[2.0, 0.0], [0.0, 2.0]], device="cpu")
        >>> ow.optim.Muon([w], lr=0.5, weight_decay=0.0, ns_coefficients=(2, -1.5, 0.5), ns_steps=10).step(
        ...     grads=[[[0.0, 3.0], [-3.0, 0.0]]]
        ... )
        >>> [[round(x, 3) for x in row] for row in w.tolist()]
        [[2.0, -0.5], [0.5, 2.0]]
    """

    rule = Rule("muon")
    needs = "parameters that are matrices"
    layout_type: ClassVar[type[Layout]] = _MuonLayout
    scalars_in_state: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range, with torch's messages."""
        for name, words in (("lr", "Learning rate"), ("momentum", "momentum"), ("weight_decay", "weight decay")):
            if not 0 <= group[name] < float("inf"):
                raise ValueError(f"{words} should be >= 0 but is: {group[name]}")
        if group["adjust_lr_fn"] not in _ADJUSTMENTS:
            raise ValueError(f"Adjust learning rate function {group['adjust_lr_fn']} is not supported")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        if not 0 <= group["ns_steps"] < 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        super().validate(group)
        for param in group.get("params", ()):
            if param.ndim != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {param.shape}"
                )

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides, and the number of iterations, which all tensors of a batch share."""
        return {**super().flags(group), "ns_steps": group["ns_steps"]}

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper."""
        coefficients = dict(zip("abc", group["ns_coefficients"], strict=True))
        match_rms_adamw = float(group["adjust_lr_fn"] == "match_rms_adamw")
        return super().hyper({**group, **coefficients, "match_rms_adamw": match_rms_adamw})

"""Newton-CG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import CheckpointError
from ..launch import apply
from ..ops.arithmetic import negate
from ..tensors import Tensor
from .host_driven import Closure, Evaluation, HostDriven
from .optimizer import Params
from .options import at_least_zero
from .vectors import Reading, dot, read

__all__ = ["NewtonCG"]

_DECREASE = 1e-4  # Nocedal & Wright's c1
_SHORTER = 0.5
_COUNTS = ("n_iter", "func_evals", "hvp_evals")


class NewtonCG(HostDriven):
    """The line search Newton-CG method (Nocedal & Wright 2006, algorithm 7.1).

        z = about -(H + damping)⁻¹ g by conjugate gradients, until ‖residual‖ <= min(tolerance, sqrt(‖g‖)) ‖g‖
            or a direction of curvature 0 or less is met; at the first direction, z = -g
        x = x + t z,   with the first t of lr, lr / 2, lr / 4, ... that lowers the loss by 1e-4 t |g·z| at least

    If none of `max_eval` does, the parameters do not change. Vectors are on the device, 6 at most, and none is kept
    between steps.
    The host waits once for each evaluation of the loss (65 to 67 numbers), once for each iteration of conjugate
    gradients (3 numbers), and once for the slope along z (1 number).

    Args:
        params: parameters, or one dict with "params" and options.
        hvp: computes the products of the Hessian at the current parameters with some tensors, one for each parameter: a
            list of tensors or arrays.
        lr: the first length of a step that is tried.
        max_iter: iterations of conjugate gradients in a step.
        max_eval: lengths that are tried.
        tolerance: of the residual, relative to the gradient.
        damping: added to the Hessian's diagonal.

    Raises:
        ValueError: an option is out of range, or there is more than one group.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> opt = ow.optim.NewtonCG([w], hvp=lambda vectors: [2.0 * vector for vector in vectors])
        >>> def closure():
        ...     opt.zero_grad()
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     return loss
        >>> opt.step(closure).item(), w.tolist()
        (25.0, [0.0, 0.0])
    """

    _kept = ("_counts",)

    def __init__(
        self,
        params: Params,
        hvp: Callable[[list[Tensor]], Sequence[Any]],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int = 20,
        tolerance: float = 0.5,
        damping: float = 0.0,
    ) -> None:
        if not callable(hvp):
            raise TypeError(f"hvp must be a function from tensors to products with the Hessian, not {hvp!r}")
        self.hvp = hvp
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance": tolerance, "damping": damping
        }  # fmt: skip
        super().__init__(params, defaults)

    def validate(self, group: Mapping[str, Any]) -> None:
        at_least_zero(group, "lr", "max_iter", "max_eval", "tolerance", "damping")

    def _minimize(self, closure: Closure) -> Reading:
        group, space, counts = self.param_groups[0], self._space, self._counts
        current: Evaluation = yield from self._evaluate(closure)
        counts["n_iter"] += 1
        counts["func_evals"] += 1
        if current.largest == 0:
            return current.result
        direction = yield from self._solve(current.gradient, group)
        ((slope,),) = yield from read(dot(current.gradient, direction))
        start_point, t = space.values(), float(group["lr"])
        for _ in range(int(group["max_eval"])):
            space.assign(apply("vectors", "add_scaled", start_point, direction, t, 0.0, 1.0))
            trial: Evaluation = yield from self._evaluate(closure)
            counts["func_evals"] += 1
            if trial.loss <= current.loss + _DECREASE * t * slope:
                return current.result
            t *= _SHORTER
        space.assign(start_point)
        return current.result

    def _solve(self, gradient: Tensor, group: Mapping[str, Any]) -> Reading:
        """Return the direction, by conjugate gradients from 0."""
        residual, direction = gradient, negate(gradient)
        residual_sq = dot(residual, residual)
        solution: Tensor | None = None
        tolerance = math.inf
        for _ in range(int(group["max_iter"])):
            product = self._space.gather(list(self.hvp(self._space.parts(direction))))
            self._counts["hvp_evals"] += 1
            if group["damping"]:
                product = _add(product, direction, float(group["damping"]), 1.0)
            curvature = dot(direction, product)
            base = solution if solution is not None else self._space.gather([None] * len(self._space.params))
            next_solution = _add(base, direction, residual_sq, curvature)
            residual = _add(residual, product, residual_sq, curvature)
            next_sq = dot(residual, residual)
            (before,), (curved,), (after,) = yield from read(residual_sq, curvature, next_sq)
            if solution is None:
                norm = math.sqrt(before)
                tolerance = min(float(group["tolerance"]), math.sqrt(norm)) * norm
            if not curved > 0:
                break
            solution = next_solution
            if not math.sqrt(after) > tolerance:
                break
            direction = _add(negate(residual), direction, next_sq, residual_sq)
            residual_sq = next_sq
        return solution if solution is not None else negate(gradient)

    # State: counts.

    def _state(self) -> dict[str, Any]:
        return dict(self._counts) if self._counts["n_iter"] else {}

    def _checked(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {name: int(entry[name]) for name in _COUNTS} if entry else {}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"this is not a state of NewtonCG: {error!r}") from error

    def _take_state(self, entry: Mapping[str, Any]) -> None:
        self._counts = {name: entry.get(name, 0) for name in _COUNTS}


def _add(y: Tensor, x: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """Return the vector y + a / b x."""
    return apply("vectors", "add_scaled", y, x, a, 0.0, b)

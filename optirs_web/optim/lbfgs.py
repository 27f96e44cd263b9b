"""L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import CheckpointError, OptirsError
from ..hostdata import HostData, host_data
from ..launch import apply
from ..ops.arithmetic import negate, subtract
from ..runtime.dtypes import FLOAT32
from ..tensors import Tensor
from .host_driven import Closure, Evaluation, HostDriven
from .line_search import Trial, strong_wolfe
from .optimizer import Params
from .options import at_least_zero
from .vectors import Reading, dot, fold_magnitudes, largest, read

__all__ = ["LBFGS"]

_LEAST_CURVATURE = 1e-10  # of a pair that is kept


class _Pair(NamedTuple):
    """A step, the change of the gradient over it, and their products, on the device."""

    step: Tensor
    change: Tensor
    curvature: Tensor
    change_sq: Tensor


def _pair(step: Tensor, change: Tensor) -> _Pair:
    return _Pair(step, change, dot(change, step), dot(change, change))


@dataclass
class _Memory:
    """The state between iterations."""

    n_iter: int = 0
    func_evals: int = 0
    direction: Tensor | None = None
    t: float = 0.0
    gradient: Tensor | None = None
    loss: float = 0.0
    pairs: list[_Pair] = field(default_factory=list)
    curvatures: list[float] = field(default_factory=list)
    change_sq: float = 1.0  # of the newest pair


class LBFGS(HostDriven):
    """Limited-memory BFGS (Liu & Nocedal 1989), as `torch.optim.LBFGS`: signature, defaults, decisions and state.

        direction = -H g,   H from the last `history_size` pairs s = x_new - x, y = g_new - g with y·s > 1e-10
        x = x + t direction

    where t is lr (at first lr / max(1, ‖g‖₁)), or with "strong_wolfe" the result of a line search that begins there.

    Vectors stay on the device; from step to step 2 history_size + 2 of them. The host waits once for each evaluation of
    the loss and once for each iteration (twice where the newest pair is not kept), and reads 65 to 67 numbers then. The
    loss is float32: a line search cannot see changes below 6e-8 of it, and where torch, in float64, still takes such
    steps, the two differ from there on. Against torch in float64 the decisions of the tests are the same, and the
    parameters within 2e-3 on the way.

    Args:
        params: parameters, or one dict with "params" and options.
        lr: length of a step, or of the first that a line search tries.
        max_iter: iterations in a step.
        max_eval: evaluations of the loss in a step; None is max_iter * 5 // 4.
        tolerance_grad: ends a step when no element of the gradient is larger.
        tolerance_change: ends a step when loss or parameters change by less.
        history_size: number of pairs.
        line_search_fn: "strong_wolfe" or None.

    Raises:
        ValueError: an option is out of range, or there is more than one group.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> opt = ow.optim.LBFGS([w], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     opt.zero_grad()
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     return loss
        >>> opt.step(closure).item(), closure().item() < 1e-12
        (25.0, True)
    """

    _kept = ("_memory",)

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        is_number = isinstance(max_iter, int | float)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None and is_number else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)

    def validate(self, group: Mapping[str, Any]) -> None:
        at_least_zero(group, "lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size")
        if group["history_size"] < 1:
            raise ValueError(f"Invalid history_size value: {group['history_size']}")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError("only 'strong_wolfe' is supported")

    def _minimize(self, closure: Closure) -> Reading:
        group, memory, space = self.param_groups[0], self._memory, self._space
        current: Evaluation = yield from self._evaluate(closure)
        result, evaluations = current.result, 1
        memory.func_evals += 1
        if current.largest <= group["tolerance_grad"]:
            return result
        current_point = space.values()
        for iteration in range(1, group["max_iter"] + 1):
            memory.n_iter += 1
            slope, longest = yield from self._choose_direction(current.gradient, group["history_size"])
            direction = memory.direction
            assert direction is not None
            memory.gradient, memory.loss = current.gradient, current.loss
            memory.t = float(group["lr"])
            if memory.n_iter == 1:
                memory.t *= min(1.0, 1.0 / current.sum)
            if slope > -group["tolerance_change"]:
                break
            start = Trial(0.0, current._replace(slope=slope))
            is_last = iteration == group["max_iter"]
            count = 0
            if group["line_search_fn"]:

                def evaluate(t: float, point: Tensor = current_point, direction: Tensor = direction) -> Reading:
                    space.assign(_moved(point, direction, t))
                    return (yield from self._evaluate(closure, direction))

                accepted, count = yield from strong_wolfe(
                    evaluate, start, memory.t, longest, group["tolerance_change"], group["max_eval"] - evaluations
                )
                memory.t, current = accepted
            current_point = _moved(current_point, direction, memory.t)
            space.assign(current_point)
            if not group["line_search_fn"] and not is_last:
                current = yield from self._evaluate(closure)
                count = 1
            evaluations += count
            memory.func_evals += count
            if (
                is_last
                or evaluations >= group["max_eval"]
                or current.largest <= group["tolerance_grad"]
                or abs(memory.t) * longest <= group["tolerance_change"]
                or abs(current.loss - memory.loss) < group["tolerance_change"]
            ):
                break
        return result

    def _choose_direction(self, gradient: Tensor, history_size: int) -> Reading:
        """Compute the next direction, and return its slope and largest magnitude. One read, or two."""
        memory = self._memory
        if memory.n_iter == 1:
            memory.pairs, memory.curvatures = [], []
            return (yield from self._measure_along(negate(gradient), gradient))
        assert memory.direction is not None
        assert memory.gradient is not None
        step = apply("multiply", "multiply", memory.direction, memory.t)
        newest = _pair(step, subtract(gradient, memory.gradient))
        pairs = [*memory.pairs, newest][-history_size:]
        # As if the pair were kept, which it nearly always is: so its curvature is read along with the slope.
        scalars = yield from self._measure_along(
            _descent_direction(gradient, pairs), gradient, newest.curvature, newest.change_sq
        )
        slope, longest, curvature, change_sq = scalars
        if not curvature > _LEAST_CURVATURE:
            return (yield from self._measure_along(_descent_direction(gradient, memory.pairs), gradient))
        memory.pairs, memory.curvatures = pairs, [*memory.curvatures, curvature][-history_size:]
        memory.change_sq = change_sq
        return slope, longest

    def _measure_along(self, direction: Tensor, gradient: Tensor, *more: Tensor) -> Reading:
        """Set the direction, and return its slope, its largest magnitude, and the values of further scalars."""
        self._memory.direction = direction
        magnitudes, (slope,), *scalars = yield from read(fold_magnitudes(direction), dot(gradient, direction), *more)
        return slope, largest(magnitudes), *(scalar[0] for scalar in scalars)

    # State, in torch's names.

    def _state(self) -> dict[str, Any]:
        memory = self._memory
        if not memory.func_evals:
            return {}
        counts = {"func_evals": memory.func_evals, "n_iter": memory.n_iter}
        if not memory.n_iter:
            return counts
        return {
            **counts,
            "d": memory.direction,
            "t": memory.t,
            "old_dirs": [pair.change for pair in memory.pairs],
            "old_stps": [pair.step for pair in memory.pairs],
            "ro": [1.0 / curvature for curvature in memory.curvatures],
            "H_diag": memory.curvatures[-1] / memory.change_sq if memory.pairs else 1.0,
            "prev_flat_grad": memory.gradient,
            "prev_loss": memory.loss,
        }

    def _checked(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        if not entry:
            return {}
        try:
            checked: dict[str, Any] = {name: int(entry[name]) for name in ("func_evals", "n_iter")}
            if not checked["n_iter"]:
                return checked
            for name in ("t", "prev_loss", "H_diag"):
                checked[name] = float(entry[name])
            for name in ("d", "prev_flat_grad"):
                checked[name] = self._vector(name, entry[name])
            for name in ("old_dirs", "old_stps"):
                checked[name] = [self._vector(name, row) for row in _rows(entry[name])]
            checked["ro"] = [float(value) for value in _rows(entry["ro"])]
        except (LookupError, TypeError, ValueError, OverflowError, OptirsError) as error:
            raise CheckpointError(f"this is not a state of LBFGS: {error!r}") from error
        if len({len(checked[name]) for name in ("old_dirs", "old_stps", "ro")}) > 1:
            raise CheckpointError("the state has old_dirs, old_stps and ro of different lengths")
        return checked

    def _take_state(self, entry: Mapping[str, Any]) -> None:
        self._memory = memory = _Memory()
        if not entry:
            return
        memory.func_evals, memory.n_iter = entry["func_evals"], entry["n_iter"]
        if not memory.n_iter:
            return
        memory.direction, memory.gradient = entry["d"], entry["prev_flat_grad"]
        memory.t, memory.loss = entry["t"], entry["prev_loss"]
        memory.pairs = [_pair(step, change) for step, change in zip(entry["old_stps"], entry["old_dirs"], strict=True)]
        memory.curvatures = [1.0 / value for value in entry["ro"]]
        if memory.pairs and entry["H_diag"]:
            memory.change_sq = memory.curvatures[-1] / entry["H_diag"]


def _moved(point: Tensor, direction: Tensor, t: float) -> Tensor:
    return apply("vectors", "add_scaled", point, direction, t, 0.0, 1.0)


def _descent_direction(gradient: Tensor, pairs: Sequence[_Pair]) -> Tensor:
    """Return -H g by the two loops over the pairs (Nocedal & Wright 2006, algorithm 7.4), on the device."""
    q = negate(gradient)
    along = []
    for pair in reversed(pairs):
        along.append(dot(pair.step, q))
        q = apply("vectors", "add_scaled", q, pair.change, 0.0, along[-1], pair.curvature)
    if pairs:
        q = apply("vectors", "scale", q, pairs[-1].curvature, pairs[-1].change_sq)
    for pair in pairs:
        q = apply("vectors", "add_scaled", q, pair.step, along.pop(), dot(pair.change, q), pair.curvature)
    return q


def _rows(values: Any) -> Sequence[Any]:
    """Return a list of vectors or numbers, also from the rows of an array, as a checkpoint has them."""
    if isinstance(values, (list, tuple)) and not isinstance(values, HostData):
        return values
    content, shape, _ = host_data(values, FLOAT32)
    length, row = shape[0], 4 * math.prod(shape[1:])
    if len(shape) == 1:
        return list(content.cast("f"))
    return [HostData(content[index * row : (index + 1) * row], shape[1:], FLOAT32) for index in range(length)]

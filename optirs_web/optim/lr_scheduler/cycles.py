"""Torch's schedulers that have the momentum go against the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..formulas import Curve, Schedule, absolute, call, joined, ramp, split_ratio
from ..optimizer import Optimizer
from .arguments import DividesByZeroError, checked
from .scheduler import LRScheduler, _check_optimizer
from .scheduler_set import set_option

__all__ = ["CyclicLR", "OneCycleLR"]

Values = float | Sequence[float]


def _of_groups(name: str, optimizer: Optimizer, value: Values) -> list[float]:
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups  # type: ignore[list-item]
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {groups}."
        )
    return list(value)


class _CycleLR(LRScheduler):
    """Base class of schedulers that cycle momentum (or beta1) too, with the bounds stored in the group, as in torch."""

    cycle_momentum: bool
    use_beta1: bool

    def _prepare_momentum(self, base: Values, top: Values, is_new: bool) -> None:
        if not self.cycle_momentum:
            return
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults
        self.base_momentums = _of_groups("base_momentum", self.optimizer, base)
        self.max_momentums = _of_groups("max_momentum", self.optimizer, top)
        if is_new:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                set_option(group, self._momentum, high)
                group["max_momentum"], group["base_momentum"] = high, low

    @property
    def _momentum(self) -> str:
        return "beta1" if self.use_beta1 else "momentum"


@checked
class CyclicLR(_CycleLR):
    """Up and down between two values (Smith 2017, arXiv:1506.01186), as `torch.optim.lr_scheduler.CyclicLR`.

    With a `scale_fn` of your own a step costs one write of 4 bytes for each value.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.CyclicLR(opt, 0.1, 1.0, step_size_up=2, cycle_momentum=False)
        >>> [round(value, 3) for value in scheduler.values(5)]
        [0.1, 0.55, 1.0, 0.55, 0.1]
    """

    _left_out = LRScheduler._left_out | {"_scale_fn"}

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Values,
        max_lr: Values,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Values = 0.8,
        max_momentum: Values = 0.9,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        bases = _of_groups("base_lr", optimizer, base_lr)
        self.max_lrs = _of_groups("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, value in zip(optimizer.param_groups, bases, strict=True):
                set_option(group, param, value)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        self._prepare_momentum(base_momentum, max_momentum, last_epoch == -1)
        self._lows = bases
        super().__init__(optimizer, last_epoch, param=param)
        self.base_lrs = bases

    def _plan(self) -> dict[str, list[Schedule]]:
        plans = {self.param: self._triangles(self._lows, self.max_lrs)}
        if self.cycle_momentum:
            plans[self._momentum] = self._triangles(self.max_momentums, self.base_momentums)
        return plans

    def _triangles(self, starts: Sequence[float], ends: Sequence[float]) -> list[Schedule]:
        if self._scale_fn is not None:
            ratio = 1.0
        else:
            ratio = {"triangular": 1.0, "triangular2": 0.5, "exp_range": self.gamma}[self.mode]
        by_cycle = float(self.scale_mode == "cycle")
        shape = (self.step_ratio * self.total_size, self.total_size, *split_ratio(ratio), by_cycle)
        return [absolute(call("triangular", start, end, *shape)) for start, end in zip(starts, ends, strict=True)]

    def _next_value(self, param: str, group: int, anew: bool) -> float:
        value = super()._next_value(param, group, anew)
        if self._scale_fn is None:
            return value
        start = (self._lows if param == self.param else self.max_momentums)[group]
        count = self._work.position
        return start + (value - start) * self._scale_fn(
            1 + count // self.total_size if self.scale_mode == "cycle" else count
        )

    def _start(self) -> None:
        super()._start()
        self._work.is_on_host = self._scale_fn is not None

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        held = dict(state_dict)
        custom = held.pop("_scale_fn_custom", None)
        self._lows = list(held.get("base_lrs", self._lows))
        super()._load(held)
        if custom is not None and self._scale_fn is not None:
            vars(self._scale_fn).update(custom)


@checked
class OneCycleLR(_CycleLR):
    """One cycle (Smith & Topin 2017, arXiv:1708.07120), as `torch.optim.lr_scheduler.OneCycleLR`.

    A group has "max_lr" and "min_lr" besides "initial_lr".

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.OneCycleLR(opt, max_lr=1.0, total_steps=10, cycle_momentum=False)
        >>> [round(value, 3) for value in scheduler.values(10)]
        [0.04, 0.52, 1.0, 0.95, 0.812, 0.611, 0.389, 0.188, 0.05, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Values,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: Values = 0.85,
        max_momentum: Values = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is not None:
            self.total_steps = _positive("total_steps", total_steps)
        elif epochs is not None and steps_per_epoch is not None:
            self.total_steps = _positive("epochs", epochs) * _positive("steps_per_epoch", steps_per_epoch)
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        share: Any = pct_start
        if not isinstance(share, float) or not 0 <= share <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._pct_start, self._three_phase, self._anneal_func_type = pct_start, three_phase, anneal_strategy
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, _of_groups("max_lr", optimizer, max_lr), strict=True):
                group[f"initial_{param}"] = top / div_factor
                group[f"max_{param}"] = top
                group[f"min_{param}"] = top / div_factor / final_div_factor
        self.cycle_momentum = cycle_momentum
        self._prepare_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch, param=param)

    def _plan(self) -> dict[str, list[Schedule]]:
        groups = self.optimizer.param_groups
        names = [f"{kind}_{self.param}" for kind in ("initial", "max", "min")]
        plans = {self.param: [self._phases(*(group[name] for name in names)) for group in groups]}
        if self.cycle_momentum:
            bounds = [(group["max_momentum"], group["base_momentum"]) for group in groups]
            plans[self._momentum] = [self._phases(high, low, high) for high, low in bounds]
        return plans

    def _bases(self, param: str) -> list[float]:
        return [1.0] * len(self.optimizer.param_groups)  # all is in the groups

    def _phases(self, first: float, middle: float, last: float) -> Schedule:
        ends = [self._pct_start * self.total_steps - 1, self.total_steps - 1]
        values = [first, middle, last]
        if self._three_phase:
            ends.insert(1, 2 * self._pct_start * self.total_steps - 2)
            values.insert(2, first)
        curve: Curve = "cosine" if self._anneal_func_type == "cos" else "linear"
        phases: list[tuple[float, Schedule]] = []
        begin = 0.0
        for start, end, until in zip(values, values[1:], ends, strict=False):
            # torch has a phase hold at its end, and the next one begin after it: there they are equal, if it has steps.
            if until != begin:
                count = math.ceil(begin)  # a device is exact in whole numbers
                phases.append((count, ramp(start, end, until - begin, curve, until=until - count)))
            elif not begin:
                raise DividesByZeroError("OneCycleLR: pct_start times total_steps is 1: the first phase has no step")
            begin = until
        return absolute(joined(phases))

    def _move(self, epoch: float | None) -> None:
        count = self.last_epoch + 1 if epoch is None else epoch
        if count > self.total_steps:
            raise ValueError(f"Tried to step {count} times. The specified number of total steps is {self.total_steps}")
        super()._move(epoch)


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")
    return value

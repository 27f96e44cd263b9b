"""Torch's schedulers of one formula, and those of a function."""

from __future__ import annotations

import sys
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..formulas import Schedule, call, geometric, hold, joined, ramp
from ..optimizer import Optimizer
from .arguments import DividesByZeroError, checked
from .scheduler import LRScheduler
from .scheduler_set import get_option, schedulers_of

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CurriculumLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
]

Function = Callable[[int], float]


class _FunctionLR(LRScheduler):
    """Values of Python functions, of one or of one for each group. A step costs one write of 4 bytes for each group."""

    _left_out = LRScheduler._left_out | {"lr_lambdas"}

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Function | list[Function], last_epoch: int = -1, *, param: str = "lr"
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, last_epoch, param=param)

    def state_dict(self) -> dict[str, Any]:
        """Return the state: without functions, but with the attributes of other callables."""
        kept = [
            None if isinstance(function, types.FunctionType) else dict(vars(function)) for function in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": kept}

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        super()._load(state_dict)
        for function, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if attributes is not None:
                vars(function).update(attributes)


@checked
class LambdaLR(_FunctionLR):
    """The first value times a function of `last_epoch`, as `torch.optim.lr_scheduler.LambdaLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.LambdaLR(opt, lambda count: 1.0 / (1 + count))
        >>> [round(value, 3) for value in scheduler.values(4)]
        [1.0, 0.5, 0.333, 0.25]
    """

    def get_lr(self) -> list[float]:
        """The values for the groups at `last_epoch`."""
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def values(self, steps: int, group: int = 0) -> list[float]:
        """The values of the first steps for a group."""
        return [self.base_lrs[group] * self.lr_lambdas[group](count) for count in range(steps)]


@checked
class MultiplicativeLR(_FunctionLR):
    """The value so far times a function of `last_epoch`, as `torch.optim.lr_scheduler.MultiplicativeLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.MultiplicativeLR(opt, lambda count: 0.5)
        >>> scheduler.step(); scheduler.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float]:
        """The values for the groups at `last_epoch`."""
        values = [get_option(group, self.param) for group in self.optimizer.param_groups]
        if self._is_initial:
            return values
        return [value * function(self.last_epoch) for function, value in zip(self.lr_lambdas, values, strict=False)]


class _MultipleLR(LRScheduler):
    """Each value is a multiple of the one before."""

    _chains = _multiplies = True


def _until(start: float, end: float, steps: float, power: float = 1.0) -> Schedule:
    """Return a ramp from `start` to `end`; over less than one step it is `start` throughout."""
    return ramp(start, end if steps >= 1 else start, steps, power=power)


@checked
class StepLR(_MultipleLR):
    """Times gamma every `step_size` steps, as `torch.optim.lr_scheduler.StepLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> ow.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5).values(5)
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1, *, param: str = "lr"
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, param=param)

    def _schedule(self, group: int) -> Schedule:
        every, _ = float(self.step_size).as_integer_ratio()  # the steps that are multiples of it
        return geometric(1.0, self.gamma, abs(every), stairs=True)


@checked
class MultiStepLR(_MultipleLR):
    """Times gamma at each milestone, as `torch.optim.lr_scheduler.MultiStepLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> ow.optim.lr_scheduler.MultiStepLR(opt, [1, 3], gamma=0.5).values(5)
        [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, param=param)

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        counts = state_dict.get("milestones", self.milestones)
        milestones = Counter({int(milestone): count for milestone, count in counts.items()})  # keys of JSON are text
        super()._load({**state_dict, "milestones": milestones})

    def _schedule(self, group: int) -> Schedule:
        # A count that is negative or not whole never comes.
        reached = sorted(count for count in self.milestones.elements() if count >= 0 and count % 1 == 0)
        begins = sorted({0, *reached})
        factors = [self.gamma ** bisect_right(reached, begin) for begin in begins]
        return joined(zip(begins, map(hold, factors), strict=True))


@checked
class ConstantLR(_MultipleLR):
    """Times a factor for `total_iters` steps, as `torch.optim.lr_scheduler.ConstantLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> ow.optim.lr_scheduler.ConstantLR(opt, factor=0.5, total_iters=2).values(4)
        [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch, param=param)

    def _schedule(self, group: int) -> Schedule:
        end = self.total_iters
        comes = end > 0 and end % 1 == 0  # a step that does not come ends nothing
        return joined([(0, hold(self.factor)), *([(end, hold(1.0))] if comes else [])])


@checked
class LinearLR(_MultipleLR):
    """Times a factor on a straight line, as `torch.optim.lr_scheduler.LinearLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> ow.optim.lr_scheduler.LinearLR(opt, start_factor=0.5, total_iters=2).values(4)
        [0.5, 0.75, 1.0, 1.0]
    """

    _keeps_value = True

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch, param=param)

    def _schedule(self, group: int) -> Schedule:
        return _until(self.start_factor, self.end_factor, self.total_iters)


@checked
class ExponentialLR(_MultipleLR):
    """Times gamma at every step, as `torch.optim.lr_scheduler.ExponentialLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> ow.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5).values(4)
        [1.0, 0.5, 0.25, 0.125]
    """

    _keeps_value = True

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1, *, param: str = "lr") -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch, param=param)

    def _schedule(self, group: int) -> Schedule:
        return geometric(1.0, self.gamma)


@checked
class PolynomialLR(_MultipleLR):
    """Times (1 - t / total_iters)^power, as `torch.optim.lr_scheduler.PolynomialLR`.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> [round(value, 3) for value in ow.optim.lr_scheduler.PolynomialLR(opt, total_iters=4, power=2.0).values(6)]
        [1.0, 0.562, 0.25, 0.062, 0.0, 0.0]
    """

    _keeps_value = True

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1, *, param: str = "lr"
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch, param=param)

    def _schedule(self, group: int) -> Schedule:
        return _until(1.0, 0.0, self.total_iters, self.power)


@checked
class CosineAnnealingLR(LRScheduler):
    """eta_min + (first value - eta_min) (1 + cos(pi t / T_max)) / 2, as `torch.optim.lr_scheduler`'s.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> [round(value, 3) for value in ow.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4).values(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    _chains = _keeps_value = True

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1, *, param: str = "lr"
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch, param=param)
        self._multiplies = eta_min == 0

    def _next_value(self, param: str, group: int, anew: bool) -> float:
        if group >= len(self.base_lrs) and (self._work.position - 1 - self.T_max) % (2 * self.T_max) == 0:
            raise self._too_few()
        return super()._next_value(param, group, anew)

    def _on_minimum(self, param: str, group: int) -> None:
        if group >= len(self.base_lrs):
            return
        bases, first = self._work.bases[param], self.base_lrs[group]  # to which it rises again
        if bases[group] != first or len(schedulers_of(self.optimizer).on(param)) > 1:
            bases[group] = first
            schedulers_of(self.optimizer).rebased(param, group)

    def _offset(self) -> float:
        return float(self.eta_min)

    def _schedule(self, group: int) -> Schedule:
        if not self.T_max:  # of a state dict
            raise DividesByZeroError("T_max is 0")
        return ramp(1.0, 0.0, abs(self.T_max), "cosine", offset=self.eta_min)


@checked
class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing with a restart after T_0 steps, then T_0 T_mult, ..., as torch's. Epochs may be fractions.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> [round(value, 3) for value in ow.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=2).values(5)]
        [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    _refuses = frozenset({"eta_min"})

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        *,
        param: str = "lr",
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        lowest: Any = eta_min
        if not isinstance(lowest, (float, int)) or not abs(lowest) <= sys.float_info.max:
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch, param=param)

    def _cycles(self) -> list[tuple[int, int]]:
        """Begin and length of those that can be counted; of equal ones the first."""
        cycles = [(0, self.T_0)]
        while self.T_mult > 1 and sum(cycles[-1]) < 1 << 24:
            begin, length = cycles[-1]
            cycles.append((begin + length, length * self.T_mult))
        return cycles

    def _schedule(self, group: int) -> Schedule:
        return call("restarts", self.T_0, self.T_mult, self.eta_min)

    def _move(self, epoch: float | None) -> None:
        if epoch is not None and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        work = self._work
        work.position = work.position + 1 if epoch is None else epoch
        self.last_epoch = self.last_epoch + 1 if epoch is None else int(epoch)
        begin, self.T_i = next(cycle for cycle in reversed(self._cycles()) if cycle[0] <= work.position)
        self.T_cur = work.position - begin
        if self.T_mult == 1:
            self.T_cur %= self.T_0

    def _position(self) -> float:
        begin = next((begin for begin, length in self._cycles() if length == self.T_i), 0)
        return begin + self.T_cur


@checked
class CurriculumLR(LRScheduler):
    """Values in stages, each ended by `advance()`; for stages of known length see `schedules.curriculum`.

    Args:
        optimizer: whose option it is.
        stages: the value of each.
        last_epoch: see `LRScheduler`.
        param: the option.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.CurriculumLR(opt, [0.1, 0.01])
        >>> scheduler.step(); scheduler.get_last_lr()
        [0.1]
        >>> scheduler.advance(); scheduler.step(); scheduler.get_last_lr()
        [0.01]
    """

    def __init__(self, optimizer: Optimizer, stages: list[float], last_epoch: int = -1, *, param: str = "lr") -> None:
        self.stages = list(stages)
        self.stage = 0
        super().__init__(optimizer, last_epoch, param=param)

    def advance(self) -> None:
        """Go to the next stage from the next step on; the last stage remains."""
        self.stage = min(self.stage + 1, len(self.stages) - 1)

    def get_lr(self) -> list[float]:
        """The values for the groups now."""
        return [self.stages[self.stage]] * len(self.base_lrs)

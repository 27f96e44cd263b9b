"""Torch's schedulers of schedulers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UnsupportedError
from ..formulas import Schedule
from ..optimizer import Optimizer
from ..schedules import join_schedules
from .arguments import checked
from .plateau import ReduceLROnPlateau
from .scheduler import LRScheduler
from .scheduler_set import get_option, schedulers_of, set_option

__all__ = ["ChainedScheduler", "SequentialLR"]


def _check(owner: LRScheduler, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    name = type(owner).__name__
    for number, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {number} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                f"specified when calling `step`, but got one at index {number} in the given schedulers sequence."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {number}, which has another one."
            )


def _innermost(schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    """Return the schedulers, and for those that are composed the ones of which they are."""
    return [part for scheduler in schedulers for part in getattr(scheduler, "_parts", [scheduler])]


class _ComposedLR(LRScheduler):
    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        """Return the state; "_schedulers" has that of each scheduler."""
        return {**super().state_dict(), "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super()._load(state_dict)


@checked
class SequentialLR(_ComposedLR):
    """One scheduler after the other, from milestone to milestone, as `torch.optim.lr_scheduler.SequentialLR`.

    On a device all of them are one formula, where each has one.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.optim.lr_scheduler import ExponentialLR, LinearLR, SequentialLR
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> parts = [LinearLR(opt, start_factor=0.5, total_iters=2), ExponentialLR(opt, gamma=0.5)]
        >>> SequentialLR(opt, parts, milestones=[2]).values(5)
        [0.5, 0.75, 1.0, 0.5, 0.25]
    """

    _chains = True

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check(self, optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self._first_epoch = last_epoch + 1
        self._parts = _innermost(schedulers)
        for group in optimizer.param_groups:
            set_option(group, schedulers[0].param, group[f"initial_{schedulers[0].param}"])
        for part in self._parts:
            part.last_epoch -= 1
            part._work.position -= 1
        schedulers_of(optimizer).remove(schedulers)
        super().__init__(optimizer, -1, param=schedulers[0].param)

    _left_out = LRScheduler._left_out | {"_parts", "_first_epoch"}

    def _plan(self) -> dict[str, list[Schedule]]:
        plans = [scheduler._work.plans for scheduler in self._schedulers]
        if any(plan.keys() != {self.param} for plan in plans):
            return {}
        of_groups = zip(*(plan[self.param] for plan in plans), strict=True)
        if any(schedule.is_noisy for plan in plans for schedule in plan[self.param]):
            return {}
        return {self.param: [join_schedules(schedules, self._milestones) for schedules in of_groups]}

    def _start(self) -> None:
        initial = self._schedulers[bisect_right(self._milestones, 0)]
        self._work.plans = self._plan()
        self._work.is_on_host = len(self._parts) > len(self._schedulers)
        for param in self._work.plans:
            self._work.bases[param] = list(self.base_lrs)
        self.last_epoch = self._first_epoch
        self._work.position = self.last_epoch
        initial._start()
        self._last_lr = initial.get_last_lr()
        self._step_count = 0
        self._is_initial = False

    def _grow(self) -> None:
        bases = self._work.bases.get(self.param, [])
        missing = len(self.optimizer.param_groups) - len(bases)
        if bases and missing:
            bases += [0.0] * missing  # not used: the scheduler that steps has its own
            self._work.is_on_host = True
            schedulers_of(self.optimizer).drop_table()

    def _advance(self, epoch: float | None) -> dict[str, list[float]]:
        self._move(epoch)
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        scheduler._grow()
        is_new = number > 0 and self._milestones[number - 1] == self.last_epoch
        values = scheduler._advance(0 if is_new else None)
        self._last_lr = scheduler.get_last_lr()
        return values

    def _rebase(self, param: str, group: int) -> bool:
        return False  # the next scheduler begins with the first value again


class ChainedScheduler(_ComposedLR):
    """Several schedulers, each of which changes what the one before has made, as torch's `ChainedScheduler`.

    On a device, all that multiply take one dispatch together.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> both = ChainedScheduler([ConstantLR(opt, factor=0.5, total_iters=2), ExponentialLR(opt, gamma=0.5)])
        >>> both.step(); both.get_last_lr()
        [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        _check(self, optimizer, schedulers)
        self._schedulers = list(schedulers)
        self._parts = _innermost(schedulers)
        self.optimizer = optimizer
        self.param = schedulers[-1].param
        self._note()

    _left_out = LRScheduler._left_out | {"_parts"}

    def _note(self) -> None:
        self._last_lr = [get_option(group, self.param) for group in self.optimizer.param_groups]

    @property
    def _stepped(self) -> list[LRScheduler]:
        return [part for scheduler in self._schedulers for part in getattr(scheduler, "_stepped", [scheduler])]

    @property
    def params(self) -> tuple[str, ...]:
        """The options that they set."""
        return tuple(dict.fromkeys(param for scheduler in self._stepped for param in scheduler.params))

    @property
    def is_on_device(self) -> bool:
        """The device computes the values itself."""
        return all(scheduler.is_on_device for scheduler in self._stepped)

    def step(self, epoch: float | None = None) -> None:
        """Step each scheduler."""
        schedulers_of(self.optimizer).step(self._stepped, epoch)
        self._note()

    def get_last_lr(self) -> list[float]:
        """Return the values that were set last."""
        return self._schedulers[-1].get_last_lr()

    def _resume(self) -> None:
        """Do nothing: the schedulers have resumed by themselves."""

    def values(self, steps: int, group: int = 0) -> list[float]:
        """Return the values of the first steps for a group, if all schedulers multiply.

        Raises:
            UnsupportedError: not all multiply.
        """
        if not all(scheduler._multiplies for scheduler in self._stepped):
            raise UnsupportedError(
                "these schedulers have no common formula: step them, and read get_last_lr() after each step"
            )
        values = [self._stepped[0].base_lrs[group]] * steps
        for scheduler in self._stepped:
            factors = scheduler._work.plans[scheduler.param][group].values(steps)
            values = [value * factor for value, factor in zip(values, factors, strict=True)]
        return values

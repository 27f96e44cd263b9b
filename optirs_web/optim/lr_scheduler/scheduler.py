"""The base of all schedulers: an option of an optimizer follows a schedule, one step at a time."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...errors import CheckpointError, UnsupportedError
from ..formulas import Schedule, plot_values
from ..optimizer import Optimizer
from .arguments import checked
from .scheduler_set import get_option, schedulers_of, set_option

__all__ = ["LRScheduler", "ScheduleLR"]


@dataclass
class _Work:
    """The state of a scheduler besides torch's attributes: by option, for each group.

    Attributes:
        plans: the formulas; empty for a scheduler that has `get_lr` only.
        bases: the bases of the formulas.
        computed: their last results. The option has another value where others set it too.
        position: the count that the formulas are of.
        is_on_host: the device cannot compute the values any more: the option was set by others where the formula is 0.
    """

    plans: dict[str, list[Schedule]] = field(default_factory=dict)
    bases: dict[str, list[float]] = field(default_factory=dict)
    computed: dict[str, list[float]] = field(default_factory=dict)
    position: float = -1
    is_on_host: bool = False


class LRScheduler:
    """Sets an option of every group at each `step()`, as torch's. A step may be in a compiled step.

    A subclass has a formula, or `get_lr`, which computes the values from `last_epoch`, `base_lrs` and the groups.

    Args:
        optimizer: whose option it is.
        last_epoch: the epoch to continue from; -1 is the beginning.
        param: the option: "lr", "weight_decay", "momentum", "beta1" (the first of `betas`), ...

    Attributes:
        base_lrs: of each group, the first value; the group has it as "initial_lr" (or "initial_" and the option).
        last_epoch: steps since the beginning.
    """

    _chains: bool = False
    """Each value is computed from the one before, so that changes by others remain."""
    _keeps_value: bool = False
    """The first value is the group's, where it continues from an epoch."""
    _multiplies: bool = False
    """Each value is a multiple of the one before."""

    _left_out: ClassVar[frozenset[str]] = frozenset({"optimizer", "_work", "_schedulers", "_chains", "_multiplies"})

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1, *, param: str = "lr") -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        self.param = param
        initial = f"initial_{param}"
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault(initial, get_option(group, param))
            elif initial not in group:
                raise KeyError(
                    f"param '{initial}' is not specified in param_groups[{number}] when resuming scheduler with "
                    "last_epoch >= 0"
                )
        self.base_lrs = [float(group[initial]) for group in optimizer.param_groups]
        self.last_epoch: int = last_epoch
        self._work = _Work()
        self._start()
        schedulers_of(optimizer).add(self)

    @property
    def params(self) -> tuple[str, ...]:
        """The options that it sets."""
        return tuple(self._work.plans) or (self.param,)

    @property
    def is_on_device(self) -> bool:
        """The device computes the values itself; otherwise the host writes them there, 4 bytes for each."""
        return schedulers_of(self.optimizer).can_be_on_device(self)

    # What a subclass defines.

    def _plan(self) -> dict[str, list[Schedule]]:
        """Return by option the formulas, one for each group."""
        plans = [self._schedule(group) for group in range(len(self.optimizer.param_groups))]
        return {} if None in plans else {self.param: plans}  # type: ignore[dict-item]

    def _schedule(self, group: int) -> Schedule | None:
        """Return the formula for a group; None if there is only `get_lr`."""
        return None

    def _offset(self) -> float:
        """Return the offset of the formulas: they multiply the difference between the base and this value."""
        return 0.0

    def _bases(self, param: str) -> list[float]:
        """Return the initial base of the formulas for each group."""
        return list(self.base_lrs)

    def get_lr(self) -> list[float]:
        """Return the values for the groups at `last_epoch`. A subclass without a formula defines it."""
        if not self._work.plans:
            raise UnsupportedError(
                f"{type(self).__name__} has no formula: define get_lr(), which returns a value for each group"
            )
        return self.get_last_lr()

    def get_last_lr(self) -> list[float]:
        """Return the values that were set last."""
        return list(self._last_lr)

    # Steps.

    def _start(self) -> None:
        """Set the first values."""
        work = self._work
        work.plans = self._plan()
        work.position = self.last_epoch
        for param in work.plans:
            work.bases[param] = self._bases(param)
            if self._chains and self.last_epoch == -1:
                work.bases[param] = [get_option(group, param) for group in self.optimizer.param_groups]
            self._compute(param)
        self._step_count = 0
        self._is_initial = True
        for param, values in self._advance(None).items():
            schedulers_of(self.optimizer).set(param, values)
        self._is_initial = False

    def _compute(self, param: str) -> None:
        work = self._work
        pairs = zip(work.plans[param], work.bases[param], strict=False)
        work.computed[param] = [plan(max(work.position, 0), base) for plan, base in pairs]

    # Groups that are added later: a chain continues from their values, as torch's; other formulas have no first value.

    def reach(self, param: str) -> int:
        """Return the number of parameter groups for which it sets an option."""
        return len(self._work.bases.get(param, self.optimizer.param_groups))

    def _grow(self) -> None:
        work, groups = self._work, self.optimizer.param_groups
        if all(len(bases) == len(groups) for bases in work.bases.values()):
            return
        work.plans = self._plan()
        for param, bases in work.bases.items():
            firsts = self._bases(param)
            for group in range(len(bases), len(groups if self._chains else firsts)):
                if self._chains:
                    value = get_option(groups[group], param)
                    bases.append(value)
                    result = work.plans[param][group](work.position, value)
                    self._solve(param, group, value, result)
                    if result == self._offset():  # as of any base: the host continues from the value
                        work.is_on_host = True
                else:
                    bases.append(firsts[group])
            self._compute(param)
        schedulers_of(self.optimizer).drop_table()

    def _too_few(self) -> ValueError:
        return ValueError(f"{type(self).__name__} has no initial value for the added group: make a new one")

    def step(self, epoch: float | None = None) -> None:
        """Advance by one; or to an epoch, by the formula alone."""
        schedulers_of(self.optimizer).step([self], epoch)

    def _advance(self, epoch: float | None) -> dict[str, list[float]]:
        """Advance, and return the values by option."""
        before = self.last_epoch, self._work.position
        self._move(epoch)
        try:
            values = {param: self._next(param, epoch) for param in self._work.plans} or {
                self.param: self._values_of_get_lr()
            }
            if len(values[self.param]) < len(self.optimizer.param_groups):
                raise self._too_few()
        except BaseException:
            self.last_epoch, self._work.position = before
            raise
        self._step_count += 1
        self._last_lr = values[self.param]
        return values

    def _move(self, epoch: float | None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else int(epoch)
        self._work.position = self.last_epoch

    def _values_of_get_lr(self) -> list[float]:
        return [float(value) for value in self.get_lr()]

    def _next(self, param: str, epoch: float | None) -> list[float]:
        work = self._work
        if epoch is not None and self._chains:
            work.bases[param] = self._bases(param)
        values = [self._next_value(param, group, anew=epoch is not None) for group in range(self.reach(param))]
        self._compute(param)
        for group, value in enumerate(work.computed[param]):
            if self._chains and value == self._offset():
                self._on_minimum(param, group)
        return values

    def _on_minimum(self, param: str, group: int) -> None:
        """Handle a value of 0, or of the offset, in which no changes by others remain."""

    def _next_value(self, param: str, group: int, anew: bool) -> float:
        work = self._work
        plan, bases, position = work.plans[param][group], work.bases[param], work.position
        current = get_option(self.optimizer.param_groups[group], param)
        value = plan(position, bases[group])
        if not self._chains or anew or (self._is_initial and position == 0):
            return value
        if self._is_initial and self._keeps_value:
            self._solve(param, group, current, value)
            return current
        before = work.computed[param][group]
        if current == before:
            return value
        if before != self._offset():
            self._solve(param, group, current, before)
            return plan(position, bases[group])
        # The value before was the offset, of which there is no multiple: the difference is added.
        added = value - self._offset()
        if added:
            self._solve(param, group, current + added, value)
            return plan(position, bases[group])
        return current

    def _solve(self, param: str, group: int, value: float, result: float) -> None:
        """Set the base for which the formula gives `value`, where it gives `result` now."""
        bases, offset = self._work.bases[param], self._offset()
        if result != offset:
            bases[group] = offset + (bases[group] - offset) * ((value - offset) / (result - offset))

    def _rebase(self, param: str, group: int) -> bool:
        """Continue from the group's value; return False if the formula cannot."""
        before = self._work.computed[param][group]
        if before == self._offset():
            return False
        self._solve(param, group, get_option(self.optimizer.param_groups[group], param), before)
        self._compute(param)
        return True

    def _before_notice(self) -> None:
        """Prepare for a comparison of the values with those that were set."""

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return the state in torch's names."""
        return {name: value for name, value in vars(self).items() if name not in self._left_out}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict of this class, or of torch's scheduler of that name. The options keep their values.

        Raises:
            CheckpointError: it does not fit; nothing is changed then.
        """
        parts = self._with_parts()
        before = [dict(vars(part)) for part in parts]
        for part in parts:
            if hasattr(part, "_work"):
                part._work = copy.deepcopy(part._work)
        try:
            self._load(state_dict)
        except Exception as error:
            for part, attributes in zip(parts, before, strict=True):
                vars(part).clear()
                vars(part).update(attributes)
            raise CheckpointError(f"the state dict of {type(self).__name__} does not fit: {error}") from error

    def _with_parts(self) -> list[LRScheduler]:
        return [self, *(part for scheduler in getattr(self, "_schedulers", ()) for part in scheduler._with_parts())]

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        if not math.isfinite(state_dict.get("last_epoch", 0)):
            raise ValueError(f"last_epoch is {state_dict['last_epoch']}")
        for name in state_dict:
            if name not in vars(self) and hasattr(self, name):
                raise ValueError(f"{type(self).__name__} has no '{name}'")
        vars(self).update({name: value for name, value in state_dict.items() if name not in self._left_out})
        self._resume()
        if hasattr(self, "_work") and not all(
            math.isfinite(value) for values in self._work.computed.values() for value in values
        ):
            raise ValueError(f"'{self.param}' would not be finite")

    def _resume(self) -> None:
        work = self._work
        work.plans = self._plan()
        work.position = self._position()
        for param in work.plans:
            work.bases[param] = self._bases(param)
            self._compute(param)
        schedulers_of(self.optimizer).drop_table()

    def _position(self) -> float:
        return self.last_epoch

    # Values.

    def values(self, steps: int, group: int = 0) -> list[float]:
        """Return the values of the first steps for a group, if nobody else changes them.

        Raises:
            UnsupportedError: there is no formula.
        """
        if not self._work.plans:
            raise UnsupportedError(
                f"{type(self).__name__} has no formula: step it, and read get_last_lr() after each step"
            )
        return self._work.plans[self.param][group].values(steps, self.base_lrs[group])

    def plot(self, steps: int, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the values of the first steps; return matplotlib's Figure, and write it to `path` if that is given."""
        return plot_values(self.values(steps), path, self.param)


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


@checked
class ScheduleLR(LRScheduler):
    """Any schedule, for any option.

    Args:
        optimizer: whose option it is.
        schedule: a schedule of `schedules`.
        last_epoch: the epoch to continue from; -1 is the beginning.
        param: the option.
        relative: the schedule is a factor of the option's first value, and not the value itself.
        factors: a factor for each group: see `schedules.layerwise_decay`.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.optim import lr_scheduler, schedules
        >>> opt = ow.optim.AdamW([ow.Parameter([1.0], device="cpu")])
        >>> decay = lr_scheduler.ScheduleLR(opt, schedules.linear_schedule(0.1, 0.0, 4), param="weight_decay")
        >>> decay.step()
        >>> round(opt.param_groups[0]["weight_decay"], 4)
        0.075
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        last_epoch: int = -1,
        *,
        param: str = "lr",
        relative: bool = False,
        factors: list[float] | None = None,
    ) -> None:
        _check_optimizer(optimizer)
        if factors is not None and len(factors) != len(optimizer.param_groups):
            raise ValueError(f"expected {len(optimizer.param_groups)} factors, got {len(factors)}")
        self.factors = factors
        self._follow(schedule, relative)
        if relative and factors is not None and last_epoch == -1:
            for group, factor in zip(optimizer.param_groups, factors, strict=True):
                set_option(group, param, factor * get_option(group, param))
        super().__init__(optimizer, last_epoch, param=param)

    _left_out = LRScheduler._left_out | {"schedule"}

    def _schedule(self, group: int) -> Schedule:
        return self.schedule

    def _bases(self, param: str) -> list[float]:
        return (
            super()._bases(param) if self.relative else list(self.factors or [1.0] * len(self.optimizer.param_groups))
        )

    def _follow(self, schedule: Schedule, relative: bool) -> None:
        self.schedule = schedule
        self.relative = relative
        self._chains = self._multiplies = relative and not schedule.is_noisy

    def change(
        self, schedule: Schedule | None = None, first: float | None = None, last_epoch: int | None = None
    ) -> None:
        """Set the option by another schedule, with another first value, or at another count.

        Args:
            schedule: None keeps the present one.
            first: what a relative schedule multiplies, before the factors of the groups; None keeps it.
            last_epoch: None keeps it.
        """
        if schedule is not None:
            self._follow(schedule, self.relative)
        if first is not None:
            self.base_lrs = [first * factor for factor in self.factors or [1.0] * len(self.base_lrs)]
        if last_epoch is not None:
            self.last_epoch = last_epoch
        self._resume()
        self._last_lr = list(self._work.computed[self.param])
        schedulers_of(self.optimizer).set(self.param, self._last_lr)

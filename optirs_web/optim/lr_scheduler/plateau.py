"""Torch's scheduler that follows a metric, which may stay on the device."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, SupportsFloat

from ...errors import ShapeError, UnsupportedError
from ...runtime.buffer import View
from ...runtime.option_kernels import NOWHERE, OptionKernel, OptionTable, host_functions
from ...runtime.program import StaleProgramError
from ...tensors import Tensor, tensor
from ...wgsl import load_map_module
from ..formulas import Schedule
from ..layout import Layout
from ..optimizer import Optimizer
from .arguments import checked
from .scheduler import LRScheduler, _check_optimizer
from .scheduler_set import get_option, schedulers_of, set_option

__all__ = ["ReduceLROnPlateau"]

_FLOAT = struct.Struct("<f")
_WORST = 3e38  # stands for infinity on a device
_PROGRESS = "best", 3  # the first member of a row that is progress, and the number of such members


@cache
def _on_host() -> Mapping[str, Callable[..., Any]]:
    """Return `watch` and `reduced` of ``shaders/schedules/plateau.wgsl``, over Python's numbers."""
    return host_functions(load_map_module("schedules", "plateau", ("watch", "reduced")), "watch", "reduced")


@checked
class ReduceLROnPlateau(LRScheduler):
    """Multiplies an option by a factor when a metric has stopped improving, as torch's `ReduceLROnPlateau`.

    The metric is a number; or a tensor of one element on the optimizer's device, which is not read: the device keeps
    count from then on, and the groups have the value of before until `get_last_lr()` or `state_dict()` reads it.

    Example:
        >>> import optirs_web as ow
        >>> opt = ow.optim.SGD([ow.Parameter([1.0], device="cpu")], lr=1.0)
        >>> scheduler = ow.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0.0,
        eps: float = 1e-8,
        *,
        param: str = "lr",
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        _check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.best = float("inf") if mode == "min" else float("-inf")
        self.cooldown_counter: float = 0
        self.num_bad_epochs = 0
        self._table: OptionTable | None = None
        self._device_layout: Layout | None = None
        super().__init__(optimizer, param=param)

    _left_out = LRScheduler._left_out | {"_table", "_device_layout"}

    def _plan(self) -> dict[str, list[Schedule]]:
        return {}

    def _start(self) -> None:
        self.last_epoch = 0
        self._last_lr = self._values()

    def _values(self) -> list[float]:
        return [get_option(group, self.param) for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """True while it waits after a reduction."""
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat | Tensor, epoch: int | None = None) -> None:  # type: ignore[override]
        """Reduce the option if the metric has stopped improving. A tensor stays on the device."""
        layout = self.optimizer._layout
        is_on_device = self._table is not None or (isinstance(metrics, Tensor) and self._is_alone)
        if layout is not None and is_on_device:
            self._step_on_device(layout, metrics, epoch)
            return
        if layout is not None and layout.device.recording is not None:
            raise UnsupportedError(
                "in a compiled step the metric must be a tensor, and the option have one scheduler only"
            )
        schedulers = schedulers_of(self.optimizer)
        schedulers.notice()
        self._watch(float(metrics.item() if isinstance(metrics, Tensor) else metrics))
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        schedulers.set(self.param, self._values())
        self._last_lr = self._values()

    @property
    def _is_alone(self) -> bool:
        schedulers = schedulers_of(self.optimizer)
        words = schedulers.words_of(0, self.param)
        is_known = bool(words) and words[0].at != NOWHERE
        return schedulers.on(self.param) == [self] and is_known and schedulers.is_by_name(self.param)

    @property
    def _numbers(self) -> dict[str, float]:
        """The constants of ``shaders/schedules/plateau.wgsl`` by name: those of `watch` in order, then the others."""
        sign = 1 if self.mode == "max" else -1
        is_relative = self.threshold_mode == "rel"
        return {
            "better": sign,
            "scale": 1 + sign * self.threshold if is_relative else 1.0,
            "margin": 0.0 if is_relative else sign * self.threshold,
            "patience": self.patience,
            "cooldown": self.cooldown,
            "factor": self.factor,
            "eps": self.eps,
        }

    def _watch(self, metric: float) -> None:
        *watched, factor, eps = self._numbers.values()
        now = _on_host()["watch"](metric, self.best, self.num_bad_epochs, self.cooldown_counter, *watched)
        self.best = now.best
        self._count(now.bad_epochs, now.cooldown_left)
        if now.is_due:
            self._bound_all()
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                option = _on_host()["reduced"](get_option(group, self.param), factor, lowest, eps, True)
                if option.is_changed:
                    set_option(group, self.param, option.value)

    def _count(self, bad_epochs: float, cooldown_left: float) -> None:
        """Set the counts, which are integers as torch's where they are finite."""
        self.num_bad_epochs = int(bad_epochs)
        self.cooldown_counter = int(cooldown_left) if math.isfinite(cooldown_left) else cooldown_left

    def _bound_all(self) -> None:
        """Add bounds for groups that were added."""
        groups, bounds = len(self.optimizer.param_groups), len(self.min_lrs)
        if groups == bounds:
            return
        if self.default_min_lr is None:
            raise RuntimeError(f"`min_lrs` has {bounds} values for {groups} groups")
        self.min_lrs = [self.default_min_lr] * groups

    # On the device.

    def _step_on_device(self, layout: Layout, metrics: Any, epoch: int | None) -> None:
        device = layout.device
        recording = device.recording
        metric = metrics if isinstance(metrics, Tensor) else tensor(float(metrics), device=device)
        if metric.size != 1 or metric.device is not device:
            raise ShapeError(
                f"a metric must be one number on {device.name}, not {metric.shape} on {metric.device.name}"
            )
        if recording is None:
            schedulers_of(self.optimizer).notice()
            self.optimizer._refresh()  # so that the device has the values that it multiplies
        self._move_to(layout)
        assert self._table is not None
        self._table.follow(layout.hyper.view.buffer, self._numbers, metric.view)
        if self.param == "lr":
            schedulers_of(self.optimizer).copy_to_rates(layout)
        if recording is None:
            self._follow(epoch)
        else:
            recording.before_replay.append(partial(self._check, layout))
            recording.before_replay.append(partial(self.optimizer._check_rates, self.optimizer._rates()))
            recording.at_replay.append(self._follow)

    def _check(self, layout: Layout) -> None:
        self.optimizer._refresh()
        if layout is not self.optimizer._layout or layout is not self._device_layout:
            raise StaleProgramError("the optimizer was rebuilt; record the step again")

    def _follow(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group in range(len(self.min_lrs)):
            schedulers_of(self.optimizer).note(group, self.param, by_device=True)

    def _move_to(self, layout: Layout) -> None:
        """Make the table that the kernel needs for this layout, with the progress of the one before."""
        table, before = self._table, self._device_layout
        if before is layout and table is not None:
            return
        self._bound_all()
        schedulers, device = schedulers_of(self.optimizer), layout.device
        best = max(-_WORST, min(_WORST, self.best))
        progress = best, self.num_bad_epochs, self.cooldown_counter
        options = [
            (group, words) for group in range(len(self.min_lrs)) for words in schedulers.words_of(group, self.param)
        ]
        rows = [[*words, self.min_lrs[group], *progress] for group, words in options]
        self._table, self._device_layout = OptionTable(device, OptionKernel.of("plateau"), rows), layout
        if before is None or table is None or before.device is not device or device.lost:
            return
        for number, (group, words) in enumerate(options):
            device.copy(table.view(0, *_PROGRESS), self._table.view(number, *_PROGRESS))
            if before.hyper.scheduled.issuperset(words.written):  # only the device has the current value
                for word in words.written:
                    device.copy(before.hyper.word_view(word), layout.hyper.word_view(word))
                schedulers.note(group, self.param, by_device=True)

    def _before_notice(self) -> None:
        layout = self.optimizer._layout
        if self._table is not None and layout is not None and layout is not self._device_layout:
            self._move_to(layout)

    def _views(self) -> dict[str, View]:
        layout = self.optimizer._layout
        assert layout is not None
        assert self._table is not None
        words = [schedulers_of(self.optimizer).words_of(g, self.param)[0].at for g in range(len(self.min_lrs))]
        return {
            "progress": self._table.view(0, *_PROGRESS),
            **{str(g): layout.hyper.word_view(word) for g, word in enumerate(words)},
        }

    def _take(self, contents: Mapping[str, memoryview]) -> list[float]:
        best, bad_epochs, cooldown = contents["progress"].cast("f")
        self.best = best if abs(best) < _WORST else self.best
        self._count(bad_epochs, cooldown)
        schedulers = schedulers_of(self.optimizer)
        for number, group in enumerate(self.optimizer.param_groups[: len(self.min_lrs)]):
            value = contents[str(number)].cast("f")[0]
            if _FLOAT.pack(get_option(group, self.param)) != _FLOAT.pack(value):
                set_option(group, self.param, value, is_written=True)
            schedulers.note(number, self.param, by_device=True)
        self._last_lr = self._values()
        return list(self._last_lr)

    def _is_behind(self) -> bool:
        """Return True if the device has the current values; options that were set since are written there first."""
        if self._table is None or self.optimizer._layout is None:
            return False
        self.optimizer._refresh()
        return True

    def get_last_lr(self) -> list[float]:
        """Return the current values. Waits for the device, if it has them."""
        if not self._is_behind():
            return list(self._last_lr)
        views = self._views()
        return self._take(self._table.device.read_all(views))  # type: ignore[union-attr]

    async def get_last_lr_async(self) -> list[float]:
        """The awaitable twin of `get_last_lr`."""
        if not self._is_behind():
            return list(self._last_lr)
        return self._take(await self._table.device.read_all_async(self._views()))  # type: ignore[union-attr]

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return the state in torch's names. Waits for the device, if it has the state."""
        self.get_last_lr()
        return super().state_dict()

    def _resume(self) -> None:
        self._table = self._device_layout = None
        for group in range(len(self.min_lrs)):
            schedulers_of(self.optimizer).note(group, self.param, by_device=False)

    def values(self, steps: int, group: int = 0) -> list[float]:
        """Refused.

        Raises:
            UnsupportedError: always; there are none without the metric.
        """
        raise UnsupportedError("the values depend on the metric: step with it, and read get_last_lr() after each step")

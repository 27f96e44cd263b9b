"""The schedulers of an optimizer, and the values that they write on its device.

The host always computes the values. A device that has the formulas advances its counts and writes the values to its
table of hyper-parameters too; `HyperTable.scheduled` are the words that it writes. The host writes those without a
formula there, 4 bytes for each value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UnsupportedError, quoted
from ...runtime.buffer import Buffer, View
from ...runtime.option_kernels import NOWHERE, OptionTable, OptionWords
from ...runtime.program import NotReadyError, Program, StaleProgramError
from ...tensors import Tensor
from ..by_identity import ByIdentity
from ..groups import on_host
from ..layout import Layout
from ..schedule_tables import Scheduled, fits, schedule_table
from ..wrapper import Wrapper

if TYPE_CHECKING:
    from ..optimizer import Optimizer
    from .scheduler import LRScheduler

__all__ = ["SchedulerSet", "get_option", "schedulers_of", "set_option"]

_Option = tuple[int, str]
"""The number of a group, and the name of an option."""


def get_option(group: dict[str, Any], name: str) -> float:
    """Return an option of a group; `beta1` and `beta2` are the elements of `betas`."""
    try:
        if name not in group and name.startswith("beta"):
            return float(group["betas"][int(name.removeprefix("beta")) - 1])
        option = group[name]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(f"the optimizer has no option {quoted(name)}") from None
    return _value_of(option) if isinstance(option, Tensor) else float(option)


def set_option(group: dict[str, Any], name: str, value: float, is_written: bool = False) -> None:
    """Set an option of a group. A tensor is filled in place, unless a kernel does that (`is_written`)."""
    option = group.get(name)
    if name not in group and name.startswith("beta"):
        betas, number = list(group["betas"]), int(name.removeprefix("beta")) - 1
        betas[number] = value
        group["betas"] = tuple(betas)
    elif isinstance(option, Tensor):
        if not is_written:
            option.device.write(option.view, memoryview(struct.pack("<f", value)))
        _known.set(option, (_version(option), value, False))
    else:
        group[name] = value


_known: ByIdentity[tuple[int, float, bool]] = ByIdentity()
"""By learning rate that is a tensor: its version, its value, and True if that was read for a recording."""


def _version(rate: Tensor) -> int:
    return getattr(rate._tracked, "_version", 0)


def _learn(rate: Tensor, for_recording: bool = False) -> None:
    _known.set(rate, (_version(rate), float(rate.item()), for_recording))


def _value_of(rate: Tensor) -> float:
    """Return the value of a learning rate in a tensor: read once, and again after an assignment by the user."""
    known = _known.get(rate)
    if known is None or known[0] != _version(rate):
        if rate.device.recording is None:
            _learn(rate)
        elif known is not None and known[2]:  # and has changed again
            raise UnsupportedError("a compiled step cannot assign to an lr that a scheduler sets")
        else:
            raise NotReadyError(partial(_learn, rate, True))
        known = _known.get(rate)
        assert known is not None
    return known[1]


class _Staged(NamedTuple):
    """Values of an option that a recorded step copies: float32 that the host writes to `buffer` before each replay."""

    group: int
    names: tuple[str, ...]
    words: tuple[int, ...]
    buffer: Buffer


def schedulers_of(optimizer: Optimizer) -> SchedulerSet:
    """Return the schedulers of an optimizer; a wrapper has those of the optimizer in it."""
    while isinstance(optimizer, Wrapper):
        optimizer = optimizer.optimizer
    if optimizer._schedules is None:
        optimizer._schedules = SchedulerSet(optimizer)
    assert isinstance(optimizer._schedules, SchedulerSet)
    return optimizer._schedules


class SchedulerSet:
    """The schedulers of an optimizer, and the table with which its device follows them.

    Attributes:
        members: the schedulers, in the order in which they were made.
        params: the options that a scheduler sets.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.members: list[LRScheduler] = []
        self.params: set[str] = set()
        self._expected: dict[_Option, float] = {}
        self._table: OptionTable | None = None
        self._table_layout: Layout | None = None
        self._rows: dict[_Option, list[int]] = {}
        self._numbers: dict[int, int] = {}  # of the schedulers in the table, by id
        optimizer.register_load_state_dict_post_hook(lambda optimizer: [*map(_learn, optimizer._rates().values())])

    @property
    def layout(self) -> Layout | None:
        """The optimizer's layout, which has the table of hyper-parameters; None before it is built."""
        return self.optimizer._layout

    def add(self, scheduler: LRScheduler) -> None:
        """Add a scheduler."""
        self.members.append(scheduler)
        self.params |= set(scheduler.params)
        self.drop_table()

    def remove(self, replaced: Iterable[LRScheduler]) -> None:
        """Remove schedulers that another one composes."""
        gone = {id(scheduler) for scheduler in replaced}
        self.members = [scheduler for scheduler in self.members if id(scheduler) not in gone]
        self.drop_table()

    def drop_table(self) -> None:
        """Drop the device's table, after a change that is not in it."""
        if self._table is not None:
            self._table.retire()
        self._table = None

    def on(self, param: str) -> list[LRScheduler]:
        """Return the schedulers that set an option."""
        return [scheduler for scheduler in self.members if param in scheduler.params]

    # Values.

    def set(self, param: str, values: Sequence[float], by_device: bool = False, is_recorded: bool = False) -> None:
        """Set an option of every group; `by_device`: the device writes the same values."""
        for group, value in enumerate(values):
            set_option(self.optimizer.param_groups[group], param, value, by_device or is_recorded)
            self.note(group, param, by_device)

    def note(self, group: int, param: str, by_device: bool) -> None:
        """Note that the current value is the scheduled one, on the device too if `by_device`."""
        self._expected[group, param] = get_option(self.optimizer.param_groups[group], param)
        if self.layout is not None:
            words = [word for option_words in self.words_of(group, param) for word in option_words.written]
            change = self.layout.hyper.scheduled.update if by_device else self.layout.hyper.scheduled.difference_update
            change(words)

    def notice(self) -> None:
        """Have the schedules continue from the values of options that were changed by others."""
        for scheduler in self.members:
            scheduler._before_notice()
        for (group, param), expected in self._expected.items():
            if get_option(self.optimizer.param_groups[group], param) != expected:
                self.note(group, param, by_device=False)
                self._continue_from(group, param)

    def _continue_from(self, group: int, param: str) -> None:
        members = [
            scheduler for scheduler in self.on(param) if scheduler._work.plans and group < scheduler.reach(param)
        ]
        if not members or not members[0]._chains:
            return
        if len(members) == 1 and not members[0]._rebase(param, group):
            self._leave_to_host(members)
        self._write_base(group, param, members)

    def rebased(self, param: str, group: int) -> None:
        """Write the base of a formula that was reset to its first base."""
        members = self.on(param)
        if len(members) > 1:
            self._leave_to_host(members)
        self._write_base(group, param, members)

    def _write_base(self, group: int, param: str, members: Sequence[LRScheduler]) -> None:
        rows = self._rows.get((group, param), []) if self._table is not None else []
        if rows:
            base = self._base(group, param, members)
            for row in rows:
                if self._table is not None:
                    self._table.set(row, "base", base)

    def _base(self, group: int, param: str, members: Sequence[LRScheduler]) -> float:
        """Return the base of a group's option that the device applies the formulas to; 0.0 where their product is 0."""
        if len(members) == 1:
            return members[0]._work.bases[param][group]
        factor = 1.0
        for scheduler in members:
            factor *= scheduler._work.plans[param][group](scheduler._work.position)
        if not factor:
            self._leave_to_host(members)
            return 0.0
        return get_option(self.optimizer.param_groups[group], param) / factor

    def _leave_to_host(self, members: Sequence[LRScheduler]) -> None:
        for scheduler in members:
            scheduler._work.is_on_host = True
        self.drop_table()

    # The device.

    def words_of(self, group: int, param: str) -> list[OptionWords]:
        """Return the words of the table of hyper-parameters that hold an option of a group: one entry for each row."""
        layout = self.layout
        names = () if layout is None else layout.rule.hyper
        members = [names.index(name) if name in names else NOWHERE for name in _names(param)]
        if layout is None or members == [NOWHERE] * 3:
            return []
        return [
            OptionWords(*(word if word == NOWHERE else word + row * len(names) for word in members))
            for row in layout.hyper_rows(group)
        ]

    def dependents(self, param: str) -> tuple[str, ...]:
        """Return the members of Hyper that change with an option."""
        optimizer = self.optimizer
        group = dict(on_host(optimizer.param_groups[0]))
        before = optimizer.hyper(group)
        set_option(group, param, 0.5 * get_option(group, param) + 0.1)
        after = optimizer.hyper(group)
        return tuple(name for name in before if before[name] != after[name])

    def can_be_on_device(self, scheduler: LRScheduler) -> bool:
        """Return True if the device has its formula, and those of all others that set the same options."""
        if scheduler._work.is_on_host or not scheduler._work.plans or self.layout is None:
            return False
        return all(self._is_formula(param) for param in scheduler.params)

    def _is_formula(self, param: str) -> bool:
        members = self.on(param)
        if len(members) > 1 and not all(
            scheduler._multiplies and not scheduler._work.is_on_host for scheduler in members
        ):
            return False
        chains = zip(*(scheduler._work.plans[param] for scheduler in members), strict=False)
        return (
            self.is_by_name(param)
            and len({scheduler.reach(param) for scheduler in members}) == 1
            and all(map(fits, chains))
        )

    def is_by_name(self, param: str) -> bool:
        """Return True if only the members of Hyper that are named for an option depend on it."""
        return bool(self.words_of(0, param)) and set(self.dependents(param)) <= set(_names(param))

    def _ready(self) -> OptionTable | None:
        """Return the table, rebuilt if anything has changed; None if the device has no formula."""
        layout = self.layout
        if self._table is not None and self._table_layout is layout:
            return self._table
        self.drop_table()
        bases = {}
        for param in self.params:
            setters = self.on(param)
            if all(map(self.can_be_on_device, setters)):
                for group in range(setters[0].reach(param)):
                    bases[group, param] = self._base(group, param, setters)
        members = [scheduler for scheduler in self.members if self.can_be_on_device(scheduler)]
        self._numbers = {id(scheduler): number for number, scheduler in enumerate(members)}
        self._rows = {}
        rows: list[Scheduled] = []
        for param in dict.fromkeys(param for scheduler in members for param in scheduler.params):
            setters = [scheduler for scheduler in members if param in scheduler.params]
            for group in range(setters[0].reach(param)):
                chain = [(self._numbers[id(scheduler)], scheduler._work.plans[param][group]) for scheduler in setters]
                for words in self.words_of(group, param):
                    self._rows.setdefault((group, param), []).append(len(rows))
                    rows.append(Scheduled(words, bases[group, param], chain))
        if rows and layout is not None:
            counts = [scheduler._work.position for scheduler in members]
            self._table, self._table_layout = schedule_table(layout.device, rows, counts), layout
        return self._table

    def step(self, members: Sequence[LRScheduler], epoch: float | None = None) -> None:
        """Step these schedulers, on the host and on the device."""
        layout = self.layout
        recording = None if layout is None else layout.device.recording
        for scheduler in members:
            scheduler._grow()
        if recording is not None:
            if epoch is not None:
                raise UnsupportedError("a compiled step cannot go to an epoch; call step() without one")
            self._record(recording, members)
            return
        self.notice()
        if epoch is not None:
            self.drop_table()
        table = None if epoch is not None else self._ready()
        self._advance(members, table, epoch)
        self._enqueue(members, table)

    def _advance(
        self,
        members: Sequence[LRScheduler],
        table: OptionTable | None,
        epoch: float | None = None,
        is_recorded: bool = False,
    ) -> None:
        for scheduler in members:
            by_device = table is not None and id(scheduler) in self._numbers
            for param, values in scheduler._advance(epoch).items():
                self.set(param, values, by_device, is_recorded)

    def _enqueue(self, members: Sequence[LRScheduler], table: OptionTable | None) -> None:
        stepping = {self._numbers[id(scheduler)] for scheduler in members if id(scheduler) in self._numbers}
        if table is not None and stepping and self.layout is not None:
            steps = {f"step{number}": float(number in stepping) for number in self._numbers.values()}
            table.follow(self.layout.hyper.view.buffer, steps)
            if (0, "lr") in self._rows and any("lr" in scheduler.params for scheduler in members):
                self.copy_to_rates(self.layout)

    def copy_to_rates(self, layout: Layout) -> None:
        """Copy the learning rates that a kernel has written in the table to those that are tensors."""
        for group, rate in self.optimizer._rates().items():
            layout.device.copy(layout.hyper.word_view(self.words_of(group, "lr")[0].at), rate.view)

    # Recorded steps: the host follows before each replay.

    def _record(self, recording: Program, members: Sequence[LRScheduler]) -> None:
        self.notice()
        table = self._ready()
        self._enqueue(members, table)
        staged = [
            self._stage(recording, group, param)
            for scheduler in members
            if table is None or id(scheduler) not in self._numbers
            for param in scheduler.params
            for group in range(scheduler.reach(param))
        ]
        recording.before_replay.append(partial(self._check, members, table, self.layout))
        recording.before_replay.append(partial(self.optimizer._check_rates, self.optimizer._rates()))
        recording.at_replay.append(partial(self._follow, members, table, staged))

    def _stage(self, recording: Program, group: int, param: str) -> _Staged:
        layout, names = self.layout, self.dependents(param)
        assert layout is not None
        order = layout.rule.hyper
        words = tuple(order.index(name) + row * len(order) for row in layout.hyper_rows(group) for name in names)
        names *= len(layout.hyper_rows(group))
        targets = [layout.hyper.word_view(word) for word in words]
        rate = self.optimizer.param_groups[group].get(param)
        if isinstance(rate, Tensor):
            names, words, targets = (param,), (), [rate.view]
        buffer = layout.device.allocate_zeroed(max(4, 4 * len(targets)))
        recording.keep(buffer)
        for number, target in enumerate(targets):
            layout.device.copy(View(buffer, 4 * number, 4), target)
        return _Staged(group, names, words, buffer)

    def _check(self, members: Sequence[LRScheduler], table: OptionTable | None, layout: Layout | None) -> None:
        for scheduler in members:
            scheduler._grow()
        self.notice()
        if self._table is not table or self.layout is not layout:
            raise StaleProgramError("the schedulers have changed; record the step again")

    def _follow(self, members: Sequence[LRScheduler], table: OptionTable | None, staged: Sequence[_Staged]) -> None:
        self._advance(members, table, is_recorded=True)
        layout = self.layout
        for group, names, words, buffer in staged:
            options = self.optimizer.param_groups[group]
            values = self.optimizer.hyper(options) if words else {name: get_option(options, name) for name in names}
            content = struct.pack(f"<{len(names)}f", *(values[name] for name in names))
            assert layout is not None
            if content:
                layout.device.write(View(buffer, 0, len(content)), memoryview(content))
                layout.hyper.scheduled.update(words)


def _names(param: str) -> tuple[str, str, str]:
    return param, f"one_minus_{param}", f"log_{param}"

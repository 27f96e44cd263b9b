"""Where a compiled step runs: as a whole, on the device on which it is the faster when both are tried.

Operations of a step cannot be compared one by one: its parameters lie on one device, and so does the state of its
optimizers. So the step is run on each device for some of its calls, with everything that it uses moved there, and the
time from call to call is compared. No call is run twice or left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary, ref

from ..compiled import Compiled
from ..errors import DeviceLimitError, ShapeError, UnsupportedError
from ..recovery import Recoverable, device_under
from ..runtime.device import Device
from ..runtime.program import Program
from ..runtime.registry import device as device_of, opened
from ..tensors import Tensor
from .fallback import warn_once
from .moving import move, used_by
from .trial import trial

__all__ = ["place_step"]

_GROUPS = 8
_LONG_ENOUGH = 4e-3
_MOST_CALLS = 4
"""Calls are timed in so many groups: as many as take long enough, with one wait."""


class _Placed:
    """One step: what it uses, and where its next call runs."""

    def __init__(
        self, step: Compiled, home: Device, uses: Sequence[ref[Recoverable]], candidates: Sequence[Device]
    ) -> None:
        self._step = ref(step)
        self.candidates = tuple(candidates)
        self.may_move = True
        self.uses = uses
        self._home = home  # where it runs if it uses nothing
        self._turns = self._run_of_turns()

    def device(self) -> Device:
        """Where the next call runs."""
        return next(self._turns, None) or self._now()

    def owns(self, one: Recoverable) -> bool:
        """It decides where this lies."""
        return any(its() is one for its in self.uses)

    def _has_other_owner(self, one: Recoverable) -> bool:
        owner = _owners.get(id(one))
        return owner is not None and owner is not self._step() and vars(owner)["_placed"].owns(one)

    @property
    def _in_use(self) -> list[Recoverable]:
        return [one for one in (its() for its in self.uses) if one is not None]

    def _run_of_turns(self) -> Generator[Device]:
        if not self.candidates or any(self._has_other_owner(one) for one in self._in_use):
            return  # it stays, or goes with the other
        step = self._step()
        if step is not None:
            _owners.update((id(one), step) for one in self._in_use)
        best = self.candidates[0]
        if len(self.candidates) > 1:
            best = yield from self._trial()
        while True:
            yield self._go(best)

    def _now(self) -> Device:
        used = self._in_use
        return device_under(used[0]) if used else self._home

    def _go(self, target: Device) -> Device:
        """Move there, if nothing stands against it; returns where the step is then."""
        used = self._in_use
        if not used:
            return target
        if self._now() is not target and self.may_move:
            move(used, target)
        return self._now()

    def _trial(self) -> Generator[Device, None, Device]:
        """Runs calls on each device; returns the faster."""
        turns = trial(sorted(self.candidates, key=lambda one: one is not self._now()), _GROUPS)
        a_call = dict.fromkeys(self.candidates, math.inf)  # seconds, when last timed
        device = next(turns)
        while True:
            seconds = math.inf  # where it cannot go
            if self._go(device) is device:
                calls = min(_MOST_CALLS, max(1, math.ceil(_LONG_ENOUGH / max(a_call[device], 1e-6))))
                device.synchronize()
                started = perf_counter()
                for _ in range(calls):
                    yield device
                device.synchronize()
                seconds = a_call[device] = (perf_counter() - started) / calls
            try:
                device = turns.send(seconds)
            except StopIteration as over:
                best: Device = over.value
                return best


_owners: WeakValueDictionary[int, Compiled] = WeakValueDictionary()  # by the id of what they place


def place_step(
    step: Compiled,
    prepared: list[Any],
    candidates: Sequence[Device],
    other: Callable[[Device], Device | None],
) -> Device:
    """Where a call of a compiled step runs.

    Args:
        step: the step; it is recorded to see what it uses.
        prepared: the arguments of the call, as `compiled.prepare` gives them.
        candidates: the devices to choose from; none for the one where it lies.
        other: the device that takes the place of one whose limits do not allow the step.
    """
    instead: dict[Device, Device] = vars(step).setdefault("_instead", {})
    if step._guard is not None:  # its snapshots are of where it lies
        candidates = ()
    elif instead:
        candidates = tuple(dict.fromkeys(instead.get(one, one) for one in candidates or instead))
    placed: _Placed | None = vars(step).get("_placed")
    if placed is None:
        program = _recorded(step, prepared, candidates)
        placed = _Placed(step, program.device, [ref(one) for one in used_by(program)], candidates)
    elif placed.candidates != tuple(candidates):
        placed = _Placed(step, placed.device(), placed.uses, candidates)
    vars(step)["_placed"] = placed
    placed.may_move = not _has_gradients_to_add_to(step)
    device = placed.device()
    try:
        step.recorded_on(device, prepared)
    except DeviceLimitError as error:
        target = other(device) if step._guard is None and device not in instead else None
        if target is None:
            raise
        instead[device] = target
        name = getattr(step, "__name__", "a compiled step")
        warn_once(name, [one.shape for one in prepared if hasattr(one, "shape")], error, device, target)
        return place_step(step, prepared, (target,), other)
    return device


def _has_gradients_to_add_to(step: Compiled) -> bool:
    return any(found.is_read and found.leaf._grad is not None for one in step._recorded for found, _ in one.grads)


def _recorded(step: Compiled, prepared: list[Any], candidates: Sequence[Device]) -> Program:
    """A recording of the step, on the device where what it uses lies: the first one that allows it."""
    given = [one.device for one in prepared if isinstance(one, Tensor)]
    first: Exception | None = None
    step._recorded.clear()  # what they were bound to may have moved
    for device in dict.fromkeys([*given, device_of(None), *candidates, *opened()]):
        try:
            try:
                return step.recorded_on(device, prepared).program
            except DeviceLimitError:
                return step.what_it_binds(device, prepared)
        except (ShapeError, UnsupportedError) as error:
            first = first or error
    assert first is not None
    raise first

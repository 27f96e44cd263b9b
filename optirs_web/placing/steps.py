"""The device of a compiled step: it runs as a whole, on the device on which it was timed to be the faster.

Operations of a step cannot be compared one by one: its parameters are stored on one device, and so is the state of its
optimizers. So the step is run on each device for some of its calls, with everything that it uses moved there, and the
time from call to call is compared. No call is run twice or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any
from weakref import WeakValueDictionary, ref

from ..compiled import Compiled
from ..errors import DeviceLimitError, ShapeError, UnsupportedError
from ..recovery import Recoverable, device_under
from ..runtime.device import Device
from ..runtime.measure import Plan, Times, fastest, rounds
from ..runtime.program import Program
from ..runtime.registry import device as device_of, opened
from ..tensors import Tensor
from .fallback import warn_once
from .moving import move, used_by

__all__ = ["place_step"]

_PLAN = Plan(sample=4e-3, repeats=4, samples=8, settling=2, fewest=2, most=2, long=0.02, hopeless=2.0)
"""There are two rounds, since each moves the step to the other device; one where a device is ahead by far."""


class _Placed:
    """A step with what it uses, which decides where its next call runs."""

    def __init__(
        self, step: Compiled, home: Device, uses: Sequence[ref[Recoverable]], candidates: Sequence[Device]
    ) -> None:
        self._step = ref(step)
        self.candidates = tuple(candidates)
        self.may_move = True
        self.uses = uses
        self._home = home  # where it runs if it uses nothing
        self._devices = self._devices_of_calls()

    def device(self) -> Device:
        """Return the device of the next call."""
        return next(self._devices, None) or self._now()

    def owns(self, state: Recoverable) -> bool:
        """Return whether this step decides where a parameter, a buffer or an optimizer is stored."""
        return any(used() is state for used in self.uses)

    def _has_other_owner(self, state: Recoverable) -> bool:
        owner = _owners.get(id(state))
        return owner is not None and owner is not self._step() and vars(owner)["_placed"].owns(state)

    @property
    def _in_use(self) -> list[Recoverable]:
        return [state for state in (used() for used in self.uses) if state is not None]

    def _devices_of_calls(self) -> Generator[Device]:
        if not self.candidates or any(self._has_other_owner(state) for state in self._in_use):
            return  # it stays, or goes with the other
        step = self._step()
        if step is not None:
            _owners.update((id(state), step) for state in self._in_use)
        best = self.candidates[0]
        if len(self.candidates) > 1:
            best = yield from self._timed()
        while True:
            yield self._go(best)

    def _now(self) -> Device:
        used = self._in_use
        return device_under(used[0]) if used else self._home

    def _go(self, target: Device) -> Device:
        """Move the step to a device if it may move; return the device that it is on then."""
        used = self._in_use
        if not used:
            return target
        if self._now() is not target and self.may_move:
            move(used, target)
        return self._now()

    def _timed(self) -> Generator[Device, None, Device]:
        """Run calls on each device; return the faster one."""
        measuring = rounds(sorted(self.candidates, key=lambda device: device is not self._now()), _PLAN)
        device, calls = next(measuring)
        while True:
            seconds = float("inf")  # where it cannot go
            if self._go(device) is device:
                device.synchronize()
                started = perf_counter()
                for _ in range(calls):
                    yield device
                device.synchronize()
                seconds = (perf_counter() - started) / calls
            try:
                device, calls = measuring.send(seconds)
            except StopIteration as end:
                times: dict[Device, Times] = end.value
                return fastest(times)


_owners: WeakValueDictionary[int, Compiled] = WeakValueDictionary()
"""By the id of a parameter, a buffer or an optimizer, the step that decides where it is stored."""


def place_step(
    step: Compiled,
    prepared: list[Any],
    candidates: Sequence[Device],
    other: Callable[[Device], Device | None],
) -> Device:
    """Return the device that a call of a compiled step runs on.

    Args:
        step: the step; it is recorded to see what it uses.
        prepared: the arguments of the call, as `compiled.prepare` gives them.
        candidates: the devices to choose from; none for the one that stores what it uses.
        other: the device that takes the place of one whose limits do not allow the step.
    """
    substitutes: dict[Device, Device] = vars(step).setdefault("_instead", {})
    if step._guard is not None:  # its snapshots are of this device
        candidates = ()
    elif substitutes:
        candidates = tuple(dict.fromkeys(substitutes.get(device, device) for device in candidates or substitutes))
    placed: _Placed | None = vars(step).get("_placed")
    if placed is None:
        program = _recorded(step, prepared, candidates)
        placed = _Placed(step, program.device, [ref(state) for state in used_by(program)], candidates)
    elif placed.candidates != tuple(candidates):
        placed = _Placed(step, placed.device(), placed.uses, candidates)
    vars(step)["_placed"] = placed
    placed.may_move = not _has_gradients_to_add_to(step)
    device = placed.device()
    try:
        step.recorded_on(device, prepared)
    except DeviceLimitError as error:
        target = other(device) if step._guard is None and device not in substitutes else None
        if target is None:
            raise
        substitutes[device] = target
        name = getattr(step, "__name__", "a compiled step")
        warn_once(name, [argument.shape for argument in prepared if hasattr(argument, "shape")], error, device, target)
        return place_step(step, prepared, (target,), other)
    return device


def _has_gradients_to_add_to(step: Compiled) -> bool:
    grads = (grad for recording in step._recorded for grad, _ in recording.grads)
    return any(grad.is_read and grad.leaf._grad is not None for grad in grads)


def _recorded(step: Compiled, prepared: list[Any], candidates: Sequence[Device]) -> Program:
    """Return a recording of the step on the first device that allows it: the one that stores what it uses."""
    argument_devices = [argument.device for argument in prepared if isinstance(argument, Tensor)]
    first_error: Exception | None = None
    step._recorded.clear()  # what they were bound to may have moved
    for device in dict.fromkeys([*argument_devices, device_of(None), *candidates, *opened()]):
        try:
            try:
                return step.recorded_on(device, prepared).program
            except DeviceLimitError:
                return step.what_it_binds(device, prepared)
        except (ShapeError, UnsupportedError) as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error

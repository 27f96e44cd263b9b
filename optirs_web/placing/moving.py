"""Collects the parameters, buffers and optimizers that a compiled step uses, and moves them to another device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import OutOfDeviceMemoryError
from ..ops.random_state import get_rng_state, set_rng_state
from ..recovery import Recoverable, device_under, tracked
from ..runtime.buffer import Buffer
from ..runtime.device import Device
from ..runtime.launches import Launch
from ..runtime.program import Program
from ..tensors import Parameter

__all__ = ["move", "used_by"]

_SNAPSHOTS = ("_snapshot", "_snapshot_rates")


def used_by(program: Program) -> list[Recoverable]:
    """Return the parameters, buffers and optimizers whose memory a program is bound to, and those that move with them.

    An optimizer moves with its parameters, these with their optimizer, and the tensors of an arena together.
    """
    buffers = {buffer for command in program.as_recorded for buffer in _bound(command)}
    params: set[int] = set()
    states = [state for state in tracked() if device_under(state) is program.device]
    used: set[int] = set()
    has_grown = True
    while has_grown:
        has_grown = False
        for state in states:
            state_params, state_buffers = set(map(id, _params_of(state))), set(_memory(state))
            if id(state) in used or (params.isdisjoint(state_params) and buffers.isdisjoint(state_buffers)):
                continue
            has_grown = True
            used.add(id(state))
            params |= state_params
            buffers |= state_buffers
    return [state for state in states if id(state) in used]


def _bound(command: Any) -> Iterator[Buffer]:
    for view in command.views if isinstance(command, Launch) else (command.source, command.target):
        yield view.buffer


def _memory(state: Recoverable) -> Iterator[Buffer]:
    for view in state.recovery_views().values():
        yield view.buffer


def _params_of(state: Any) -> Iterable[Parameter]:
    if isinstance(state, Parameter):
        return [state]
    groups = getattr(state, "param_groups", None)
    if groups is None:
        return list(getattr(state, "params", ()))  # an average
    return [param for group in groups for param in group["params"]]


def move(states: list[Recoverable], target: Device) -> None:
    """Move parameters, buffers and optimizers to another device, without gradients, as after the loss of theirs. Waits.

    If there is no memory for them, they stay on their device. Programs that were bound to them record again; the random
    numbers of compiled steps continue there.
    """
    home = device_under(states[0])
    before = [{name: vars(state)[name] for name in _SNAPSHOTS if name in vars(state)} for state in states]
    for state in states:
        keep = state.keeper()
        keep(home.read_all(state.recovery_views()))
    for state in states:
        for buffer in _memory(state):
            buffer.retired = True
    try:
        _revive(states, target)
        _continue_random_numbers(home, target)
    except OutOfDeviceMemoryError:
        _revive(states, home)
    finally:
        for state, snapshot in zip(states, before, strict=True):  # what the user took a snapshot of
            vars(state).update(snapshot)


def _revive(states: list[Recoverable], device: Device) -> None:
    for state in states:
        state.revive(device)


def _continue_random_numbers(home: Device, target: Device) -> None:
    state = get_rng_state()
    replays = state["replays"]
    if home.name in replays:
        set_rng_state({**state, "replays": {**replays, target.name: max(replays.values())}})

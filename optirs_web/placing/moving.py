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

_KEPT = ("_snapshot", "_snapshot_rates")


def used_by(program: Program) -> list[Recoverable]:
    """The parameters, buffers and optimizers whose memory a program is bound to, and those that go with them.

    An optimizer goes with its parameters, all parameters of an optimizer with it, and what lies in one arena together.
    """
    buffers = {buffer for one in program.as_recorded for buffer in _bound(one)}
    among = [one for one in tracked() if device_under(one) is program.device]
    params: set[int] = set()
    found: list[Recoverable] = []
    is_new = True
    while is_new:
        is_new = False
        for one in among:
            its_params, its_buffers = set(map(id, _params_of(one))), set(_memory(one))
            if any(one is other for other in found) or (
                params.isdisjoint(its_params) and buffers.isdisjoint(its_buffers)
            ):
                continue
            is_new = True
            found.append(one)
            params |= its_params
            buffers |= its_buffers
    return [one for one in among if any(one is other for other in found)]


def _bound(one: Any) -> Iterator[Buffer]:
    for view in one.views if isinstance(one, Launch) else (one.source, one.target):
        yield view.buffer


def _memory(one: Recoverable) -> Iterator[Buffer]:
    for view in one.recovery_views().values():
        yield view.buffer


def _params_of(one: Any) -> Iterable[Parameter]:
    if isinstance(one, Parameter):
        return [one]
    groups = getattr(one, "param_groups", None)
    if groups is None:
        return list(getattr(one, "params", ()))  # an average
    return [param for group in groups for param in group["params"]]


def move(uses: list[Recoverable], target: Device) -> None:
    """Put them on another device, as after the loss of their own, without gradients. Waits.

    If there is no memory for them, they stay where they were. Programs that were bound to them record again; random
    numbers of compiled steps go on there.
    """
    home = device_under(uses[0])
    before = [{name: vars(one)[name] for name in _KEPT if name in vars(one)} for one in uses]
    for one in uses:
        keep = one.keeper()
        keep(home.read_all(one.recovery_views()))
    for one in uses:
        for buffer in _memory(one):
            buffer.retired = True
    try:
        _revive(uses, target)
        _go_on_drawing(home, target)
    except OutOfDeviceMemoryError:
        _revive(uses, home)
    finally:
        for one, kept in zip(uses, before, strict=True):  # what the user took a snapshot of
            vars(one).update(kept)


def _revive(uses: list[Recoverable], device: Device) -> None:
    for one in uses:
        one.revive(device)


def _go_on_drawing(home: Device, target: Device) -> None:
    state = get_rng_state()
    replays = state["replays"]
    if home.name in replays:
        set_rng_state({**state, "replays": {**replays, target.name: max(replays.values())}})

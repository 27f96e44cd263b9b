"""Going on after a device was lost: what parameters and optimizers held, kept on the host, on a new device.

A browser takes the GPU away from a tab in the background, and a driver may reset. What lay on the device is gone then.
`snapshot` keeps a copy on the host, and `recover` opens the device again and puts the copies there.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol
from weakref import WeakValueDictionary

from .errors import DeviceLostError
from .runtime.buffer import View
from .runtime.device import Device, gathered
from .runtime.locks import ForkSafeLock
from .runtime.registry import avoided, device as device_of, device_async

__all__ = ["KeepsValues", "Recoverable", "keep_track", "recover", "recover_async", "snapshot", "snapshot_async"]


class Recoverable(Protocol):
    """Something on a device that can be put on another one."""

    recovery_order: ClassVar[int]
    """0 for parameters, 1 for what is built over them."""

    def recovery_views(self) -> Mapping[str, View]:
        """What a snapshot reads; all on one device."""

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """What takes the contents of these views as the snapshot, whatever has happened since it was asked for."""

    @property
    def has_snapshot(self) -> bool:
        """There is one."""

    def revive(self, device: Device) -> None:
        """Make the last snapshot the state, on this device."""


class KeepsValues:
    """What `Recoverable` asks for, for one whose state is the values in its view."""

    view: View
    _snapshot: memoryview | None
    recovery_order: ClassVar[int] = 0

    def recovery_views(self) -> dict[str, View]:
        """Its values."""
        return {"values": self.view}

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Takes the values as the snapshot."""
        return lambda contents: setattr(self, "_snapshot", contents["values"])

    @property
    def has_snapshot(self) -> bool:
        """There is one."""
        return self._snapshot is not None


_numbers = itertools.count()
_known: WeakValueDictionary[int, Recoverable] = WeakValueDictionary()
_lock = ForkSafeLock()  # held while that changes or is listed
_recovering = ForkSafeLock()  # held by the one thread that brings back what a device held


def keep_track(one: Recoverable) -> None:
    """Have it in snapshots from now on."""
    with _lock:
        _known[next(_numbers)] = one


def tracked() -> list[Recoverable]:
    """Parameters in the order in which they were made, then optimizers."""
    with _lock:
        known = list(_known.items())
    return [one for _, one in sorted(known, key=lambda item: (item[1].recovery_order, item[0]))]


def device_under(one: Recoverable) -> Device:
    return next(iter(one.recovery_views().values())).buffer.device


class _Reading(NamedTuple):
    """What one of them is read from, and what keeps it."""

    device: Device
    views: Mapping[str, View]
    keep: Callable[[Mapping[str, memoryview]], None]


def _readings(device: str | Device | None) -> list[_Reading]:
    wanted = [one for one in tracked() if device is None or device in (device_under(one), device_under(one).name)]
    for one in wanted:
        if device_under(one).lost:
            raise DeviceLostError(
                f"{one!r} was on a device that was lost; optirs_web.recover() restores the last snapshot"
            )
    return [_Reading(device_under(one), one.recovery_views(), one.keeper()) for one in wanted]


def snapshot(device: str | Device | None = None) -> None:
    """Keep on the host what all parameters and optimizers hold now. Waits. A new snapshot replaces the last one.

    Args:
        device: of one device only; None means all.

    Raises:
        DeviceLostError: a device of theirs was lost; the last snapshot stays.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.snapshot("cpu")
    """
    readings = _readings(device)
    contents = [one.device.read_all(one.views) for one in readings]
    for one, its_contents in zip(readings, contents, strict=True):
        one.keep(its_contents)


def snapshot_async(device: str | Device | None = None) -> Awaitable[None]:
    """The awaitable twin of `snapshot`: of everything as it is at the call, whatever is trained meanwhile."""
    readings = _readings(device)
    reading = gathered({number: one.device.read_all_async(one.views) for number, one in enumerate(readings)})

    async def finish() -> None:
        for number, contents in (await reading).items():
            readings[number].keep(contents)

    return finish()


def recover(to: str | Device | None = None) -> list[Device]:
    """Reopen every lost device and continue from the last snapshot. Waits. Does nothing where none was lost.

    Optimizers keep their options; gradients are gone; tensors that are no parameters are gone too, and raise
    DeviceLostError when they are used.

    Args:
        to: where to continue with what was on a lost device, or on one that "auto" avoids since it keeps failing:
            "auto" for the next one that works, None for the same device, reopened.

    Returns:
        The devices that were opened.

    Raises:
        DeviceLostError: a parameter or optimizer that is still in use has no snapshot; nothing was changed.
        DeviceNotAvailableError: the device does not come back, or there is no other.

    Example:
        >>> import optirs_web as ow
        >>> ow.recover()
        []
    """
    with _recovering:
        lost = _lost(to)
        return _revive(lost, {name: device_of(to or name) for name in _names(lost)})


async def recover_async(to: str | Device | None = None) -> list[Device]:
    """The awaitable twin of `recover`."""
    devices = {name: await device_async(to or name) for name in _names(_lost(to))}
    with _recovering:  # what another task has brought back meanwhile is not lost any more
        return _revive([one for one in _lost(to) if device_under(one).name in devices], devices)


def _lost(to: str | Device | None) -> list[Recoverable]:
    """Also what lies on a device that is avoided, if it is to leave that."""
    lost = [one for one in tracked() if device_under(one).lost or (to and device_under(one).name in avoided)]
    without = [one for one in lost if not one.has_snapshot]
    if without:
        raise DeviceLostError(
            f"{without[0]!r} was on a device that was lost, and there is no snapshot of it: call optirs_web.snapshot() "
            "regularly, or compile the step with recover=True"
        )
    return lost


def _names(lost: list[Recoverable]) -> list[str]:
    return list(dict.fromkeys(device_under(one).name for one in lost))


def _revive(lost: list[Recoverable], devices: Mapping[str, Device]) -> list[Device]:
    for one in lost:
        one.revive(devices[device_under(one).name])
    return list(dict.fromkeys(devices.values()))

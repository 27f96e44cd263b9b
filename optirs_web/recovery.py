"""Recovery after the loss of a device: copies of parameters and optimizer state on the host, written to a new device.

A browser may take the GPU away from a tab in the background, and a driver may reset. The memory of the device is lost
then. `snapshot` keeps a copy on the host, and `recover` opens the device again and writes the copies to it.
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
from .runtime.open_devices import avoided
from .runtime.registry import device as device_of, device_async

__all__ = ["KeepsValues", "Recoverable", "keep_track", "recover", "recover_async", "snapshot", "snapshot_async"]


class Recoverable(Protocol):
    """An object on a device that can be restored on another one."""

    recovery_order: ClassVar[int]
    """0 for parameters, 1 for objects that depend on them."""

    def recovery_views(self) -> Mapping[str, View]:
        """Return the views that a snapshot reads; all on one device."""

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Return a function that stores the contents of these views as the snapshot, also after later changes."""

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""

    def revive(self, device: Device) -> None:
        """Restore the last snapshot on this device."""


class KeepsValues:
    """The interface `Recoverable` for an object whose state is the values in its view."""

    view: View
    _snapshot: memoryview | None
    recovery_order: ClassVar[int] = 0

    def recovery_views(self) -> dict[str, View]:
        """Return the view of its values."""
        return {"values": self.view}

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        """Return a function that stores the values as the snapshot."""
        return lambda contents: setattr(self, "_snapshot", contents["values"])

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""
        return self._snapshot is not None


_numbers = itertools.count()
_tracked: WeakValueDictionary[int, Recoverable] = WeakValueDictionary()
_lock = ForkSafeLock()  # held while that changes or is listed
_recovering = ForkSafeLock()  # held by the one thread that brings back what a device held


def keep_track(item: Recoverable) -> None:
    """Include an object in snapshots from now on."""
    with _lock:
        _tracked[next(_numbers)] = item


def tracked() -> list[Recoverable]:
    """Return parameters in the order of their creation, then optimizers."""
    with _lock:
        entries = list(_tracked.items())
    return [item for _, item in sorted(entries, key=lambda entry: (entry[1].recovery_order, entry[0]))]


def device_under(item: Recoverable) -> Device:
    return next(iter(item.recovery_views().values())).buffer.device


class _Reading(NamedTuple):
    """The device and views of an object, and the function that stores their contents."""

    device: Device
    views: Mapping[str, View]
    keep: Callable[[Mapping[str, memoryview]], None]


def _readings(device: str | Device | None) -> list[_Reading]:
    selected = [item for item in tracked() if device is None or device in (device_under(item), device_under(item).name)]
    for item in selected:
        if device_under(item).lost:
            raise DeviceLostError(
                f"{item!r} was on a device that was lost; optirs_web.recover() restores the last snapshot"
            )
    return [_Reading(device_under(item), item.recovery_views(), item.keeper()) for item in selected]


def snapshot(device: str | Device | None = None) -> None:
    """Copy the current state of all parameters and optimizers to the host. Waits. It replaces the last snapshot.

    Args:
        device: of one device only; None means all.

    Raises:
        DeviceLostError: a device of theirs was lost; the last snapshot is kept.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.snapshot("cpu")
    """
    readings = _readings(device)
    contents = [reading.device.read_all(reading.views) for reading in readings]
    for reading, reading_contents in zip(readings, contents, strict=True):
        reading.keep(reading_contents)


def snapshot_async(device: str | Device | None = None) -> Awaitable[None]:
    """The awaitable twin of `snapshot`: the state at the call, even if training continues meanwhile."""
    readings = _readings(device)
    reading = gathered({number: source.device.read_all_async(source.views) for number, source in enumerate(readings)})

    async def finish() -> None:
        for number, contents in (await reading).items():
            readings[number].keep(contents)

    return finish()


def recover(to: str | Device | None = None) -> list[Device]:
    """Reopen every lost device and continue from the last snapshot. Waits. Does nothing where none was lost.

    Optimizers keep their options; gradients are lost; tensors that are no parameters are lost too, and raise
    DeviceLostError when they are used.

    Args:
        to: the device for the state of lost devices, and of those that "auto" avoids since they keep failing: "auto"
            for the next one that works, None for the same device, reopened.

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
    with _recovering:  # another task may have restored some meanwhile
        return _revive([item for item in _lost(to) if device_under(item).name in devices], devices)


def _lost(to: str | Device | None) -> list[Recoverable]:
    """Return the objects on lost devices, and on avoided ones if they are moved to another."""
    lost = [item for item in tracked() if device_under(item).lost or (to and device_under(item).name in avoided)]
    unsaved = [item for item in lost if not item.has_snapshot]
    if unsaved:
        raise DeviceLostError(
            f"{unsaved[0]!r} was on a device that was lost, and there is no snapshot of it: call optirs_web.snapshot() "
            "regularly, or compile the step with recover=True"
        )
    return lost


def _names(lost: list[Recoverable]) -> list[str]:
    return list(dict.fromkeys(device_under(item).name for item in lost))


def _revive(lost: list[Recoverable], devices: Mapping[str, Device]) -> list[Device]:
    for item in lost:
        item.revive(devices[device_under(item).name])
    return list(dict.fromkeys(devices.values()))

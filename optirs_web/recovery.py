"""Going on after a device was lost: what parameters and optimizers held, kept on the host, on a new device.

A browser takes the GPU away from a tab in the background, and a driver may reset. What lay on the device is gone then.
`snapshot` keeps a copy on the host, and `recover` opens the device again and puts the copies there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

from .errors import DeviceLostError
from .runtime.buffer import View
from .runtime.device import Device
from .runtime.registry import device as device_of, device_async

__all__ = ["Recoverable", "keep_track", "recover", "recover_async", "snapshot", "snapshot_async"]


class Recoverable(Protocol):
    """Something on a device that can be put on another one."""

    def recovery_views(self) -> Mapping[str, View]:
        """What a snapshot reads; all on one device."""

    def keep(self, contents: Mapping[str, memoryview]) -> None:
        """Take the contents of these views as the snapshot."""

    @property
    def has_snapshot(self) -> bool:
        """`keep` was called."""

    def revive(self, device: Device) -> None:
        """Make the last snapshot the state, on this device."""


_numbers = itertools.count()
_known: WeakValueDictionary[int, Recoverable] = WeakValueDictionary()
"""In the order in which they were made: parameters before the optimizers that step them."""


def keep_track(one: Recoverable) -> None:
    """Have it in snapshots from now on."""
    _known[next(_numbers)] = one


def _all() -> list[Recoverable]:
    return [_known[number] for number in sorted(_known)]


def _device(one: Recoverable) -> Device:
    return next(iter(one.recovery_views().values())).buffer.device


def _to_read(device: str | Device | None) -> dict[tuple[int, str], View]:
    """The views to read, by place in `_all` and name."""
    wanted = None if device is None else device_of(device)
    return {
        (place, name): view
        for place, one in enumerate(_all())
        if not (its := _device(one)).lost and wanted in (None, its)
        for name, view in one.recovery_views().items()
    }


def _keep(tracked: list[Recoverable], contents: Mapping[tuple[int, str], memoryview]) -> None:
    by_place: dict[int, dict[str, memoryview]] = {}
    for (place, name), raw in contents.items():
        by_place.setdefault(place, {})[name] = raw
    for place, its in by_place.items():
        tracked[place].keep(its)


def snapshot(device: str | Device | None = None) -> None:
    """Keep on the host what all parameters and optimizers hold now. Waits. A new snapshot replaces the last one.

    Args:
        device: of one device only; None means all.

    Raises:
        DeviceLostError: a device was lost already; the last snapshot stays.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.snapshot("cpu")
    """
    tracked, views = _all(), _to_read(device)
    _keep(tracked, {key: view.buffer.device.read(view) for key, view in views.items()})


def snapshot_async(device: str | Device | None = None) -> Awaitable[None]:
    """The awaitable twin of `snapshot`: of everything as it is at the call, whatever is trained meanwhile."""
    tracked, views = _all(), _to_read(device)
    started = [view.buffer.device.start_read(view) for view in views.values()]

    async def finish() -> None:
        _keep(tracked, dict(zip(views, await asyncio.gather(*started), strict=True)))

    return finish()


def recover() -> list[Device]:
    """Open every lost device again and go on from the last snapshot. Waits. Does nothing where none was lost.

    Optimizers keep their options; gradients are gone; tensors that are no parameters are gone too, and raise
    DeviceLostError when they are used.

    Returns:
        The devices that were opened.

    Raises:
        DeviceLostError: a parameter or optimizer that is still in use has no snapshot; nothing was changed.
        DeviceNotAvailableError: the device does not come back.

    Example:
        >>> import optirs_web as ow
        >>> ow.recover()
        []
    """
    lost = _lost()
    return _revive(lost, {name: device_of(name) for name in _names(lost)})


async def recover_async() -> list[Device]:
    """The awaitable twin of `recover`."""
    lost = _lost()
    return _revive(lost, {name: await device_async(name) for name in _names(lost)})


def _lost() -> list[Recoverable]:
    lost = [one for one in _all() if _device(one).lost]
    without = [one for one in lost if not one.has_snapshot]
    if without:
        raise DeviceLostError(
            f"{without[0]!r} was on a device that was lost, and there is no snapshot of it: call optirs_web.snapshot() "
            "now and then, or compile the step with recover=True"
        )
    return lost


def _names(lost: list[Recoverable]) -> list[str]:
    return list(dict.fromkeys(_device(one).name for one in lost))


def _revive(lost: list[Recoverable], devices: Mapping[str, Device]) -> list[Device]:
    for one in lost:
        one.revive(devices[_device(one).name])
    return list(devices.values())

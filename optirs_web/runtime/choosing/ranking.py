"""The choice of "auto" outside pages: the fastest device by a short measurement, of those preferred and well."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import DeviceNotAvailableError, OptirsError, OutOfDeviceMemoryError
from ..backend import AdapterInfo, Backend
from ..device import Device
from ..open_devices import avoid, avoided
from . import topology
from .health import say_once

if TYPE_CHECKING:
    from .figures import Figures

__all__ = ["best", "ranked"]

_AS_FAST = 1.1
"""Times the least are taken for the same, since a measurement is not exact: then the order in which they are listed
decides."""

_PREFERRED = {
    "": (("cpu", "discrete", "integrated", "software", "virtual", ""),),
    "low": (("integrated",), ("cpu", "software", "virtual", ""), ("discrete",)),
    "high": (("discrete",), ("virtual", ""), ("integrated",), ("cpu", "software")),
}
"""Kinds by the power that is asked for; those that stand together are compared by measurement."""


class _Choice(NamedTuple):
    """A device, and the reason for its rank."""

    info: AdapterInfo
    why: str


def best(
    listed: Mapping[str, Sequence[AdapterInfo]],
    known: Collection[str],
    open_backend: Callable[[AdapterInfo], Backend],
    open_as: Callable[[AdapterInfo, str], Device],
    power: str = "",
) -> Device:
    """Open the device that "auto" takes, and return it.

    Args:
        listed: the adapters by name, in the order of preference; the processor comes last.
        known: the names of all devices.
        open_backend: opens an adapter for a measurement.
        open_as: opens it as a device, with the reason why it was chosen.
        power: "low", "high" or "".

    Raises:
        DeviceNotAvailableError: there is none, or OPTIRS_REQUIRE has none of them.
    """
    usable = [
        adapter for adapters in listed.values() for adapter in adapters if adapter.available and _may_be_taken(adapter)
    ]
    allowed = _required(usable, listed, known)
    well = [adapter for adapter in allowed if adapter.label not in avoided]
    idle = topology.idle_gpus() if all(adapter.name == "cpu" for adapter in usable) else ""
    for info, reason in ranked(well or allowed, listed, open_backend, power):
        failed = [_failure(adapter, info) for adapter in usable if adapter.label in avoided]
        why = "; ".join(text for text in (reason, *failed, idle) if text)
        try:
            device = open_as(info, why)
        except DeviceNotAvailableError as error:
            avoid(info.label, f"it could not be opened ({error})")
            continue
        if failed or all(adapter.name == "cpu" for adapter in usable):
            say_once(f"'auto' takes {device.name}: {why}", is_trouble=bool(failed or idle))
        return device
    # The processor's first: it is always there, so that what is wrong with it was most probably asked for.
    every = reversed([*listed.values()])
    reasons = [f"{adapter.name}: {adapter.reason}" for adapters in every for adapter in adapters if adapter.reason]
    reasons += [f"{adapter.label}: {avoided[adapter.label]}" for adapter in usable if adapter.label in avoided]
    raise DeviceNotAvailableError(f"no device is available: {'; '.join(reasons)}")


def _failure(info: AdapterInfo, taken: AdapterInfo) -> str:
    choice = "is retried, since there is no other" if info == taken else "is avoided"
    return f"{info.label} {choice}: {avoided[info.label]}"


def ranked(
    adapters: Sequence[AdapterInfo],
    listed: Mapping[str, Sequence[AdapterInfo]],
    open_backend: Callable[[AdapterInfo], Backend],
    power: str = "",
) -> list[_Choice]:
    """Return the adapters, the best first. Those of the most preferred kinds are measured if there are several."""
    order = _PREFERRED[power]
    groups = [[adapter for adapter in adapters if topology.kind_of(adapter) in kinds] for kinds in order]
    first, *other_groups = [group for group in groups if group] or [[]]
    others = [adapter for group in other_groups for adapter in group]
    prefers = f"power '{power}' prefers its kind, {topology.kind_of(first[0]) or 'a GPU'}" if others else ""
    if len(first) == 1:
        choices = [_Choice(first[0], prefers or _only(first[0], listed))]
    else:
        choices = _by_speed(first, open_backend, prefers)
    return [*choices, *(_Choice(adapter, "what was preferred could not be opened") for adapter in others)]


def _by_speed(
    adapters: Sequence[AdapterInfo], open_backend: Callable[[AdapterInfo], Backend], prefers: str
) -> list[_Choice]:
    seconds = {adapter.label: _measured(adapter, open_backend) for adapter in adapters}
    times = [sum(timing) for timing in seconds.values() if timing is not None]
    enough = _AS_FAST * min(times, default=0.0)
    measured = [adapter for adapter in adapters if seconds[adapter.label] is not None]
    measured.sort(key=lambda adapter: max(enough, sum(seconds[adapter.label] or ())))
    text = ", ".join(f"{adapter.label} {seconds[adapter.label]}" for adapter in measured)
    why = f"it was the fastest in a short measurement, or as fast as the fastest: {text}"
    # What could not be measured comes last; what is avoided by now is not tried again.
    others = [adapter for adapter in adapters if seconds[adapter.label] is None and adapter.label not in avoided]
    why = f"{prefers}; {why}" if prefers else why
    return [
        *(_Choice(adapter, why) for adapter in measured),
        *(_Choice(adapter, "it could not be measured") for adapter in others),
    ]


def _measured(info: AdapterInfo, open_backend: Callable[[AdapterInfo], Backend]) -> Figures | None:
    """Return the stored figures of a device, or those of a measurement now; None if that fails."""
    from . import figures, probes  # which one candidate does not need

    rates = figures.load(info)
    if rates is not None:
        return rates
    try:
        device = Device(open_backend(info))
        try:
            rates = probes.measure(device)
        finally:
            device.close()
    except OutOfDeviceMemoryError:
        return None
    except OptirsError as error:
        avoid(info.label, f"it failed when it was measured ({error})")
        return None
    figures.store(info, rates)
    return rates


def _may_be_taken(info: AdapterInfo) -> bool:
    """Return True for hardware, and for all adapters if OPTIRS_AUTO_SOFTWARE=1, which is for tests."""
    setting = os.environ.get("OPTIRS_AUTO_SOFTWARE", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_AUTO_SOFTWARE must be 0 or 1, not '{setting}'")
    return not info.software or setting == "1"


def _required(
    usable: Sequence[AdapterInfo], listed: Mapping[str, Sequence[AdapterInfo]], known: Collection[str]
) -> list[AdapterInfo]:
    """Return the adapters that OPTIRS_REQUIRE names; all of them if it names no device."""
    setting = os.environ.get("OPTIRS_REQUIRE", "")
    names = [name for name in map(str.strip, setting.split(",")) if name.partition(":")[0] in known]
    allowed = [adapter for adapter in usable if not names or adapter.name in names or adapter.label in names]
    if not allowed and names:
        other = f", and falling back to {usable[0].label} is not allowed" if usable else ""
        reasons = "; ".join(_why_not(name, listed.get(name.partition(":")[0], ())) for name in names)
        raise DeviceNotAvailableError(
            f"OPTIRS_REQUIRE={setting} allows 'auto' only {' or '.join(names)}{other}: {reasons}"
        )
    return allowed


def _why_not(label: str, adapters: Sequence[AdapterInfo]) -> str:
    for adapter in adapters:
        if not adapter.available:
            return f"{label} is unavailable ({adapter.reason})"
        if adapter.label == label and adapter.software:
            return f"{label} is software, which 'auto' never selects; name it, as in OPTIRS_DEVICE={label}"
    return f"{label} can only be selected by name, as in OPTIRS_DEVICE={label}"


def _only(info: AdapterInfo, listed: Mapping[str, Sequence[AdapterInfo]]) -> str:
    """Return the reason to take the only usable adapter."""
    others = [adapter for name, adapters in listed.items() for adapter in adapters if name != "cpu"]
    if info.name != "cpu" or any(adapter.available and not adapter.software for adapter in others):
        return "there is no other usable one"
    passed = [f"{adapter.label} is software" if adapter.available else f"no {adapter.name}" for adapter in others]
    return f"no hardware adapter was found ({', '.join(passed)})"

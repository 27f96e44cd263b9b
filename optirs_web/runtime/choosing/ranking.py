"""The choice of "auto" outside pages: the fastest device by a short measurement, of those preferred and well."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import DeviceNotAvailableError, OptirsError, OutOfDeviceMemoryError
from ..backend import AdapterInfo, Backend
from ..device import Device
from ..registry import avoid, avoided
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
    """A device, and why it comes where it comes."""

    info: AdapterInfo
    why: str


def best(
    listed: Mapping[str, Sequence[AdapterInfo]],
    known: Collection[str],
    open_backend: Callable[[AdapterInfo], Backend],
    open_as: Callable[[AdapterInfo, str], Device],
    power: str = "",
) -> Device:
    """The device that "auto" takes, open.

    Args:
        listed: the adapters by name, in the order of preference; the processor comes last.
        known: the names that there are.
        open_backend: opens an adapter for a measurement.
        open_as: opens it as a device, with the reason why it was chosen.
        power: "low", "high" or "".

    Raises:
        DeviceNotAvailableError: there is none, or OPTIRS_REQUIRE has none of them.
    """
    found = [one for adapters in listed.values() for one in adapters if one.available and _may_be_taken(one)]
    allowed = _required(found, listed, known)
    well = [one for one in allowed if one.label not in avoided]
    idle = topology.idle_gpus() if all(one.name == "cpu" for one in found) else ""
    for info, reason in ranked(well or allowed, listed, open_backend, power):
        failed = [_failure(one, info) for one in found if one.label in avoided]
        why = "; ".join(one for one in (reason, *failed, idle) if one)
        try:
            device = open_as(info, why)
        except DeviceNotAvailableError as error:
            avoid(info.label, f"it could not be opened ({error})")
            continue
        if failed or all(one.name == "cpu" for one in found):
            say_once(f"'auto' takes {device.name}: {why}", is_trouble=bool(failed or idle))
        return device
    # The processor's first: it is always there, so that what is wrong with it was most probably asked for.
    every = reversed([*listed.values()])
    reasons = [f"{one.name}: {one.reason}" for adapters in every for one in adapters if one.reason]
    reasons += [f"{one.label}: {avoided[one.label]}" for one in found if one.label in avoided]
    raise DeviceNotAvailableError(f"no device is available: {'; '.join(reasons)}")


def _failure(info: AdapterInfo, taken: AdapterInfo) -> str:
    how = "is retried, since there is no other" if info == taken else "is avoided"
    return f"{info.label} {how}: {avoided[info.label]}"


def ranked(
    adapters: Sequence[AdapterInfo],
    listed: Mapping[str, Sequence[AdapterInfo]],
    open_backend: Callable[[AdapterInfo], Backend],
    power: str = "",
) -> list[_Choice]:
    """The adapters, the best first. Those of the kinds that come first are measured where they are several."""
    order = _PREFERRED[power]
    groups = [[one for one in adapters if topology.kind_of(one) in kinds] for kinds in order]
    first, *others = [one for one in groups if one] or [[]]
    rest = [one for group in others for one in group]
    prefers = f"power '{power}' prefers its kind, {topology.kind_of(first[0]) or 'a GPU'}" if rest else ""
    if len(first) == 1:
        choices = [_Choice(first[0], prefers or _only(first[0], listed))]
    else:
        choices = _by_speed(first, open_backend, prefers)
    return [*choices, *(_Choice(one, "what was preferred could not be opened") for one in rest)]


def _by_speed(
    adapters: Sequence[AdapterInfo], open_backend: Callable[[AdapterInfo], Backend], prefers: str
) -> list[_Choice]:
    seconds = {one.label: _measured(one, open_backend) for one in adapters}
    times = [sum(one) for one in seconds.values() if one is not None]
    enough = _AS_FAST * min(times, default=0.0)
    measured = [one for one in adapters if seconds[one.label] is not None]
    measured.sort(key=lambda one: max(enough, sum(seconds[one.label] or ())))
    text = ", ".join(f"{one.label} {seconds[one.label]}" for one in measured)
    why = f"it was the fastest in a short measurement, or as fast as the fastest: {text}"
    # What could not be measured comes last; what is avoided by now is not tried again.
    others = [one for one in adapters if seconds[one.label] is None and one.label not in avoided]
    why = f"{prefers}; {why}" if prefers else why
    return [*(_Choice(one, why) for one in measured), *(_Choice(one, "it could not be measured") for one in others)]


def _measured(info: AdapterInfo, open_backend: Callable[[AdapterInfo], Backend]) -> Figures | None:
    """The figures that are kept, or those of a measurement now; None where it fails."""
    from . import figures, probes  # which one candidate does not need

    found = figures.load(info)
    if found is not None:
        return found
    try:
        device = Device(open_backend(info))
        try:
            found = probes.measure(device)
        finally:
            device.close()
    except OutOfDeviceMemoryError:
        return None
    except OptirsError as error:
        avoid(info.label, f"it failed when it was measured ({error})")
        return None
    figures.store(info, found)
    return found


def _may_be_taken(info: AdapterInfo) -> bool:
    """Software adapters are not, unless OPTIRS_AUTO_SOFTWARE=1 says so, which is for tests."""
    said = os.environ.get("OPTIRS_AUTO_SOFTWARE", "")
    if said not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_AUTO_SOFTWARE must be 0 or 1, not '{said}'")
    return not info.software or said == "1"


def _required(
    found: Sequence[AdapterInfo], listed: Mapping[str, Sequence[AdapterInfo]], known: Collection[str]
) -> list[AdapterInfo]:
    """Those that OPTIRS_REQUIRE names; all of them where it names no device."""
    said = os.environ.get("OPTIRS_REQUIRE", "")
    names = [one for one in map(str.strip, said.split(",")) if one.partition(":")[0] in known]
    allowed = [one for one in found if not names or one.name in names or one.label in names]
    if not allowed and names:
        other = f", and falling back to {found[0].label} is not allowed" if found else ""
        reasons = "; ".join(_why_not(one, listed.get(one.partition(":")[0], ())) for one in names)
        raise DeviceNotAvailableError(
            f"OPTIRS_REQUIRE={said} allows 'auto' only {' or '.join(names)}{other}: {reasons}"
        )
    return allowed


def _why_not(label: str, adapters: Sequence[AdapterInfo]) -> str:
    for one in adapters:
        if not one.available:
            return f"{label} is unavailable ({one.reason})"
        if one.label == label and one.software:
            return f"{label} is software, which 'auto' never selects; name it, as in OPTIRS_DEVICE={label}"
    return f"{label} can only be selected by name, as in OPTIRS_DEVICE={label}"


def _only(info: AdapterInfo, listed: Mapping[str, Sequence[AdapterInfo]]) -> str:
    """Why this one is taken where there is no other."""
    others = [one for name, adapters in listed.items() for one in adapters if name != "cpu"]
    if info.name != "cpu" or any(one.available and not one.software for one in others):
        return "there is no other usable one"
    passed = [f"{one.label} is software" if one.available else f"no {one.name}" for one in others]
    return f"no hardware adapter was found ({', '.join(passed)})"

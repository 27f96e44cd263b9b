"""The list of devices, and the choice among them. No other module knows backends by name; they are imported lazily."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import DeviceNotAvailableError
from . import open_devices
from .backend import AdapterInfo, Backend
from .stats import Stats

if TYPE_CHECKING:  # loaded while a browser looks for its adapter, which `device_async` asks for first
    from .device import Device

__all__ = [
    "adapters",
    "check_name",
    "close_device",
    "device",
    "device_async",
    "devices",
    "devices_async",
    "opened",
    "set_memory_limit",
    "stats",
]

_BACKENDS = {
    "webgpu": "optirs_web.browser",
    "vulkan": "optirs_web.native_backends.wgpu.backend",
    "metal": "optirs_web.native_backends.wgpu.backend",
    "dx12": "optirs_web.native_backends.wgpu.backend",
    "gl": "optirs_web.native_backends.wgpu.backend",
    "cpu": "optirs_web.native_backends.cpu.backend",
    "cuda": "optirs_web.native_backends.cuda.backend",
    "opencl": "optirs_web.native_backends.opencl.backend",
    "xla": "optirs_web.native_backends.xla.backend",
}

_THROUGH = {
    "dawn": {f"{name}-dawn": "optirs_web.native_backends.wgpu.dawn" for name in ("vulkan", "metal", "dx12")},
}
"""By other package that opens adapters, the names of its devices and their modules. "auto" does not take them."""

_MODULES = {**_BACKENDS, **_THROUGH["dawn"]}

_IN_BROWSER = ("webgpu",)
"""Backends of a browser. They are opened by awaiting, and have `probe_async` and `open_backend_async`."""

_AUTO_ORDER = ("webgpu", "metal", "cuda", "vulkan", "dx12", "opencl")
"""Hardware, which "auto" compares with the processor; in this order where it is as fast. OpenGL is taken only by name,
and so are software adapters, except in a browser without NumPy. What is native is chosen by `choosing`."""

_POWER = ("low", "high")

_IS_PAGE: bool = sys.platform == "emscripten"

_closed_stats = Stats()
_set_limit: list[int | None] = []  # the last argument of set_memory_limit, if it was called


def _list(name: str) -> list[AdapterInfo]:
    if _IS_PAGE and name not in ("webgpu", "cpu"):
        return [AdapterInfo(name, 0, "", available=False, reason="it runs natively; in a browser use webgpu")]
    try:
        backend: Any = importlib.import_module(_MODULES[name])
        adapters: list[AdapterInfo] = backend.list_adapters(name)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "optirs_web":
            raise
        reason = f"{package} is not installed: pyodide.loadPackage('{package}')"
        if not _IS_PAGE:
            from .choosing import packages  # which a page does not need

            reason = packages.reason(package, error)
        return [AdapterInfo(name, 0, "", available=False, reason=reason)]
    except (OSError, RuntimeError) as error:
        return [AdapterInfo(name, 0, "", available=False, reason=f"looking for adapters failed: {error}")]
    return adapters


def devices() -> list[AdapterInfo]:
    """Return every device, and for every name without a device the reason, as `AdapterInfo`.

    Example:
        >>> import optirs_web as ow
        >>> [adapter.kind for adapter in ow.devices() if adapter.name == "cpu"]
        ['cpu']
    """
    return adapters(_BACKENDS)


def adapters(names: Iterable[str] = (*_AUTO_ORDER, "gl")) -> list[AdapterInfo]:
    """Return the devices of these names; by default of GPUs, without loading the packages of other devices."""
    _forget_lost()
    adapters = [adapter for name in names for adapter in _list(name)]
    if _IS_PAGE:
        return adapters
    from .choosing import topology  # which few programs need

    return topology.completed(adapters, open_devices.avoided)


async def devices_async() -> list[AdapterInfo]:
    """The awaitable twin of `devices`: for a browser without JavaScript Promise Integration."""
    await _probe_async()
    return devices()


async def _probe_async() -> None:
    for name in _IN_BROWSER:
        backend: Any = importlib.import_module(_BACKENDS[name])
        await backend.probe_async()


def device(name: str | Device | None = None, *, power: str | None = None, through: str | None = None) -> Device:
    """Return the device of that name; the same object each time.

    Args:
        name: "auto", a name from `devices()` such as "vulkan" or "cpu", or "vulkan:1" for the second of a
            kind. None means the environment variable OPTIRS_DEVICE, or "auto" where it is not set. "auto"
            takes the processor or a hardware adapter, whichever was the faster in a short measurement, which is kept
            in the user's cache folder; a software adapter only in a browser without NumPy. It avoids a device that was
            lost or keeps failing, until that is asked for by its name. OPTIRS_REQUIRE names those that it may take.
        power: what "auto" prefers: "low" an integrated GPU, "high" a discrete one; in a page the browser decides. None
            means the environment variable OPTIRS_POWER, or neither where it is not set.
        through: "dawn" opens "vulkan", "metal" or "dx12" with the package wgpudawn instead of wgpu: another device,
            named "vulkan-dawn" and so on, which "auto" does not take.

    Raises:
        DeviceNotAvailableError: there is no such device; the message says what was probed.
        UnsupportedError: in a browser that cannot wait; await `device_async` there, once.
        ValueError: `power` or `through` is none of these, or the name cannot be combined with it.

    Example:
        >>> import optirs_web as ow
        >>> ow.device("cpu").name
        'cpu'
    """
    if name is not None and not isinstance(name, str):
        return _checked_device(name, power, through)
    if through is not None:
        name = _name_through(name, through)
    name = _requested(name, power)
    opened_device = open_devices.by_name.get(name)
    if opened_device is None or opened_device.lost:
        _forget_lost()
        with open_devices.opening:
            opened_device = open_devices.by_name.get(name) or _select_and_open(name)
            open_devices.by_name[name] = opened_device
    open_devices.avoided.pop(name, None)
    return opened_device


async def device_async(name: str | Device | None = None, *, power: str | None = None) -> Device:
    """The awaitable twin of `device`: ``await ow.device_async("webgpu")``. Afterwards `device` returns it at once."""
    if name is not None and not isinstance(name, str):
        return _checked_device(name, power)
    name = _requested(name, power)
    _forget_lost()
    if name not in open_devices.by_name:
        await _probe_async()
        if not _IS_PAGE:
            return device(name)
        info, why = _select(name)
        if info.name not in _IN_BROWSER:
            return device(name)
        if info.label not in open_devices.by_name:
            backend = await _module(info).open_backend_async(info)
            if info.label in open_devices.by_name:  # another task was faster
                backend.close()
            else:
                _keep(backend, why)
        open_devices.by_name[name] = open_devices.by_name[info.label]
    return open_devices.by_name[name]


def _checked_device(target: object, *options: str | None) -> Device:
    from .device import Device

    if isinstance(target, Device):
        if any(options):
            raise ValueError(f"power and through are for devices that are yet to be opened, unlike {target.name}")
        return target
    raise TypeError(f"a device is given by its name, not {target!r} (a shape is one argument: a tuple)")


def _requested(name: str | None, power: str | None) -> str:
    """Return the name; for "auto" with the preferred power after it."""
    if power is not None and name not in (None, "auto"):
        raise ValueError(f"power is for 'auto' only; '{name}' already names a device")
    name = (os.environ.get("OPTIRS_DEVICE") or "auto") if name is None else name
    power = power or os.environ.get("OPTIRS_POWER")
    if name != "auto" or not power:
        return name
    if power not in _POWER:
        raise ValueError(f"power (or OPTIRS_POWER) must be one of {', '.join(_POWER)}, not '{power}'")
    if _IS_PAGE:
        importlib.import_module(_BACKENDS["webgpu"]).prefer(power)
        return name
    return f"auto {power}"


def _name_through(name: str | None, through: str) -> str:
    """Return the name of a device that another package opens."""
    if through not in _THROUGH:
        raise ValueError(f"through must be one of {', '.join(_THROUGH)}, not {through!r}")
    kind, colon, index = (name or "").partition(":")
    if f"{kind}-{through}" not in _THROUGH[through]:
        names = ", ".join(name.removesuffix(f"-{through}") for name in _THROUGH[through])
        raise ValueError(f"{through} opens {names}, not {name!r}")
    return f"{kind}-{through}{colon}{index}"


def _select_and_open(name: str) -> Device:
    kind, _, power = name.partition(" ")
    if kind == "auto" and not _IS_PAGE:
        from .choosing import ranking  # which a page does not need

        order = [name for name in _AUTO_ORDER if name not in _IN_BROWSER]
        listed = {name: _list(name) for name in (*order, "cpu")}
        return ranking.best(listed, _BACKENDS, _open_backend, _open_as, power)
    return _open_as(*_select(name))


def _open_backend(info: AdapterInfo) -> Backend:
    backend: Backend = _module(info).open_backend(info)
    return backend


def _open_as(info: AdapterInfo, why: str) -> Device:
    opened_device = open_devices.by_name.get(info.label) or _keep(_open_backend(info), why)
    open_devices.avoided.pop(info.label, None)
    return opened_device


def _select(name: str) -> tuple[AdapterInfo, str]:
    return _choose() if name == "auto" else (_find(name), "asked for by name")


def _module(info: AdapterInfo) -> Any:
    return importlib.import_module(_MODULES[info.name])


def _forget_lost() -> None:
    global _closed_stats
    if not any(opened_device.lost for opened_device in list(open_devices.by_name.values())):
        return
    with open_devices.opening:
        lost = {
            id(opened_device): opened_device
            for opened_device in list(open_devices.by_name.values())
            if opened_device.lost
        }
        for name in [name for name, opened_device in list(open_devices.by_name.items()) if id(opened_device) in lost]:
            del open_devices.by_name[name]
        _closed_stats = sum((opened_device.stats for opened_device in lost.values()), _closed_stats)
    for opened_device in lost.values():
        if not opened_device.closed and not _IS_PAGE:  # a browser takes devices away, and gives them back
            open_devices.avoided[opened_device.name] = "it was lost"


def _keep(backend: Backend, why: str) -> Device:
    from .device import Device

    opened_device = open_devices.by_name[backend.info.label] = Device(backend, why)
    if _set_limit:
        opened_device.set_memory_limit(_set_limit[-1])
    return opened_device


def _kind_and_number(name: str) -> tuple[str, int]:
    kind, _, index = name.partition(":")
    if kind not in _MODULES:
        raise DeviceNotAvailableError(f"there is no device '{name}'; known are auto, {', '.join(_MODULES)}")
    if index and not index.isdecimal():
        raise DeviceNotAvailableError(f"'{name}' is not a device: write {kind}:0, {kind}:1, ...")
    return kind, int(index or 0)


def check_name(name: str) -> None:
    """Check that a device may have this name, here or on another machine.

    Raises:
        DeviceNotAvailableError: none has.
    """
    if name != "auto":
        _kind_and_number(name)


def _find(name: str) -> AdapterInfo:
    kind, number = _kind_and_number(name)
    adapters = _list(kind)
    if not adapters[0].available:
        raise DeviceNotAvailableError(f"device '{name}' is not available: {adapters[0].reason}")
    if number >= len(adapters):
        raise DeviceNotAvailableError(
            f"device '{name}' is not available: there are {len(adapters)} of that kind, from 0 on"
        )
    return adapters[number]


def _choose() -> tuple[AdapterInfo, str]:
    """Return the adapter that "auto" takes in a page (hardware, else the processor, else software), and the reason."""
    adapter = _list("webgpu")[0]
    if adapter.available and not adapter.software:
        return adapter, "it is the browser's hardware adapter"
    cpu = _list("cpu")[0]
    why = f"no hardware adapter was found ({'webgpu is software' if adapter.available else 'no webgpu'})"
    if cpu.available:
        return cpu, why
    if adapter.available:
        return adapter, f"{why}, and for the processor {cpu.reason}"
    reasons = "; ".join(f"{adapter.name}: {adapter.reason}" for adapter in devices() if not adapter.available)
    raise DeviceNotAvailableError(f"no device is available: {reasons}")


def close_device(target: str | Device | None) -> None:
    """Release a device and forget it: the next `device()` opens it again. Its contents are lost.

    Args:
        target: the device, or what `device` takes in its place; one that is not open is left alone. Tensors that are
            left there raise DeviceLostError.
    """
    if target is None or isinstance(target, str):
        name = _requested(target, None)
        _forget_lost()
        if not name.startswith("auto"):
            kind, number = _kind_and_number(name)
            name = f"{kind}:{number}" if number else kind
        opened_device = open_devices.by_name.get(name)
    else:
        opened_device = _checked_device(target)
    if opened_device is not None:
        opened_device.close()
        _forget_lost()


def opened() -> list[Device]:
    """Return the devices that are open now."""
    return list(dict.fromkeys(list(open_devices.by_name.values())))


def set_memory_limit(nbytes: int | None) -> None:
    """Allow each device, open now or later, at most `nbytes` bytes; None lifts the limit.

    Until it is called, the environment variable OPTIRS_MEMORY_LIMIT decides.

    Raises:
        ValueError: the limit is negative.

    Example:
        >>> import optirs_web as ow
        >>> ow.set_memory_limit(1 << 30)
        >>> ow.memory_stats("cpu").limit
        1073741824
        >>> ow.set_memory_limit(None)
    """
    for opened_device in opened():
        opened_device.set_memory_limit(nbytes)
    _set_limit[:] = [nbytes]


def _after_fork() -> None:
    """Renew the locks of devices in the child: the threads that held them are not in this process."""
    for opened_device in opened():
        opened_device.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def stats() -> Stats:
    """Return counts over all devices since the process began; the difference of two counts is what happened between.

    Example:
        >>> import optirs_web as ow
        >>> before = ow.stats()
        >>> _ = ow.ones((4,), device="cpu") + 1.0
        >>> (ow.stats() - before).dispatches
        2
    """
    return sum((opened_device.stats for opened_device in opened()), _closed_stats)

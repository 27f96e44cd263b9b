"""Which devices there are, and which one to take. The only place that knows backends, by name, lazily."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from ..errors import DeviceNotAvailableError
from .backend import AdapterInfo, Backend
from .device import Device
from .stats import Stats

__all__ = [
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
    "vulkan": "optirs_web.native_backends.wgpu",
    "metal": "optirs_web.native_backends.wgpu",
    "dx12": "optirs_web.native_backends.wgpu",
    "gl": "optirs_web.native_backends.wgpu",
    "cpu": "optirs_web.native_backends.cpu",
}

_IN_BROWSER = ("webgpu",)
"""Backends of a browser. They are opened by awaiting, and have `probe_async` and `open_backend_async`."""

_AUTO_ORDER = ("webgpu", "metal", "vulkan", "dx12")
"""Hardware in this order, then the processor. OpenGL is taken only by name, and so are software adapters, except in a
browser without NumPy."""

_opened: dict[str, Device] = {}
_closed_stats = Stats()
_set_limit: list[int | None] = []  # what set_memory_limit was told last, if it was called


def _list(name: str) -> list[AdapterInfo]:
    if sys.platform == "emscripten" and _BACKENDS[name].endswith(".wgpu"):
        return [AdapterInfo(name, 0, "", available=False, reason="it runs natively; in a browser use webgpu")]
    try:
        backend: Any = importlib.import_module(_BACKENDS[name])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "optirs_web"):
            raise
        how = f"pyodide.loadPackage('{package}')" if sys.platform == "emscripten" else f"pip install {package}"
        reason = f"{package} is not installed: {how}"
        return [AdapterInfo(name, 0, "", available=False, reason=reason)]
    try:
        adapters: list[AdapterInfo] = backend.list_adapters(name)
    except (OSError, RuntimeError) as error:
        return [AdapterInfo(name, 0, "", available=False, reason=f"looking for adapters failed: {error}")]
    return adapters


def devices() -> list[AdapterInfo]:
    """Every device, and for every name that has none the reason.

    Example:
        >>> import optirs_web as ow
        >>> [one.name for one in ow.devices() if one.name == "cpu"]
        ['cpu']
    """
    return [adapter for name in _BACKENDS for adapter in _list(name)]


async def devices_async() -> list[AdapterInfo]:
    """The awaitable twin of `devices`: for a browser without JavaScript Promise Integration."""
    await _probe_async()
    return devices()


async def _probe_async() -> None:
    for name in _IN_BROWSER:
        backend: Any = importlib.import_module(_BACKENDS[name])
        await backend.probe_async()


def device(name: str | Device | None = None) -> Device:
    """The device of that name; the same object each time.

    Args:
        name: "auto", a name from `devices()` such as "vulkan" or "cpu", or "vulkan:1" for the second of a
            kind. None means the environment variable OPTIRS_DEVICE, or "auto" where it is not set. "auto"
            takes a hardware adapter if there is one, otherwise the processor; a software adapter only in a browser
            without NumPy.

    Raises:
        DeviceNotAvailableError: there is no such device; the message says what was probed.
        UnsupportedError: in a browser that cannot wait; await `device_async` there, once.

    Example:
        >>> import optirs_web as ow
        >>> ow.device("cpu").name
        'cpu'
    """
    if isinstance(name, Device):
        return name
    name = _asked(name)
    if name not in _opened:
        info, why = _select(name)
        _opened[name] = _opened.get(info.label) or _keep(_module(info).open_backend(info), why)
    return _opened[name]


async def device_async(name: str | Device | None = None) -> Device:
    """The awaitable twin of `device`: ``await ow.device_async("webgpu")``. Afterwards `device` gives it at once."""
    if isinstance(name, Device):
        return name
    name = _asked(name)
    if name not in _opened:
        await _probe_async()
        info, why = _select(name)
        if info.name not in _IN_BROWSER:
            return device(name)
        if info.label not in _opened:
            backend = await _module(info).open_backend_async(info)
            if info.label in _opened:  # another task was faster
                backend.close()
            else:
                _keep(backend, why)
        _opened[name] = _opened[info.label]
    return _opened[name]


def _asked(name: str | None) -> str:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"a device is given by its name, not {name!r} (a shape is one argument: a tuple)")
    _forget_lost()
    return (os.environ.get("OPTIRS_DEVICE") or "auto") if name is None else name


def _select(name: str) -> tuple[AdapterInfo, str]:
    return _choose() if name == "auto" else (_find(name), "asked for by name")


def _module(info: AdapterInfo) -> Any:
    return importlib.import_module(_BACKENDS[info.name])


def _forget_lost() -> None:
    global _closed_stats
    lost = {id(one): one for one in _opened.values() if one.lost}
    for name in [name for name, one in _opened.items() if id(one) in lost]:
        del _opened[name]
    _closed_stats = sum((one.stats for one in lost.values()), _closed_stats)


def _keep(backend: Backend, why: str) -> Device:
    opened_device = _opened[backend.info.label] = Device(backend, why)
    if _set_limit:
        opened_device.set_memory_limit(_set_limit[-1])
    return opened_device


def _find(name: str) -> AdapterInfo:
    kind, _, index = name.partition(":")
    if kind not in _BACKENDS:
        raise DeviceNotAvailableError(f"there is no device '{name}'; known are auto, {', '.join(_BACKENDS)}")
    if index and not index.isdecimal():
        raise DeviceNotAvailableError(f"'{name}' is no device: write {kind}:0, {kind}:1, ...")
    adapters = _list(kind)
    number = int(index or 0)
    if not adapters[0].available:
        raise DeviceNotAvailableError(f"device '{name}' is not available: {adapters[0].reason}")
    if number >= len(adapters):
        raise DeviceNotAvailableError(f"device '{name}' is not available: there are {len(adapters)} of that kind")
    return adapters[number]


def _choose() -> tuple[AdapterInfo, str]:
    probed = []
    software = None
    in_browser = sys.platform == "emscripten"
    for name in (one for one in _AUTO_ORDER if in_browser == (one in _IN_BROWSER)):
        for adapter in _list(name):
            if adapter.available and not adapter.software:
                return adapter, f"it is the first hardware adapter found, in the order {', '.join(_AUTO_ORDER)}"
            if in_browser and adapter.available:
                software = adapter
            probed.append(f"{adapter.label} is software" if adapter.available else f"no {name}")
    why = f"no hardware adapter was found ({', '.join(probed)})"
    cpu = _list("cpu")[0]
    if cpu.available:
        return cpu, why
    if software is not None:
        return software, f"{why}, and for the processor {cpu.reason}"
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in devices() if not one.available)
    raise DeviceNotAvailableError(f"no device is available: {reasons}")


def close_device(target: Device) -> None:
    """Release a device and forget it: the next `device()` opens it anew. What lay on it is lost."""
    target.close()
    _forget_lost()


def opened() -> list[Device]:
    """The devices that are open now."""
    return list(dict.fromkeys(_opened.values()))


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
    for one in opened():
        one.set_memory_limit(nbytes)
    _set_limit[:] = [nbytes]


def stats() -> Stats:
    """Counts over all devices since the process began; subtract two for what happened in between.

    Example:
        >>> import optirs_web as ow
        >>> before = ow.stats()
        >>> _ = ow.ones((4,), device="cpu") + 1.0
        >>> (ow.stats() - before).dispatches
        2
    """
    return sum((one.stats for one in opened()), _closed_stats)

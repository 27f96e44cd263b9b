"""WebGPU in the browser: a Device over ``navigator.gpu``, from Python in Pyodide, in a page or a worker.

A small script in the wheel, `transport.js`, makes the calls of WebGPU. Calls that wait need JavaScript Promise
Integration (JSPI); without it they raise an error that names their awaitable twins.
"""

from __future__ import annotations

import sys

from ..runtime.backend import AdapterInfo, Backend

__all__ = ["list_adapters", "open_backend", "open_backend_async", "prefer", "probe_async"]

_IN_BROWSER: bool = sys.platform == "emscripten"
_NATIVE = "it runs in a browser, inside Pyodide; natively use vulkan, metal or dx12"


def list_adapters(name: str) -> list[AdapterInfo]:
    """Return the browser's adapter, or an entry that has the reason why there is none."""
    if not _IN_BROWSER:
        return [AdapterInfo(name, 0, "", available=False, reason=_NATIVE)]
    from . import adapters

    return [adapters.adapter_info()]


def prefer(power: str) -> None:
    """Set the power, "low" or "high", for the request of the adapter; without effect after that request."""
    from . import adapters

    adapters.power = {"low": "low-power", "high": "high-performance"}[power]


async def probe_async() -> None:
    """Request the browser's adapter, so that `list_adapters` need not wait for it."""
    if _IN_BROWSER:
        from . import adapters

        await adapters.probe_async()


def open_backend(info: AdapterInfo) -> Backend:
    """Open the adapter, and wait until it is open.

    Raises:
        DeviceNotAvailableError: the browser refuses.
        UnsupportedError: the browser cannot wait.
    """
    from .adapters import open_adapter

    return open_adapter(info)


async def open_backend_async(info: AdapterInfo) -> Backend:
    """The awaitable twin of `open_backend`."""
    from .adapters import open_adapter_async

    return await open_adapter_async(info)

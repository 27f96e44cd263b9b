"""WebGPU in the browser: a Device over ``navigator.gpu``, from Python in Pyodide, in a page or a worker.

What talks to WebGPU is one small script, `transport.js`, that travels in the wheel. Calls that wait need JavaScript
Promise Integration (JSPI); without it they say so, and their awaitable twins are used.
"""

from __future__ import annotations

import sys

from ..runtime.backend import AdapterInfo, Backend

__all__ = ["list_adapters", "open_backend", "open_backend_async", "prefer", "probe_async"]

_IN_BROWSER: bool = sys.platform == "emscripten"
_NATIVE = "it runs in a browser, inside Pyodide; natively use vulkan, metal or dx12"


def list_adapters(name: str) -> list[AdapterInfo]:
    """The browser's adapter, or why there is none."""
    if not _IN_BROWSER:
        return [AdapterInfo(name, 0, "", available=False, reason=_NATIVE)]
    from . import adapters

    return [adapters.found()]


def prefer(power: str) -> None:
    """Ask the browser for an adapter of "low" or "high" power, unless it was asked for its adapter already."""
    from . import adapters

    adapters.power = {"low": "low-power", "high": "high-performance"}[power]


async def probe_async() -> None:
    """Ask the browser for its adapter, so that `list_adapters` need not wait for it."""
    if _IN_BROWSER:
        from . import adapters

        await adapters.probe_async()


def open_backend(info: AdapterInfo) -> Backend:
    """Open the adapter. Waits.

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

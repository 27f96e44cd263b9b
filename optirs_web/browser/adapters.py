"""The adapter of this browser: requests it once, describes it and opens its device."""

from __future__ import annotations

import asyncio
import json
import os
import pkgutil
from collections.abc import Awaitable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException

from ..errors import DeviceNotAvailableError, ShaderError
from ..runtime.backend import AdapterInfo, Capabilities
from .waiting import can_wait, need_waiting, wait

if TYPE_CHECKING:  # loaded while the browser compiles
    from .backend import BrowserBackend

__all__ = ["adapter_info", "open_adapter", "open_adapter_async", "probe_async"]

_HELP = (
    "WebGPU is in Chrome and Edge from 113 (Linux: 144, before that enable chrome://flags/#enable-unsafe-webgpu; "
    "chrome://gpu tells what was found), in Safari from 26, and in Firefox from 141 on Windows and 145 on macOS "
    "(about:config, dom.webgpu.enabled)"
)

_modules = iter(("runtime.rule_kernels", "autograd", "ops.creation", "tensors", "compiled"))
"""Modules that every training program needs. `_meanwhile` loads them, each once."""

_adapter: Any = None
"""The adapter as `transport.js` returned it; None if there is none."""
_answered = False

power: str | None = None
"""The preferred power, as WebGPU's `powerPreference`."""


def _request() -> Any:
    """Request an adapter and return the promise.

    A page whose content security policy forbids eval registers the script itself, as the JavaScript module
    ``optirs_web_transport`` with a member `request`.
    """
    try:
        from optirs_web_transport import request
    except ImportError:
        script = pkgutil.get_data(__package__, "transport.js")
        assert script is not None  # it is next to this file
        request = run_js(script.decode())
    return request(power, _experimental_feature())


def _experimental_feature() -> str:
    """Return the name of the experimental feature that the user asks for; "" if none."""
    if not os.environ.get("OPTIRS_SUBGROUP_MATRICES"):
        return ""
    from ..runtime.subgroup_matrices import FEATURE, asked_for_matrices

    return FEATURE if asked_for_matrices() else ""


async def _meanwhile(promise: Awaitable[Any]) -> Any:
    """Return the value of a promise, and import modules while the browser works on it in another process."""
    task = asyncio.ensure_future(promise)
    for name in _modules:
        import_module(f"optirs_web.{name}")
        await asyncio.sleep(0)
        if task.done():
            break
    return await task


async def probe_async() -> None:
    """Request the adapter, unless that was done before."""
    if not _answered:
        _keep(await _request())


def _keep(adapter: Any) -> None:
    global _adapter, _answered
    _adapter, _answered = adapter, True


def _missing() -> str:
    if not js.isSecureContext:
        return f"the page is not secure: WebGPU needs https, or localhost. {_HELP}"
    if not getattr(js.navigator, "gpu", None):
        return f"this browser lacks WebGPU or has it disabled. {_HELP}"
    return f"this browser has WebGPU, but found no graphics adapter for it. {_HELP}"


def adapter_info() -> AdapterInfo:
    """Return the adapter's description; wait for the browser if the adapter was not requested before."""
    if not _answered:
        if not can_wait() and getattr(js.navigator, "gpu", None):
            reason = "ask the browser first: await optirs_web.device_async('webgpu')"
            return AdapterInfo("webgpu", 0, "", available=False, reason=reason)
        _keep(wait(_request()) if can_wait() else None)
    if _adapter is None:
        return AdapterInfo("webgpu", 0, "", available=False, reason=_missing())
    about = json.loads(_adapter.about)
    return AdapterInfo(
        "webgpu", 0, about["description"], software=about["software"], features=frozenset(about["features"])
    )


def open_adapter(info: AdapterInfo) -> BrowserBackend:
    """Open the adapter's device, and wait until it is open."""
    need_waiting("device()", "optirs_web.device_async()")
    backend: BrowserBackend = wait(open_adapter_async(info))
    return backend


async def open_adapter_async(info: AdapterInfo) -> BrowserBackend:
    """The awaitable twin of `open_adapter`."""
    try:
        transport = await _adapter.open()
    except JsException as error:
        raise _refused(info, error) from error
    # The browser loads its compiler while these are loaded.
    from ..runtime.products import ask_for_quads, is_refusal_of_quads, note_quads, tile_class
    from ..runtime.subgroups import reduces_by_subgroups

    backend = _opened(info, transport)
    is_d3d12 = "Windows" in js.navigator.userAgent
    backend.capabilities = replace(
        backend.capabilities,
        tiles=tile_class(info, is_d3d12=is_d3d12),
        subgroups=reduces_by_subgroups(info),
        **_matrices(),
    )
    counted = ask_for_quads(backend)
    if counted is not None:
        try:
            note_quads(backend, counted, await _meanwhile(backend.read_async(counted, 0, 4)))
        except ShaderError as error:  # the browser's compiler reports only now
            backend.free(counted)
            if not is_refusal_of_quads(error):
                raise
    return backend


def _matrices() -> dict[str, Any]:
    """Return the capabilities of subgroup matrices; {} if the user asks for none or the adapter has none."""
    if _experimental_feature() not in json.loads(_adapter.about)["features"]:
        return {}
    from ..runtime.subgroup_matrices import matrix_shapes  # rarely needed

    about = json.loads(_adapter.about)
    largest = about["largestSubgroup"]
    return {"matrices": matrix_shapes(about["matrices"], about["features"], largest), "largest_subgroup": largest}


def _refused(info: AdapterInfo, error: JsException) -> DeviceNotAvailableError:
    return DeviceNotAvailableError(f"{info} refused to open: {error}")


def _opened(info: AdapterInfo, transport: Any) -> BrowserBackend:
    about = json.loads(_adapter.about)
    limits = about["limits"]
    capabilities = Capabilities(
        max_buffer_bytes=limits["maxBufferSize"],
        max_binding_bytes=limits["maxStorageBufferBindingSize"],
        max_storage_buffers=limits["maxStorageBuffersPerShaderStage"],
        offset_alignment=limits["minStorageBufferOffsetAlignment"],
        max_workgroups=limits["maxComputeWorkgroupsPerDimension"],
        features=frozenset(about["features"]),
        max_invocations=min(limits["maxComputeInvocationsPerWorkgroup"], limits["maxComputeWorkgroupSizeX"]),
        max_workgroup_bytes=limits["maxComputeWorkgroupStorageSize"],
    )
    from .backend import BrowserBackend

    return BrowserBackend(info, capabilities, transport)

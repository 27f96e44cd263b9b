"""Vulkan, Metal and DX12 through Dawn, the WebGPU of Chromium, by wgpudawn, which has wgpu-py's API."""

from __future__ import annotations

from typing import Any, Literal

import wgpudawn
from wgpudawn.backends.dawn import extras

from ..runtime.backend import AdapterInfo
from . import wgpu
from .wgpu_packages import WgpuPackage

__all__ = ["list_adapters", "open_backend"]


class _Dawn(WgpuPackage):
    host: Literal["naga", "tint"] = "tint"
    suffix = "-dawn"

    def why_no_adapter(self, api: str) -> str:
        refused = [one.description for one in wgpu.list_adapters(api) if one.available]
        if not refused:
            return super().why_no_adapter(api)
        names = " and ".join(refused)
        return f"Dawn refuses {names}, and has written to the terminal what it misses; '{api}' opens it through wgpu"

    def request_device(self, adapter: Any, limits: dict[str, int]) -> Any:
        self.forget_adapters()  # each gives one device
        return extras.request_device_sync(
            adapter,
            required_features=self.features_of(adapter),
            required_limits=limits,
            enable_toggles=["disable_workgroup_init"],  # kernels write before they read; wgpu clears nothing, either
            disable_toggles=["timestamp_quantization"],
        )

    def seconds_per_tick(self, device: Any) -> float:
        return 1e-9


_dawn = _Dawn(wgpudawn)

list_adapters = _dawn.list_adapters


def open_backend(info: AdapterInfo) -> wgpu.WgpuBackend:
    """Open an adapter that `list_adapters` gave; see `wgpu.open_through`."""
    return wgpu.open_through(_dawn, info)

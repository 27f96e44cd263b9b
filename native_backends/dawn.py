"""Vulkan, Metal and DX12 through Dawn, Chromium's WebGPU: the package wgpudawn has the API of wgpu-py."""

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
        descriptions = [adapter.description for adapter in wgpu.list_adapters(api) if adapter.available]
        if not descriptions:
            return super().why_no_adapter(api)
        names = " and ".join(descriptions)
        return f"Dawn refuses {names}, and has written to the terminal what it misses; '{api}' opens it through wgpu"

    def request_device(self, adapter: Any, limits: dict[str, int]) -> Any:
        self.forget_adapters()  # an adapter of Dawn gives a single device
        return extras.request_device_sync(
            adapter,
            required_features=self.features_of(adapter),
            required_limits=limits,
            enable_toggles=["disable_workgroup_init"],  # kernels write before they read, as they have to under wgpu
            disable_toggles=["timestamp_quantization"],
        )

    def seconds_per_tick(self, device: Any) -> float:
        return 1e-9  # Dawn converts to nanoseconds


_dawn = _Dawn(wgpudawn)

list_adapters = _dawn.list_adapters


def open_backend(info: AdapterInfo) -> wgpu.WgpuBackend:
    """Open an adapter of `list_adapters` through Dawn; see `wgpu.open_through` for the errors."""
    return wgpu.open_through(_dawn, info)

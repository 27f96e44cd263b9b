"""Vulkan, Metal and DX12 through Dawn, Chromium's WebGPU: the package wgpudawn has the API of wgpu-py."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any, Literal

import wgpudawn
from wgpudawn.backends.dawn import extras

from ...runtime.backend import AdapterInfo, MatrixShape
from ...runtime.subgroup_matrices import FEATURE, LARGEST_SUBGROUP, asked_for_matrices, matrix_shapes
from . import backend as wgpu
from .packages import WgpuPackage

__all__ = ["list_adapters", "open_backend"]


class _Dawn(WgpuPackage):
    host: Literal["naga", "tint"] = "tint"
    suffix = "-dawn"

    @cached_property
    def _adapters(self) -> tuple[Any, ...]:
        if asked_for_matrices():
            with suppress(RuntimeError):  # Dawn is in use already, perhaps with experimental features
                extras.set_instance_extras(enable_toggles=["allow_unsafe_apis"])
        return super()._adapters

    def features_of(self, adapter: Any) -> list[str]:
        is_wanted = asked_for_matrices() and FEATURE in adapter.features
        return [*super().features_of(adapter), *([FEATURE] if is_wanted else [])]

    def matrices(self, adapter: Any) -> tuple[tuple[MatrixShape, ...], int]:
        features = self.features_of(adapter)
        if FEATURE not in features:
            return (), 0
        configs = extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", [])
        sizes = [(c["component_type"], c["result_component_type"], c["m"], c["n"], c["k"]) for c in configs]
        # The package gives the sizes of subgroups only where they have matrices.
        largest = max((config["max_subgroup_size"] for config in configs), default=0) or LARGEST_SUBGROUP
        return matrix_shapes(sizes, features, largest), largest

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

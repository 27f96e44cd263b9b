"""The packages that have wgpu-py's API: which adapters each has, and how its compiler reads WGSL."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal

from ...runtime.backend import AdapterInfo, MatrixShape
from ...runtime.choosing.packages import wrong_version
from ..forks import Forks
from .drivers import why_none

__all__ = ["WgpuPackage"]

_NAMES = {"Vulkan": "vulkan", "Metal": "metal", "D3D12": "dx12", "OpenGL": "gl", "OpenGLES": "gl"}

_KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "software"}  # it knows no other

_VERSION = (0, 32)  # wgpu's interface changes with the second number

_FEATURES = {
    "shader-f16": "shader-f16",
    "subgroup": "subgroups",  # wgpu-native's name
    "subgroups": "subgroups",
    "timestamp-query": "timestamp-query",
}
"""Optional features that are asked for, and their names in WebGPU."""


class WgpuPackage:
    """wgpu-py, or another package with its API.

    Attributes:
        module: the package.
        host: whose WGSL its compiler reads; see `Kernel.wgsl`.
        suffix: what follows the name of an API in the names of its devices.
        forks: its open devices.
    """

    host: Literal["naga", "tint"] = "naga"
    suffix = ""

    def __init__(self, module: Any) -> None:
        """The package does nothing yet."""
        self.module = module
        self.forks = Forks(module.__name__)

    @cached_property
    def _adapters(self) -> tuple[Any, ...]:
        _load_triton_first()
        # Without this variable libwayland, which OpenGL asks for displays, writes errors to the terminal.
        unset = "XDG_RUNTIME_DIR" not in os.environ
        if unset:
            os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
        try:
            return tuple(self.module.gpu.enumerate_adapters_sync())
        finally:
            if unset:
                del os.environ["XDG_RUNTIME_DIR"]

    def adapters(self, name: str) -> list[Any]:
        """The package's adapters for devices of that name."""
        api = name.removesuffix(self.suffix)
        return [adapter for adapter in self._adapters if _NAMES.get(adapter.info["backend_type"]) == api]

    def forget_adapters(self) -> None:
        """Forget the adapters, so that the package looks for them again when they are needed next."""
        self.__dict__.pop("_adapters", None)

    def list_adapters(self, name: str) -> list[AdapterInfo]:
        """Return what is known of each adapter for devices of that name, or one entry that says why there is none."""
        reason = self._why_none(name)
        if reason:
            return [AdapterInfo(name, 0, "", available=False, reason=reason)]
        return [_info(name, index, adapter) for index, adapter in enumerate(self.adapters(name))]

    def _why_none(self, name: str) -> str:
        if self.forks.reason:
            return self.forks.reason
        if self.module.version_info[:2] != _VERSION:
            return wrong_version(self.module.__name__, self.module.__version__)
        if not self.adapters(name):
            return f"no {name} adapter found: {self.why_no_adapter(name.removesuffix(self.suffix))}"
        return ""

    def why_no_adapter(self, api: str) -> str:
        """Return why the package has no adapter of that API, as the end of a sentence."""
        return why_none(api)

    def request_device(self, adapter: Any, limits: dict[str, int]) -> Any:
        """Return the adapter's device, with these limits and `features_of` the adapter."""
        return adapter.request_device_sync(required_features=self.features_of(adapter), required_limits=limits)

    def features_of(self, adapter: Any) -> list[str]:
        """Return the optional features that the adapter has of those used here."""
        return [name for name in _FEATURES if name in adapter.features]

    def matrices(self, adapter: Any) -> tuple[tuple[MatrixShape, ...], int]:
        """Return the subgroup matrices for products, and the invocations of the largest subgroups; none by default."""
        return (), 0

    def seconds_per_tick(self, device: Any) -> float:
        """Return the unit of the device's timestamps."""
        from wgpu.backends.wgpu_native import lib

        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal)) * 1e-9  # which wgpu-py does not show


def _load_triton_first() -> None:
    """Load Triton, which torch loads with its first optimizer, before a driver is.

    Its LLVM faults where Mesa's drivers have loaded theirs (seen with Debian 12's LLVM 15); the other way round both
    work.
    """
    if sys.platform == "linux" and "torch" in sys.modules:
        with suppress(ImportError, OSError, RuntimeError):  # torch goes on without it, too
            importlib.import_module("triton")


def _info(name: str, index: int, adapter: Any) -> AdapterInfo:
    info = adapter.info
    return AdapterInfo(
        name=name,
        index=index,
        description=f"{info['device']} ({info['description']})",
        software=info["adapter_type"] == "CPU",
        kind=_KINDS.get(info["adapter_type"], ""),
        features=frozenset(feature for name, feature in _FEATURES.items() if name in adapter.features),
        adapter=f"{info['vendor_id']:04x}:{info['device_id']:04x}",
    )

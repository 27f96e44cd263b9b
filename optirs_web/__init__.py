"""Train models on any GPU from Python, in a browser tab and natively, from one set of WGSL kernels.

Example:
    >>> import optirs_web as ow
    >>> x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    >>> (x @ x).sum().item()
    54.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets as datasets, errors as errors, interop as interop, optim as optim
    from .autograd import GradientTape as GradientTape, no_grad as no_grad
    from .checkpoint import (
        checkpoint_extra as checkpoint_extra,
        dump_checkpoint as dump_checkpoint,
        dump_checkpoint_async as dump_checkpoint_async,
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
        save_checkpoint_async as save_checkpoint_async,
    )
    from .compiled import compile as compile
    from .ops import cross_entropy as cross_entropy, manual_seed as manual_seed
    from .ops.creation import (
        arange as arange,
        full as full,
        ones as ones,
        rand as rand,
        randn as randn,
        zeros as zeros,
    )
    from .recovery import (
        recover as recover,
        recover_async as recover_async,
        snapshot as snapshot,
        snapshot_async as snapshot_async,
    )
    from .runtime.backend import AdapterInfo as AdapterInfo
    from .runtime.device import Device as Device
    from .runtime.registry import (
        close_device as close_device,
        device as device,
        device_async as device_async,
        devices as devices,
        devices_async as devices_async,
        memory_stats as memory_stats,
        set_memory_limit as set_memory_limit,
        stats as stats,
    )
    from .runtime.stats import MemoryStats as MemoryStats, Stats as Stats
    from .sparse import SparseRows as SparseRows
    from .tensors import Parameter as Parameter, Tensor as Tensor, tensor as tensor

_SUBMODULES = ("datasets", "errors", "interop", "optim")
_IN_DEMO = ("datasets",)  # in the wheel optirs-web-demo

# Names are imported when first used: `import optirs_web` alone loads neither NumPy nor a backend.
_NAMES = {
    "AdapterInfo": "runtime.backend",
    "Device": "runtime.device",
    "GradientTape": "autograd",
    "MemoryStats": "runtime.stats",
    "Parameter": "tensors",
    "SparseRows": "sparse",
    "Stats": "runtime.stats",
    "Tensor": "tensors",
    "arange": "ops.creation",
    "checkpoint_extra": "checkpoint",
    "close_device": "runtime.registry",
    "compile": "compiled",
    "cross_entropy": "ops",
    "device": "runtime.registry",
    "device_async": "runtime.registry",
    "devices": "runtime.registry",
    "devices_async": "runtime.registry",
    "dump_checkpoint": "checkpoint",
    "dump_checkpoint_async": "checkpoint",
    "full": "ops.creation",
    "load_checkpoint": "checkpoint",
    "manual_seed": "ops",
    "memory_stats": "runtime.registry",
    "no_grad": "autograd",
    "ones": "ops.creation",
    "rand": "ops.creation",
    "randn": "ops.creation",
    "recover": "recovery",
    "recover_async": "recovery",
    "save_checkpoint": "checkpoint",
    "save_checkpoint_async": "checkpoint",
    "set_memory_limit": "runtime.registry",
    "snapshot": "recovery",
    "snapshot_async": "recovery",
    "stats": "runtime.registry",
    "tensor": "tensors",
    "zeros": "ops.creation",
}

__all__ = ["__version__", *_SUBMODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("optirs-web")
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if name not in _IN_DEMO or error.name != f"{__name__}.{name}":
                raise
            raise ModuleNotFoundError(f"{error.name} comes with the demo: pip install 'optirs-web[demo]'") from None
    if name in _NAMES:
        value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'optirs_web' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

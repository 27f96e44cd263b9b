"""Train models on any GPU from Python, in a browser tab and natively, from one set of WGSL kernels.

Example:
    >>> import optirs_web as ow
    >>> x = ow.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    >>> (x @ x).sum().item()
    54.0
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .parts import imported

if TYPE_CHECKING:
    from . import (
        benchmarks as benchmarks,
        datasets as datasets,
        errors as errors,
        interop as interop,
        nn as nn,
        ops as ops,
        optim as optim,
    )
    from .autograd import gradients as gradients, no_grad as no_grad
    from .checkpointing import checkpoint as checkpoint
    from .checkpoints import (
        checkpoint_extra as checkpoint_extra,
        dump_checkpoint as dump_checkpoint,
        dump_checkpoint_async as dump_checkpoint_async,
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
        save_checkpoint_async as save_checkpoint_async,
    )
    from .compiled import compile as compile
    from .custom_operation import CustomOperation as CustomOperation, custom_op as custom_op
    from .debugging import debug as debug, set_debug as set_debug
    from .derivatives import (
        grad as grad,
        hessian_vector_product as hessian_vector_product,
        jacobian as jacobian,
        jvp as jvp,
        value_and_grad as value_and_grad,
        vjp as vjp,
    )
    from .dlpack import from_dlpack as from_dlpack
    from .explained import explain as explain
    from .gradchecks import gradcheck as gradcheck, gradgradcheck as gradgradcheck
    from .memory import (
        empty_cache as empty_cache,
        memory_stats as memory_stats,
        memory_timeline as memory_timeline,
    )
    from .ops import (
        concat as concat,
        cross_entropy as cross_entropy,
        manual_seed as manual_seed,
        maximum as maximum,
        minimum as minimum,
        stack as stack,
        where as where,
    )
    from .ops.creation import (
        arange as arange,
        full as full,
        ones as ones,
        rand as rand,
        randn as randn,
        zeros as zeros,
    )
    from .placing import placement as placement
    from .precision import autocast as autocast
    from .profiling import profile as profile
    from .recovery import (
        recover as recover,
        recover_async as recover_async,
        snapshot as snapshot,
        snapshot_async as snapshot_async,
    )
    from .runtime.backend import AdapterInfo as AdapterInfo
    from .runtime.determinism import (
        are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
        use_deterministic_algorithms as use_deterministic_algorithms,
    )
    from .runtime.device import Device as Device
    from .runtime.matmul_precision import set_float32_matmul_precision as set_float32_matmul_precision
    from .runtime.registry import (
        close_device as close_device,
        device as device,
        device_async as device_async,
        devices as devices,
        devices_async as devices_async,
        set_memory_limit as set_memory_limit,
        stats as stats,
    )
    from .runtime.stats import MemoryStats as MemoryStats, Stats as Stats
    from .sparse import SparseRows as SparseRows
    from .tape import GradientTape as GradientTape
    from .tensors import Parameter as Parameter, Tensor as Tensor, tensor as tensor
    from .tuner import tune as tune, tune_async as tune_async, tuning as tuning, tuning_async as tuning_async

_SUBMODULES = ("benchmarks", "datasets", "errors", "interop", "nn", "optim")

# Names are imported when first used: `import optirs_web` alone loads neither NumPy nor a backend.
_NAMES = {
    "AdapterInfo": "runtime.backend",
    "CustomOperation": "custom_operation",
    "Device": "runtime.device",
    "GradientTape": "tape",
    "MemoryStats": "runtime.stats",
    "Parameter": "tensors",
    "SparseRows": "sparse",
    "Stats": "runtime.stats",
    "Tensor": "tensors",
    "are_deterministic_algorithms_enabled": "runtime.determinism",
    "arange": "ops.creation",
    "autocast": "precision",
    "checkpoint": "checkpointing",
    "checkpoint_extra": "checkpoints",
    "close_device": "runtime.registry",
    "compile": "compiled",
    "concat": "ops",
    "cross_entropy": "ops",
    "custom_op": "custom_operation",
    "debug": "debugging",
    "device": "runtime.registry",
    "device_async": "runtime.registry",
    "devices": "runtime.registry",
    "devices_async": "runtime.registry",
    "dump_checkpoint": "checkpoints",
    "dump_checkpoint_async": "checkpoints",
    "empty_cache": "memory",
    "explain": "explained",
    "from_dlpack": "dlpack",
    "full": "ops.creation",
    "grad": "derivatives",
    "gradcheck": "gradchecks",
    "gradgradcheck": "gradchecks",
    "gradients": "autograd",
    "hessian_vector_product": "derivatives",
    "jacobian": "derivatives",
    "jvp": "derivatives",
    "load_checkpoint": "checkpoints",
    "manual_seed": "ops",
    "maximum": "ops",
    "memory_stats": "memory",
    "memory_timeline": "memory",
    "minimum": "ops",
    "no_grad": "autograd",
    "ones": "ops.creation",
    "placement": "placing",
    "profile": "profiling",
    "rand": "ops.creation",
    "randn": "ops.creation",
    "recover": "recovery",
    "recover_async": "recovery",
    "save_checkpoint": "checkpoints",
    "save_checkpoint_async": "checkpoints",
    "set_debug": "debugging",
    "set_float32_matmul_precision": "runtime.matmul_precision",
    "set_memory_limit": "runtime.registry",
    "snapshot": "recovery",
    "snapshot_async": "recovery",
    "stack": "ops",
    "stats": "runtime.registry",
    "tensor": "tensors",
    "tune": "tuner",
    "tune_async": "tuner",
    "tuning": "tuner",
    "tuning_async": "tuner",
    "use_deterministic_algorithms": "runtime.determinism",
    "value_and_grad": "derivatives",
    "vjp": "derivatives",
    "where": "ops",
    "zeros": "ops.creation",
}

__all__ = ["__version__", *_SUBMODULES, *_NAMES]


# Python started in a clone imports the clone's package, also where another one is installed: then no finder of an
# editable install knows the folders that pyproject.toml maps into the package.
_clone = os.path.dirname(__path__[0])
if os.path.isdir(f"{_clone}/native_backends"):
    from importlib.util import find_spec

    if not find_spec("optirs_web.native_backends"):
        __path__.append(_clone)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("optirs-web")
    if name in _SUBMODULES or name == "ops":
        return imported(name)
    if name in _NAMES:
        value = getattr(imported(_NAMES[name]), name)
        globals()[name] = value
        return value
    hint = f"; optirs_web.ops has '{name}'" if name in imported("ops").__all__ else ""
    raise AttributeError(f"module 'optirs_web' has no attribute '{name}'{hint}")


def __dir__() -> list[str]:
    return sorted(__all__)

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
from .memory import empty_cache as empty_cache, memory_stats as memory_stats
from .memory.timeline import memory_timeline as memory_timeline
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

__version__: str

"""Kernels for XLA without running them: StableHLO, and the step of an optimizer compiled for TPUs elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...errors import DeviceNotAvailableError, UnsupportedError
from ...runtime.kernels import Binding, Kernel
from ...runtime.map_kernels import MapKernel
from ...runtime.rule_kernels import AdvanceKernel, RuleKernel, UpdateKernel
from ...wgsl import rule_shell, slot_storage
from ...wgsl.print_python import python_name
from ...wgsl.shell import BLOCK
from .bindings import DTYPES, Array, element_type
from .kernels import lower

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CompiledStep", "compile_step", "stablehlo"]

_ABSENT = "{name} is not installed: pip install {name}"

# There is no TPU whose metadata could be asked for. Which one, and where, only has to be said: otherwise libtpu prints
# warnings and an error.
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


class CompiledStep(NamedTuple):
    """A step that was compiled for devices that are not here.

    Attributes:
        hlo: the program after XLA's passes, as text.
        cost: XLA's estimate, by name.
        memory: bytes on each device, by name.
        devices: how many, and of which kind.
    """

    hlo: str
    cost: dict[str, float]
    memory: dict[str, int]
    devices: str


def _sizes(kernel: Kernel, elements: int) -> list[int]:
    """Words of each binding of a kernel over one tensor."""
    if isinstance(kernel, MapKernel):
        return [elements for _ in kernel.bindings]
    if not isinstance(kernel, AdvanceKernel | UpdateKernel) or kernel.rule.stages:
        raise UnsupportedError(
            f"the shapes of '{kernel.name}' are not known: those of map functions are, and of `update` and `advance` of"
            " an optimizer"
        )
    return [_words(kernel, binding, elements) for binding in kernel.bindings]


def _words(kernel: RuleKernel, binding: Binding, elements: int) -> int:
    blocks, rule = -(-elements // BLOCK), kernel.rule
    tables = {
        "blocks": 2 * blocks,
        "tensor_scalars": 2 * (1 + len(rule.hyper) + len(rule.scalars)),  # the last row stands for tensors of others
        "tensors": rule_shell.ENTRY_WORDS,
        "hyper": len(rule.hyper),
        "found_inf": 2,
    }
    if binding.name in ("params", "grads"):
        return blocks * BLOCK
    if binding.name in tables:
        return tables[binding.name]
    if slot_storage.is_largest(binding.name):
        return blocks
    if binding.name not in kernel.slots:
        raise UnsupportedError(f"the size of '{binding.name}' of '{kernel.name}' follows from more than one tensor")
    return blocks * BLOCK * slot_storage.BITS[kernel.slots[binding.name]] // 32


def _with_tables(kernel: Kernel, elements: int, arrays: Sequence[Array]) -> list[Array]:
    """Return the arrays of a kernel's bindings, with the table of the blocks of one tensor in place of an argument."""
    sizes = np.diff(np.minimum(np.arange(-(-elements // BLOCK) + 1) * BLOCK, elements))
    blocks = np.stack([np.zeros_like(sizes), sizes], axis=1).astype(np.uint32).reshape(-1)
    pairs = zip(kernel.bindings, arrays, strict=True)
    return [blocks if binding.name == "blocks" else array for binding, array in pairs]


def _shapes(kernel: Kernel, elements: int) -> list[jax.ShapeDtypeStruct]:
    pairs = zip(kernel.bindings, _sizes(kernel, elements), strict=True)
    return [jax.ShapeDtypeStruct((size,), element_type(binding.type)) for binding, size in pairs]


def _numbers(kernel: Kernel) -> list[tuple[str, str]]:
    """Return name and type of each launch parameter besides the size; these arguments come after the buffers."""
    return [(name, type_) for name, type_ in kernel.parameters if name != "size"]


def _values(kernel: Kernel, elements: int) -> dict[str, Any]:
    return {name: elements for name, _ in kernel.parameters if name == "size"}


def _function(kernel: Kernel, elements: int) -> Callable[..., tuple[Array, ...]]:
    values = _values(kernel, elements)
    count = len(kernel.bindings)
    names = [name for name, _ in _numbers(kernel)]

    def compute(*arguments: Array) -> tuple[Array, ...]:
        arrays = _with_tables(kernel, elements, arguments[:count])
        return lower(kernel, {**values, **dict(zip(names, arguments[count:], strict=True))}, arrays)

    compute.__name__ = python_name(kernel.name.replace(" ", "_"))
    return compute


def stablehlo(kernel: Kernel, elements: int = 1024) -> str:
    """The StableHLO of a map function, or of the `update` or `advance` of a rule, over so many elements of one tensor.

    Raises:
        UnsupportedError: the shapes of the kernel follow from more than that.
    """
    arguments = _shapes(kernel, elements)
    arguments += [jax.ShapeDtypeStruct((), DTYPES[type_]) for _, type_ in _numbers(kernel)]
    with np.errstate(all="ignore"):
        text: str = jax.jit(_function(kernel, elements)).lower(*arguments).as_text()
    return text


def _topology(name: str) -> Sequence[Any]:
    """The devices of a topology, described by the compiler for them."""
    try:
        import libtpu  # noqa: F401  # which has the compiler
    except ImportError:
        raise DeviceNotAvailableError(_ABSENT.format(name="libtpu")) from None
    for variable, value in _NO_TPU.items():
        os.environ.setdefault(variable, value)
    from jax.experimental import topologies

    try:
        devices: Sequence[Any] = topologies.get_topology_desc(name, platform="tpu").devices
    except (RuntimeError, ValueError) as error:
        message = f"libtpu describes no topology '{name}', as it does v5e:2x4: {error}"
        raise DeviceNotAvailableError(message) from None
    return devices


def _check(kernels: Sequence[Kernel]) -> None:
    """Refuse rules whose step is more than `advance` and `update` from a gradient."""
    for kernel in kernels:
        if isinstance(kernel, UpdateKernel):
            if kernel.rule.has("measure"):
                raise UnsupportedError(
                    f"'{kernel.rule.name}' measures something of all elements first, which a step for a topology does "
                    "not; --export writes whole steps"
                )
            if "grads" not in (binding.name for binding in kernel.bindings):
                raise UnsupportedError(f"'{kernel.rule.name}' does not update from a gradient alone")


def compile_step(kernels: Sequence[Kernel], elements: int, topology: str) -> CompiledStep:
    """The step of an optimizer over a pod, compiled: gradients are averaged over all devices, then each updates.

    Args:
        kernels: `advance` and `update` of one rule.
        elements: of the one tensor of parameters, which every device has.
        topology: as libtpu calls it: "v5e:2x4".

    Raises:
        DeviceNotAvailableError: libtpu is not installed, or does not know the topology.
        UnsupportedError: the rule needs more kernels than these.
    """
    _check(kernels)
    devices = _topology(topology)
    mesh = Mesh(np.array(devices), ("data",))
    names = [[binding.name for binding in kernel.bindings] for kernel in kernels]
    shapes: dict[str, jax.ShapeDtypeStruct] = {}
    for kernel, bound in zip(kernels, names, strict=True):
        shapes |= dict(zip(bound, _shapes(kernel, elements), strict=True))
    written = {binding.name for kernel in kernels for binding in kernel.bindings if binding.writes}

    def step(state: dict[str, Array], read: dict[str, Array]) -> dict[str, Array]:
        held = {**state, **read, "grads": jax.lax.pmean(read["grads"], "data")}
        for kernel, bound in zip(kernels, names, strict=True):
            results = iter(lower(kernel, {}, _with_tables(kernel, elements, [held[name] for name in bound])))
            held |= {binding.name: next(results) for binding in kernel.bindings if binding.writes}
        return {name: held[name] for name in state}

    def of_devices(name: str, shape: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        is_own = name == "grads"
        spec = PartitionSpec("data") if is_own else PartitionSpec()
        size = shape.shape[0] * (len(devices) if is_own else 1)
        return jax.ShapeDtypeStruct((size,), shape.dtype, sharding=NamedSharding(mesh, spec))

    arguments = {name: of_devices(name, shape) for name, shape in shapes.items()}
    state = {name: shape for name, shape in arguments.items() if name in written}
    others = {name: shape for name, shape in arguments.items() if name not in written}
    specs = {name: PartitionSpec("data") if name == "grads" else PartitionSpec() for name in others}
    mapped = jax.shard_map(
        step, mesh=mesh, in_specs=({name: PartitionSpec() for name in state}, specs), out_specs=PartitionSpec()
    )
    with np.errstate(all="ignore"):
        lowered = jax.jit(mapped, donate_argnums=(0,)).trace(state, others).lower(lowering_platforms=("tpu",))
    compiled = lowered.compile()
    memory: Any = compiled.memory_analysis()
    kinds = ("argument", "output", "alias", "temp", "generated_code")
    return CompiledStep(
        compiled.as_text(),
        dict(compiled.cost_analysis() or {}),
        {kind: getattr(memory, f"{kind}_size_in_bytes") for kind in kinds},
        f"{len(devices)} x {devices[0].device_kind}",
    )

"""Compare kernels over float16, computed as f16 and as packed 16-bit words, with the same over float32.

    python benchmarks/float16_kernels.py [DEVICE]

Prints the shortest time of several runs, by the device's timestamps where it has them; the memory of a workgroup; and
whether elements are written by atomic operations. f16 is left out where the device does not support it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import optirs_web as ow
from optirs_web.runtime import native_halves
from optirs_web.runtime.device import Device
from optirs_web.runtime.kernels import Kernel
from optirs_web.wgsl.lint_workgroup import workgroup_bytes

RUNS = 40

OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "product of 128 x 128": ((128, 128), lambda x: x @ x),
    "product with its transpose": ((128, 128), lambda x: x @ x.T),
    "8 products of 64 x 64": ((8, 64, 64), lambda x: x @ x),
    "attention, 4 of 64 x 32": ((4, 64, 32), lambda x: ow.ops.scaled_dot_product_attention(x, x, x)),
    "gelu of 2^17": ((1 << 17,), lambda x: x.gelu()),
    "sum of two of 2^17": ((1 << 17,), lambda x: x + x),
    "transpose of 256 x 512": ((256, 512), lambda x: x.T.contiguous()),
    "sums of 512 rows of 256": ((512, 256), lambda x: x.sum(axis=1)),
    "512 rows by index": ((512, 256), lambda x: x[list(range(511, -1, -1))]),
}


class Storage(NamedTuple):
    """How a kernel reads its tensors.

    Attributes:
        dtype: of the tensors.
        is_native: True if float16 elements are read as f16, not as packed 16-bit words.
    """

    dtype: str
    is_native: bool


STORAGES = (Storage("float32", False), Storage("float16", False), Storage("float16", True))


def measure(device: Device, call: Callable[[Any], Any], x: Any, storage: Storage) -> tuple[float, Kernel]:
    """Return the seconds of the kernel that takes most of the call's time, and that kernel."""
    native_halves._known[device] = storage.is_native
    kernels: dict[str, Kernel] = {}

    def observe(kernel: Kernel, _: Any) -> None:
        kernels[kernel.name] = kernel

    device.observers.append(observe)
    with ow.profile(device) as profile:
        call(x)
    device.observers.remove(observe)
    times = {kernel.name: kernel.end - kernel.start for kernel in profile.kernels if kernel.name in kernels}
    slowest = max(times, key=times.__getitem__)
    return times[slowest], kernels[slowest]


def main() -> None:
    """Print the table."""
    device = ow.device(sys.argv[1] if len(sys.argv) > 1 else "vulkan")
    has_f16 = native_halves.converts_float16(device)
    storages = STORAGES if has_f16 else STORAGES[:2]
    print(f"{device}; supports f16: {has_f16}; milliseconds")
    print(f"{'':28} {'kernel':28} {'time':>8} {'workgroup memory':>17}  atomics")
    for name, (shape, call) in OPERATIONS.items():
        x = ow.randn(shape, device=device, seed=0)
        tensors = {storage: x.astype(storage.dtype) for storage in storages}
        for tensor in tensors.values():  # compiles
            call(tensor)
        runs = [
            {storage: measure(device, call, tensor, storage) for storage, tensor in tensors.items()}
            for _ in range(RUNS)
        ]
        for storage in storages:
            kernel = runs[0][storage][1]
            seconds = min(run[storage][0] for run in runs)
            memory = workgroup_bytes(kernel.module)
            atomics = "yes" if "atomicXor" in kernel.wgsl() else "no"
            print(f"{name:28} {kernel.name:28} {1e3 * seconds:8.3f} {memory:17,}  {atomics}")
    native_halves._known[device] = has_f16


if __name__ == "__main__":
    main()

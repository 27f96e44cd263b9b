"""What a kernel over float16 takes: as f16 where the device has it, as halves of words, and over float32 beside them.

    python benchmarks/float16_kernels.py [DEVICE]

The least time of several runs, by the device's own clock where it has one; the memory that a workgroup shares; and
whether elements are written by atomic operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optirs_web as ow
from optirs_web.runtime import native_halves
from optirs_web.runtime.device import Device
from optirs_web.runtime.kernels import Kernel
from optirs_web.wgsl.merged_parts import Part
from optirs_web.wgsl.merged_shell import workgroup_bytes

RUNS = 15

OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "product of 512 x 512": ((512, 512), lambda x: x @ x),
    "product with its transpose": ((512, 512), lambda x: x @ x.T),
    "8 products of 128 x 128": ((8, 128, 128), lambda x: x @ x),
    "attention, 8 of 128 x 64": ((8, 128, 64), lambda x: ow.ops.scaled_dot_product_attention(x, x, x)),
    "gelu of 2^20": ((1 << 20,), lambda x: x.gelu()),
    "sum of two of 2^20": ((1 << 20,), lambda x: x + x),
    "transpose of 1024 x 1024": ((1024, 1024), lambda x: x.T.contiguous()),
    "softmax of 1024 rows of 256": ((1024, 256), lambda x: x.softmax()),
    "rows named by 4096 indices": ((4096, 256), lambda x: x.take(ow.arange(4096, device=x.device), axis=0)),
}


@contextmanager
def as_halves(device: Device) -> Iterator[None]:
    """As on a device whose f16 is not used."""
    known = native_halves.converts_float16(device)
    native_halves._known[device] = False
    try:
        yield
    finally:
        native_halves._known[device] = known


def measure(device: Device, call: Callable[[Any], Any], x: Any) -> tuple[float, Kernel]:
    """Seconds of the last kernel that the call runs, and that kernel."""
    found: list[Kernel] = []

    def observe(kernel: Kernel, _: Any) -> None:
        found.append(kernel)

    call(x)
    device.observers.append(observe)
    call(x)
    device.observers.remove(observe)
    with ow.profile(device) as profile:
        for _ in range(RUNS):
            call(x)
        device.synchronize()
    return min(one.end - one.start for one in profile.kernels if one.name == found[-1].name), found[-1]


def main() -> None:
    """Print the table."""
    device = ow.device(sys.argv[1] if len(sys.argv) > 1 else "vulkan")
    print(f"{device}; f16 is used: {native_halves.converts_float16(device)}; milliseconds")
    print(f"{'':28} {'kernel':32} {'time':>8} {'workgroup memory':>17}  atomics")
    for name, (shape, call) in OPERATIONS.items():
        x = ow.randn(shape, device=device, seed=0)
        with as_halves(device):
            halves = measure(device, call, x.half())
        for seconds, kernel in (measure(device, call, x), halves, measure(device, call, x.half())):
            memory = workgroup_bytes([Part(kernel.module)])
            atomics = "yes" if "atomicXor" in kernel.wgsl() else "no"
            print(f"{name:28} {kernel.name:32} {1e3 * seconds:8.3f} {memory:17,}  {atomics}")


if __name__ == "__main__":
    main()

"""What a kernel over float16 takes: as f16 where the device has it, as halves of words, and over float32 beside them.

    python benchmarks/float16_kernels.py [DEVICE]

The least time of several runs, by the device's own clock where it has one; the memory that a workgroup shares; and
whether elements are written by atomic operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import optirs_web as ow
from optirs_web.runtime import native_halves
from optirs_web.runtime.device import Device
from optirs_web.runtime.kernels import Kernel
from optirs_web.wgsl.merged_parts import Part
from optirs_web.wgsl.merged_shell import workgroup_bytes

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


class Way(NamedTuple):
    """How a kernel sees its tensors: their type, and whether float16 is f16."""

    dtype: str
    is_native: bool


WAYS = (Way("float32", False), Way("float16", False), Way("float16", True))


def measure(device: Device, call: Callable[[Any], Any], x: Any, way: Way) -> tuple[float, Kernel]:
    """Seconds of the kernel that takes most of the call's time, and that kernel."""
    native_halves._known[device] = way.is_native
    found: dict[str, Kernel] = {}

    def observe(kernel: Kernel, _: Any) -> None:
        found[kernel.name] = kernel

    device.observers.append(observe)
    with ow.profile(device) as profile:
        call(x)
    device.observers.remove(observe)
    times = {one.name: one.end - one.start for one in profile.kernels if one.name in found}
    slowest = max(times, key=times.__getitem__)
    return times[slowest], found[slowest]


def main() -> None:
    """Print the table."""
    device = ow.device(sys.argv[1] if len(sys.argv) > 1 else "vulkan")
    known = native_halves.converts_float16(device)
    ways = WAYS if known else WAYS[:2]
    print(f"{device}; float16 is f16 where it is used: {known}; milliseconds")
    print(f"{'':28} {'kernel':28} {'time':>8} {'workgroup memory':>17}  atomics")
    for name, (shape, call) in OPERATIONS.items():
        x = ow.randn(shape, device=device, seed=0)
        given = {way: x.astype(way.dtype) for way in ways}
        for way in ways:  # compiles
            call(given[way])
        runs = [{way: measure(device, call, given[way], way) for way in ways} for _ in range(RUNS)]
        for way in ways:
            kernel = runs[0][way][1]
            seconds = min(run[way][0] for run in runs)
            memory = workgroup_bytes([Part(kernel.module)])
            atomics = "yes" if "atomicXor" in kernel.wgsl() else "no"
            print(f"{name:28} {kernel.name:28} {1e3 * seconds:8.3f} {memory:17,}  {atomics}")
    native_halves._known[device] = known


if __name__ == "__main__":
    main()

"""Seconds that a device takes for work of each kind, measured at a few sizes and read off between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from ..autograd import no_grad
from ..ops.arithmetic import multiply
from ..ops.creation import full
from ..ops.linear import matmul
from ..ops.reduce import sum as sum_of
from ..ops.unary import exp
from ..profiling.costs import costs_of, operations_of_function
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.launches import Launch, Recorded
from ..runtime.map_kernels import MapKernel
from ..runtime.measure import Plan, timed
from ..runtime.timing import Work
from ..tensors import Tensor
from ..wgsl import load_map_module

__all__ = ["Curve", "Rates", "at", "measure", "seconds_for"]

Curve = list[tuple[float, float]]
"""Amounts of work, increasing, and the seconds that each takes."""

_PLAN = Plan(sample=1e-3, at_most=0.04)

_LONG_ENOUGH = 4e-3
"""Seconds beyond which a call takes as much longer as there is more to do: no larger one is measured."""

_FEWEST = 3
"""Points of a curve, however long they take: the first may have been held up by something else."""

_ELEMENTS = (1 << 8, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
_ROWS = (16, 64, 128, 256, 512, 1024)
_BYTES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)


class Rates(NamedTuple):
    """Seconds that one operation takes on a device, the host's share included, by the amount of work.

    Attributes:
        light: a map function of one operation for each element, by elements.
        heavy: the exponential, by elements.
        reduction: a sum, by elements.
        product: a product of matrices, by operations: 2 rows columns inner.
        up: to carry bytes to the device, by bytes.
        down: to carry them back.
    """

    light: Curve
    heavy: Curve
    reduction: Curve
    product: Curve
    up: Curve
    down: Curve


def at(curve: Curve, amount: float) -> float:
    """Return the seconds for an amount: interpolated linearly in the logarithms; beyond the curve, proportional.

    Example:
        >>> from optirs_web.placing.rates import at
        >>> [round(at([(10, 1.0), (1000, 4.0)], amount), 3) for amount in (1, 10, 100, 1000, 2000)]
        [1.0, 1.0, 2.0, 4.0, 8.0]
    """
    if amount <= curve[0][0]:
        return curve[0][1]
    for (lower_amount, lower), (upper_amount, upper) in pairwise(curve):
        if amount <= upper_amount:
            share = math.log(amount / lower_amount) / math.log(upper_amount / lower_amount)
            return lower * math.exp(share * math.log(upper / lower))
    return curve[-1][1] * amount / curve[-1][0]


# Predictions.


def seconds_for(launches: Sequence[Recorded], rates: Rates) -> float:
    """Return about what these launches take together, each with the host's share of an operation."""
    return sum(_seconds(launch, rates) for launch in launches)


def _seconds(launch: Recorded, rates: Rates) -> float:
    if not isinstance(launch, Launch):
        return at(rates.light, launch.source.nbytes / 4)
    costs = costs_of(
        Work(launch.kernel, tuple(view.nbytes for view in launch.views), launch.kernel.pack(launch.parameters))
    )
    operations = costs.operations or 0
    if isinstance(launch.kernel, MapKernel):
        elements = max(1, costs.bytes_written / 4)
        light, heavy = at(rates.light, elements), at(rates.heavy, elements)
        return max(light, light + (heavy - light) * (operations / elements - 1) / (_operations_of_heavy() - 1))
    if operations > costs.bytes_read:  # each element is used again and again
        return at(rates.product, operations)
    return at(rates.reduction, costs.bytes_read / 4)


@cache
def _operations_of_heavy() -> int:
    """Operations for each element of what `Rates.heavy` is measured with."""
    return operations_of_function(load_map_module("elementwise", "exp", ("exp_",)), "exp_")


# Measurements.


def measure(devices: Sequence[Device]) -> list[Rates]:
    """Measure the rates of these devices now, in turn: about a second for each, with some 30 MB."""
    with no_grad():
        light, heavy, reduction = (
            _curves(devices, _ELEMENTS, float, operation, 1) for operation in (_double, exp, sum_of)
        )
        product = _curves(devices, _ROWS, lambda rows: 2.0 * rows**3, _square, 2)
    up, down = zip(*map(_transfers, devices), strict=True)
    return list(map(Rates, light, heavy, reduction, product, up, down))


def _curves(
    devices: Sequence[Device],
    sizes: Sequence[int],
    amount: Callable[[int], float],
    operation: Callable[[Tensor], Tensor],
    rank: int,
) -> list[Curve]:
    """Measure an operation over tensors of that rank with axes of these sizes, until it takes long enough."""
    curves: dict[Device, Curve] = {device: [] for device in devices}
    running = list(devices)
    for size in sizes:
        calls = {device: partial(operation, full((size,) * rank, 1.0, device)) for device in running}
        for device, times in timed({device: (calls[device], device.synchronize) for device in running}, _PLAN).items():
            own = times.median
            curves[device] = [(less, min(earlier, own)) for less, earlier in curves[device]]  # held up by accident
            curves[device].append((amount(size), own))
        running = [
            device for device in running if len(curves[device]) < _FEWEST or curves[device][-1][1] < _LONG_ENOUGH
        ]
        if not running:
            break
    return list(curves.values())


def _double(x: Tensor) -> Tensor:
    return multiply(x, 2.0)


def _square(x: Tensor) -> Tensor:
    return matmul(x, x)


def _transfers(device: Device) -> tuple[Curve, Curve]:
    """Measure how long it takes to carry bytes to the device, and back."""
    up: Curve = []
    down: Curve = []
    for size in _BYTES:
        view = View.whole(device.allocate(size))
        write, read = partial(device.write, view, memoryview(bytearray(size))), partial(device.read, view)
        times = timed({"up": (write, device.synchronize), "down": (read, None)}, _PLAN)
        up.append((float(size), times["up"].median))
        down.append((float(size), times["down"].median))
    return up, down

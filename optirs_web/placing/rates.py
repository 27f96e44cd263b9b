"""How long a device takes for work of each kind, measured at a few sizes and read off between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

from ..autograd import no_grad
from ..ops.arithmetic import multiply
from ..ops.creation import full
from ..ops.linear import matmul
from ..ops.reduce import sum as sum_of
from ..ops.unary import exp
from ..profiling.costs import costs_of, operations_of_function
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.kernels import ElementwiseKernel, load_map_module
from ..runtime.launches import Launch, Recorded
from ..runtime.timing import Work
from ..tensors import Tensor

__all__ = ["Curve", "Rates", "Transfers", "at", "measure", "measure_transfers", "seconds_for", "timed"]

Curve = list[tuple[float, float]]
"""Amounts of work, increasing, and the seconds that each takes."""

_ROUND = 1e-3
_MOST_REPEATS, _SETTLED = 64, 5
_AT_MOST = 0.08
"""Seconds that each figure of a device is measured for, but for a first round."""

_LONG_ENOUGH = 4e-3
"""Seconds beyond which a call takes as much longer as there is more to do: no larger one is measured."""

_FEWEST = 3
"""Points of a curve, however long they take: the first may have been held up by something else."""

_ELEMENTS = (1 << 8, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
_ROWS = (16, 64, 128, 256, 512, 1024)
_BYTES = (1 << 10, 1 << 16, 1 << 20, 1 << 23)


class Rates(NamedTuple):
    """Seconds that one operation takes, the host's share included, by the amount of work.

    Attributes:
        light: a map function of one operation for each element, by elements.
        heavy: the exponential, by elements.
        reduction: a sum, by elements.
        product: a product of matrices, by operations: 2 rows columns inner.
    """

    light: Curve
    heavy: Curve
    reduction: Curve
    product: Curve


class Transfers(NamedTuple):
    """Seconds to carry bytes to a GPU from the processor, and back."""

    up: Curve
    down: Curve


def at(curve: Curve, amount: float) -> float:
    """The seconds for an amount: between those measured, by the line through the logarithms; beyond, proportional.

    Example:
        >>> from optirs_web.placing.rates import at
        >>> [round(at([(10, 1.0), (1000, 4.0)], amount), 3) for amount in (1, 10, 100, 1000, 2000)]
        [1.0, 1.0, 2.0, 4.0, 8.0]
    """
    if amount <= curve[0][0]:
        return curve[0][1]
    for (less, its), (more, seconds) in pairwise(curve):
        if amount <= more:
            share = math.log(amount / less) / math.log(more / less)
            return its * math.exp(share * math.log(seconds / its))
    return curve[-1][1] * amount / curve[-1][0]


# Predictions.


def seconds_for(launches: Sequence[Recorded], rates: Rates) -> float:
    """What these launches take together, about. The first one has the host's share of the operation."""
    return sum(_seconds(one, rates) for one in launches)


def _seconds(one: Recorded, rates: Rates) -> float:
    if not isinstance(one, Launch):
        return at(rates.light, one.source.nbytes / 4)
    costs = costs_of(Work(one.kernel, tuple(view.nbytes for view in one.views), one.kernel.pack(one.parameters)))
    operations = costs.operations or 0
    if isinstance(one.kernel, ElementwiseKernel):
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


def timed(calls: Sequence[tuple[Device, Callable[[], Any]]], at_most: float = _AT_MOST) -> list[float]:
    """Seconds for each call, of many in a row with one wait at the end.

    They take turns, and of each the least counts: rounds go on until none has fallen for a while, so that what else the
    machine does is left out, or for `at_most` seconds.
    """
    repeats = []
    for device, call in calls:
        call()
        device.synchronize()  # kernels are compiled now
        started = perf_counter()
        call()
        device.synchronize()
        repeats.append(max(1, min(_MOST_REPEATS, round(_ROUND / max(perf_counter() - started, 1e-6)))))
    best = [math.inf] * len(calls)
    unchanged, until = 0, perf_counter() + at_most
    while unchanged < _SETTLED and (math.inf in best or perf_counter() < until):
        before = best.copy()
        for number, (device, call) in enumerate(calls):
            started = perf_counter()
            for _ in range(repeats[number]):
                call()
            device.synchronize()
            best[number] = min(best[number], (perf_counter() - started) / repeats[number])
        has_fallen = any(now < 0.97 * then for now, then in zip(best, before, strict=True))
        unchanged = 0 if has_fallen else unchanged + 1
    return best


def measure(devices: Sequence[Device]) -> list[Rates]:
    """The rates of each device, measured now: about a second, with some 30 MB."""
    curves: list[Rates] = [Rates([], [], [], []) for _ in devices]
    with no_grad():
        for kind, operation in _OF_ELEMENTS.items():
            for size in _ELEMENTS:
                _add(curves, devices, kind, size, operation, (size,))
        for rows in _ROWS:
            _add(curves, devices, "product", 2 * rows**3, _square, (rows, rows))
    return curves


def _add(
    curves: Sequence[Rates], devices: Sequence[Device], kind: str, amount: int, operation: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
) -> None:  # fmt: skip
    """A point of each device, unless it took long enough for less."""
    pairs = [(getattr(rates, kind), device) for rates, device in zip(curves, devices, strict=True)]
    pairs = [(curve, device) for curve, device in pairs if len(curve) < _FEWEST or curve[-1][1] < _LONG_ENOUGH]
    seconds = timed([(device, partial(operation, full(shape, 1.0, device))) for _, device in pairs])
    for (curve, _), its in zip(pairs, seconds, strict=True):
        curve[:] = [(less, min(earlier, its)) for less, earlier in curve]  # which took longer by some accident
        curve.append((float(amount), its))


def _double(x: Tensor) -> Tensor:
    return multiply(x, 2.0)


def _square(x: Tensor) -> Tensor:
    return matmul(x, x)


_OF_ELEMENTS: dict[str, Callable[[Tensor], Tensor]] = {"light": _double, "heavy": exp, "reduction": sum_of}


def measure_transfers(gpu: Device) -> Transfers:
    """What it takes to carry bytes to this device and back."""
    transfers = Transfers([], [])
    for size in _BYTES:
        view = View.whole(gpu.allocate(size))
        content = memoryview(bytearray(size))
        up, down = timed([(gpu, partial(gpu.write, view, content)), (gpu, partial(gpu.read, view))])
        transfers.up.append((float(size), up))
        transfers.down.append((float(size), down))
    return transfers

"""What "auto" compares devices by: how long each takes for a copy, an update and a product."""

from __future__ import annotations

import math
from collections.abc import Callable
from struct import pack
from time import perf_counter

from ..buffer import View
from ..device import Device
from ..kernels import elementwise
from ..products import product_launches
from .figures import Figures

__all__ = ["measure"]

_ELEMENTS = 1 << 20
_SIDE = 256

_AT_MOST = 0.15
"""Seconds that each is measured for, after a first call, in which kernels are compiled."""

_ROUNDS = 8
_ROUND = 5e-3
"""Seconds of calls between two waits."""


def measure(device: Device) -> Figures:
    """The least time that each took in a few rounds, now. About half a second, with 20 MiB."""
    x, y, z, w, result = (_ones(device, _ELEMENTS) for _ in range(5))
    a, b, product = (one.part(0, 4 * _SIDE * _SIDE) for one in (x, y, result))
    update = elementwise("probe", "probe", ("tensor",) * 4, 0)
    layout = (_SIDE, _SIDE, _SIDE, _SIDE, 1, _SIDE, 1)  # rows, columns, inner, and the strides of both
    [matmul] = product_launches("matmul", device.capabilities, layout, starts=((0,), (0,)))
    sizes = (*layout, 0, 0, 0, 1, 0, 0, 0, 0)  # where they start, the first product, and one axis of a batch of one
    workgroups = -(-_ELEMENTS // update.elements_per_workgroup)
    return Figures(
        copy=_least(device, lambda: device.copy(x, result)),
        update=_least(device, lambda: device.dispatch(update, (x, y, z, w, result), workgroups, (_ELEMENTS,))),
        product=_least(device, lambda: device.dispatch(matmul.kernel, (a, b, product), matmul.grid, sizes)),
    )


def _ones(device: Device, elements: int) -> View:
    view = View.whole(device.allocate(4 * elements))
    device.write(view, memoryview(pack("<f", 1.0) * elements))
    return view


def _least(device: Device, call: Callable[[], None]) -> float:
    def seconds(calls: int) -> float:
        started = perf_counter()
        for _ in range(calls):
            call()
        device.synchronize()
        return (perf_counter() - started) / calls

    seconds(1)
    until, best = perf_counter() + _AT_MOST, seconds(1)
    calls = max(1, min(64, math.ceil(_ROUND / best)))
    for _ in range(_ROUNDS):
        if perf_counter() > until:
            break
        best = min(best, seconds(calls))
    return best

"""Seconds that a device takes for a copy, an update and a product, by which "auto" compares devices."""

from __future__ import annotations

from struct import pack

from ..buffer import View
from ..device import Device
from ..map_kernels import elementwise
from ..measure import timed
from ..products import product_launches
from .figures import Figures

__all__ = ["measure"]

_ELEMENTS = 1 << 20
_SIDE = 256


def measure(device: Device) -> Figures:
    """Measure a device now: about half a second, with 20 MiB."""
    x, y, z, w, result = (_ones(device, _ELEMENTS) for _ in range(5))
    a, b, product = (view.part(0, 4 * _SIDE * _SIDE) for view in (x, y, result))
    update = elementwise("probe", "probe", ("tensor",) * 4, 0)
    layout = (_SIDE, _SIDE, _SIDE, _SIDE, 1, _SIDE, 1)  # rows, columns, inner, and the strides of both
    [matmul] = product_launches("matmul", device.capabilities, layout, starts=((0,), (0,)))
    sizes = (*layout, 0, 0, 0, 1, 0, 0, 0, 0)  # where they start, the first product, and one axis of a batch of one
    workgroups = -(-_ELEMENTS // update.elements_per_workgroup)
    calls = {
        "copy": lambda: device.copy(x, result),
        "update": lambda: device.dispatch(update, (x, y, z, w, result), workgroups, (_ELEMENTS,)),
        "product": lambda: device.dispatch(matmul.kernel, (a, b, product), matmul.grid, sizes),
    }
    times = timed({name: (call, device.synchronize) for name, call in calls.items()})
    return Figures(**{name: own.median for name, own in times.items()})


def _ones(device: Device, elements: int) -> View:
    view = View.whole(device.allocate(4 * elements))
    device.write(view, memoryview(pack("<f", 1.0) * elements))
    return view

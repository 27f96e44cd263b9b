"""Measure a device's peaks: bytes and operations in a second, and the seconds that its smallest kernel takes."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import OutOfDeviceMemoryError
from ..runtime.backend import AdapterInfo, Command
from ..runtime.buffer import Buffer
from ..runtime.device import Device
from ..runtime.driving import drive, drive_async
from ..runtime.kernels import Kernel
from ..runtime.map_kernels import MapKernel, elementwise
from ..runtime.products import product_launches
from ..runtime.timing import Timed

__all__ = ["Peaks", "peaks_of", "peaks_of_async"]

_LONG_ENOUGH = 4e-3
"""Seconds that a kernel has to take: clocks in pages tick every 0.1 ms."""

_MOST_BYTES = 1 << 27
_LAUNCHES = 32
_REPEATS = 3

_COPY = elementwise("identity", "identity_f32", ("tensor",), 0)
_FILL = elementwise("identity", "identity_f32", ("scalar",), 0)
_CHAINS = elementwise("multiply_add", "multiply_add_chains", ("scalar", "scalar"), 0)
_OPERATIONS_OF_CHAINS = 512


class Peaks(NamedTuple):
    """The most that was measured on a device.

    Attributes:
        bandwidth: bytes in a second, read and written, of the better of a kernel that copies and the device's own copy,
            over arrays that the kernel takes half a millisecond or more for, or of 128 MiB.
        arithmetic: operations in a second, of the better of a matrix product and chains of multiplications and
            additions.
        launch: seconds that a kernel of one element takes, at the median.
    """

    bandwidth: float
    arithmetic: float
    launch: float


_measured: dict[AdapterInfo, Peaks] = {}

_Runs = Generator[Any, list[Timed], float]
"""Yields tickets of the backend, is sent what they measured, and returns a figure."""


def peaks_of(device: Device) -> Peaks:
    """Return the peaks of a device, measured once in a process: in about a tenth of a second, with up to 256 MiB."""
    if device.info not in _measured:
        _measured[device.info] = drive(_measure(device), device.backend.times)
    return _measured[device.info]


async def peaks_of_async(device: Device) -> Peaks:
    """The awaitable twin of `peaks_of`."""
    if device.info not in _measured:
        _measured[device.info] = await drive_async(_measure(device), device.backend.times_async)
    return _measured[device.info]


def _measure(device: Device) -> Generator[Any, list[Timed], Peaks]:
    device.flush()
    bandwidth = yield from _bandwidth(device)
    product = yield from _rate_of_product(device)
    chains = yield from _rate_of_chains(device)
    launch = yield from _launch(device)
    return Peaks(bandwidth, max(product, chains), launch)


class _Load:
    """Kernels over memory of their own, bound and ready to be submitted."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffers: list[Buffer] = []
        self.commands: list[Command] = []

    def add(self, kernel: Kernel, sizes: Sequence[int], grid: tuple[int, int, int], **parameters: float) -> None:
        """Bind a kernel to new buffers of these sizes, full of ones. Parameters that are not named are 0."""
        buffers = [self._device.allocate_zeroed(size) for size in sizes]
        for buffer in buffers:  # pages of zeros that were never written may have no memory yet
            self._device.backend.submit(
                [self._bound(_FILL, [buffer], _groups(buffer.nbytes), {"size": buffer.nbytes // 4, "x": 1})]
            )
        self._buffers += buffers
        self.commands.append(self._bound(kernel, buffers, grid, parameters))

    def as_copy(self) -> _Load:
        """Replace the commands by a copy of the first buffer to the second without a kernel, and return the load."""
        source, target = ((buffer.handle, 0, buffer.nbytes) for buffer in self._buffers)
        self.commands = [self._device.backend.copy(source, target)]
        return self

    def _bound(
        self, kernel: Kernel, buffers: Sequence[Buffer], grid: tuple[int, int, int], parameters: Mapping[str, float]
    ) -> Command:
        block = kernel.pack([parameters.get(name, 0) for name, _ in kernel.parameters])
        return self._device.backend.bind(kernel, [(buffer.handle, 0, buffer.nbytes) for buffer in buffers], block, grid)

    def submit(self) -> Any:
        """Submit the commands and return the backend's ticket for their times."""
        return self._device.backend.submit_timed(self.commands)


def _groups(nbytes: int) -> tuple[int, int, int]:
    """Return the grid of an elementwise kernel over this number of bytes."""
    return (-(-nbytes // (4 * MapKernel.elements_per_workgroup)), 1, 1)


def _runs(load: _Load) -> Generator[Any, list[Timed], list[list[float]]]:
    """Return the seconds that each kernel of a load takes, one list for each run."""
    durations = []
    for _ in range(_REPEATS):
        times = yield load.submit()
        durations.append([timed.end - timed.start for timed in times])
    return durations


def _seconds(load: _Load) -> _Runs:
    """Return the seconds that all kernels of a load take together in the shortest run."""
    return min(map(sum, (yield from _runs(load))))


def _bandwidth(device: Device) -> _Runs:
    nbytes, rate, is_measured = 1 << 16, 0.0, False
    largest = min(_MOST_BYTES, device.capabilities.max_binding_bytes, device.capabilities.max_buffer_bytes)
    while nbytes <= largest:
        load = _Load(device)
        try:
            load.add(_COPY, (nbytes, nbytes), _groups(nbytes), size=nbytes // 4)
        except OutOfDeviceMemoryError:
            if rate:
                break
            raise
        by_kernel = yield from _seconds(load)
        seconds = min(by_kernel, (yield from _seconds(load.as_copy())))
        reached = 2 * nbytes / seconds if seconds else 0.0
        rate = max(rate, reached) if is_measured else reached
        is_measured = by_kernel > _LONG_ENOUGH / 8
        if by_kernel > _LONG_ENOUGH:
            break
        nbytes *= 4
    return rate


def _rate_of_product(device: Device) -> _Runs:
    size, rate = 64, 0.0
    while size <= 4096:
        layout = (size, size, size, size, 1, size, 1)
        [product] = product_launches("matmul", device.capabilities, layout, starts=((0,), (0,)))
        strides = {"a_row_stride": size, "a_inner_stride": 1, "b_inner_stride": size, "b_column_stride": 1}
        shape = {"rows": size, "columns": size, "inner": size, "batch_inner": 1}
        load = _Load(device)
        try:
            load.add(product.kernel, (4 * size * size,) * 3, (*product.grid, 1), **strides, **shape)
        except OutOfDeviceMemoryError:
            break
        seconds = yield from _seconds(load)
        rate = max(rate, 2 * size**3 / seconds if seconds else 0)
        if seconds > _LONG_ENOUGH:
            break
        size *= 2
    return rate


def _rate_of_chains(device: Device) -> _Runs:
    size, rate = 1 << 10, 0.0
    while size <= 1 << 24:
        load = _Load(device)
        try:
            load.add(_CHAINS, (4 * size,), _groups(4 * size), size=size, a=0.5, b=1.0)
        except OutOfDeviceMemoryError:
            break
        seconds = yield from _seconds(load)
        rate = max(rate, _OPERATIONS_OF_CHAINS * size / seconds if seconds else 0)
        if seconds > _LONG_ENOUGH:
            break
        size *= 4
    return rate


def _launch(device: Device) -> _Runs:
    load = _Load(device)
    for _ in range(_LAUNCHES):
        load.add(_COPY, (4, 4), (1, 1, 1), size=1)
    seconds = sorted(duration for times in (yield from _runs(load)) for duration in times)
    return seconds[len(seconds) // 2] or sum(seconds) / len(seconds)  # with a coarse clock most are 0

"""OpenCL 1.2 and newer through pyopencl: GPUs, accelerators and, with PoCL, the processor. Kernels are OpenCL C."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from ...errors import DeviceNotAvailableError, OptirsError
from ...runtime.backend import AdapterInfo, AllocationFailed, BoundBuffer, Capabilities, Command
from ...runtime.choosing.packages import wrong_version
from ...runtime.failures import lost_message
from ...runtime.products import tile_class
from ...runtime.subgroups import reduces_by_subgroups
from ...runtime.timing import Timed
from ...runtime.tuner.attaching import attach_choices
from ..c_device import CBackend, Launch
from ..forks import Forks
from ..steps import Recorded, Step, flattened, work_of
from .programs import Programs

if TYPE_CHECKING:
    from ...runtime.kernels import Kernel

__all__ = ["OpenclBackend", "features_of", "list_adapters", "open_backend"]

_INSTALL = (
    "install the graphics card's OpenCL driver, or PoCL, which computes on the processor "
    "(Debian: apt install pocl-opencl-icd; elsewhere, for processors known in 2022: "
    "pip install pocl-binary-distribution)"
)
_FOLDERS = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")  # in which loaders look for drivers

# In WebGPU's words, by the extensions that they take; those for subgroups belong to OpenCL C 3.0.
_FEATURES = {
    "shader-f16": {"cl_khr_fp16"},
    "subgroups": {
        f"cl_khr_subgroup_{extension}"
        for extension in ("ballot", "non_uniform_arithmetic", "shuffle", "shuffle_relative")
    },
}

# What WebGPU promises of every adapter, and kernels count on.
_LEAST_INVOCATIONS = 256
_LEAST_WORKGROUP_BYTES = 16384
# Drivers allow more along the first dimension, but not along all, and the second has always been enough.
_MOST_WORKGROUPS = 65535
# Of the bytes of a kernel's arguments, those for its uniform block, and for each buffer: an address and a length.
_PARAMETER_BYTES = 512
_BUFFER_BYTES = 16

_STATUS = cl.status_code
_NO_MEMORY = frozenset((_STATUS.MEM_OBJECT_ALLOCATION_FAILURE, _STATUS.OUT_OF_HOST_MEMORY, _STATUS.INVALID_BUFFER_SIZE))
_LOST = frozenset(
    (
        _STATUS.DEVICE_NOT_AVAILABLE,
        _STATUS.INVALID_COMMAND_QUEUE,
        _STATUS.INVALID_CONTEXT,
        _STATUS.INVALID_DEVICE,
        -9999,  # NVIDIA's, after a fault in a kernel
    )
)

_forks = Forks("OpenCL")


@cache
def _devices() -> tuple[list[Any], str]:
    """Return every device of every driver, those of hardware first, and the message for when there is none."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # what the loader answers where no driver is registered
        looked = "".join(f", with {name}={os.environ[name]}" for name in _FOLDERS if name in os.environ)
        return [], f"no OpenCL driver found{looked}; {_INSTALL}"
    devices: list[Any] = []
    for platform in platforms:
        with suppress(cl.Error):  # a driver without a device
            devices += platform.get_devices()
    if devices:
        _forks.use()  # PoCL starts its threads to list them
    names = ", ".join(platform.name for platform in platforms)
    return sorted(devices, key=_is_software), f"the installed OpenCL drivers ({names}) have no device; {_INSTALL}"


def _is_software(device: Any) -> bool:
    return bool(device.type & cl.device_type.CPU)


def _description(device: Any) -> str:
    return f"{device.name.strip()} ({device.platform.name.strip()} {device.driver_version.strip()})"


def _lack(device: Any) -> str:
    """Return why a device cannot run our kernels, as a clause, or "" if it can."""
    if not (device.available and device.compiler_available):
        return "its driver has no compiler"
    if _version(device) < (1, 2):
        return f"it has OpenCL {'.'.join(map(str, _version(device)))}; 1.2 is needed"
    if min(device.max_work_group_size, device.max_work_item_sizes[0]) < _LEAST_INVOCATIONS:
        return f"its workgroups have less than {_LEAST_INVOCATIONS} invocations"
    if device.local_mem_size < _LEAST_WORKGROUP_BYTES:
        return f"its workgroups share less than {_LEAST_WORKGROUP_BYTES} bytes"
    return ""


def _usable() -> list[Any]:
    return [device for device in _devices()[0] if not _lack(device)]


def list_adapters(name: str) -> list[AdapterInfo]:
    """An adapter for each device of each OpenCL driver; if there is none, one entry that says what to install."""
    reason = _forks.reason or wrong_version("pyopencl", cl.VERSION_TEXT)
    if reason:
        return [AdapterInfo(name, 0, "", available=False, reason=reason)]
    adapters = [_adapter_of(name, index, device) for index, device in enumerate(_usable())]
    if adapters:
        return adapters
    devices, reason = _devices()
    if devices:
        lacks = "; ".join(f"{_description(device)}: {_lack(device)}" for device in devices)
        reason = f"no OpenCL device can run the kernels ({lacks}); {_INSTALL}"
    return [AdapterInfo(name, 0, "", available=False, reason=reason)]


def _adapter_of(name: str, index: int, device: Any) -> AdapterInfo:
    is_software = _is_software(device)
    kind = "integrated" if device.host_unified_memory else "discrete"
    return AdapterInfo(
        name=name,
        index=index,
        description=_description(device),
        software=is_software,
        kind="software" if is_software else kind if device.type & cl.device_type.GPU else "",
        memory=device.global_mem_size,
        features=features_of(device),
    )


def features_of(device: Any) -> frozenset[str]:
    """The optional features of one of pyopencl's devices, in WebGPU's words."""
    features = {name for name, needed in _FEATURES.items() if needed.issubset(device.extensions.split())}
    # The extensions only add to subgroups, which OpenCL 3.0 leaves to devices; to older ones there is no such question.
    if _version(device) < (3, 0) or not device.max_num_sub_groups:
        features.discard("subgroups")
    return frozenset(features)


def _version(device: Any) -> tuple[int, ...]:
    return tuple(map(int, device.version.removeprefix("OpenCL ").split()[0].split(".")))


def open_backend(info: AdapterInfo) -> OpenclBackend:
    """Open an adapter that `list_adapters` gave.

    Raises:
        DeviceNotAvailableError: the driver refuses, or this process was forked from one that used OpenCL.
    """
    if _forks.reason:
        raise DeviceNotAvailableError(_forks.reason)
    backend = OpenclBackend(_usable()[info.index], info)
    attach_choices(backend)
    return backend


class Memory:
    """A handle: a buffer, None once it was freed; the parts of it that kernels see; and the launches that name it."""

    __slots__ = ("buffer", "launches", "parts")

    def __init__(self, buffer: Any) -> None:
        """Hold a whole buffer of the driver's."""
        self.buffer = buffer
        self.parts: dict[tuple[int, int], Any] = {}
        self.launches: weakref.WeakSet[Launch] = weakref.WeakSet()

    def whole(self) -> Any:
        """The buffer. A kernel or a copy that names memory which was freed would end the process."""
        if self.buffer is None:
            raise OptirsError("freed memory is used")
        return self.buffer

    def part(self, offset: int, size: int) -> Any:
        """Return a kernel's argument for `size` bytes from `offset` on: the whole buffer or a sub-buffer.

        At offset 0 the whole buffer does, since the kernel knows the size.
        """
        if offset == 0:
            return self.whole()
        if (offset, size) not in self.parts:
            self.parts[offset, size] = self.whole().get_sub_region(offset, size)
        return self.parts[offset, size]


class OpenclBackend(CBackend):
    """One device with a context and an in-order queue of its own. Programs, and kernels with arguments, are kept."""

    failure = cl.Error
    no_memory = _NO_MEMORY
    fatal = _LOST

    def __init__(self, device: Any, info: AdapterInfo) -> None:
        """Open the device."""
        super().__init__(info)
        try:
            self._context = cl.Context([device])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self._queue: Any = cl.CommandQueue(self._context, device, properties=profiling)
        except cl.Error as error:
            raise DeviceNotAvailableError(f"{info} refused to open: {error}") from error
        self.capabilities = Capabilities(
            max_buffer_bytes=device.max_mem_alloc_size,
            max_binding_bytes=device.max_mem_alloc_size,
            max_storage_buffers=(device.max_parameter_size - _PARAMETER_BYTES) // _BUFFER_BYTES,
            offset_alignment=max(16, device.mem_base_addr_align // 8),
            max_workgroups=_MOST_WORKGROUPS,
            features=features_of(device),
            max_invocations=min(device.max_work_group_size, device.max_work_item_sizes[0]),
            max_workgroup_bytes=device.local_mem_size,
            tiles=tile_class(info),
            subgroups=reduces_by_subgroups(info),
        )
        # On the processor PoCL would otherwise look for memory at first use, and end the process where there is none.
        self._flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if info.software else 0)
        self._programs = Programs(self._context, device, self.stats, "subgroups" in self.capabilities.features)
        self._sending: deque[Any] = deque()  # events, each of which keeps the bytes that are on their way
        self._origin: int | None = None  # a float has no room for all the nanoseconds since the machine was started
        _forks.add(self)

    def loss_by(self, error: Any, step: Step | None) -> str:
        return lost_message(self.info)

    def allocate(self, nbytes: int) -> Memory:
        with self.errors():
            try:
                buffer = cl.Buffer(self._context, self._flags, nbytes)
                cl.enqueue_fill_buffer(self._queue, buffer, bytes(4), 0, nbytes)
            except cl.Error as error:
                if error.code == _STATUS.OUT_OF_RESOURCES:
                    raise AllocationFailed(str(error)) from error
                raise
        return Memory(buffer)

    def free(self, handle: Memory) -> None:
        self.unbind(handle)
        handle.parts.clear()
        handle.buffer = None  # the driver keeps it until what was enqueued has run

    def write(self, handle: Memory, offset: int, data: memoryview) -> None:
        with self.errors():
            cl.enqueue_copy(self._queue, handle.whole(), data.cast("B"), dst_offset=offset)
        self._sending.clear()

    def read(self, handle: Memory, offset: int, nbytes: int) -> memoryview:
        content = bytearray(nbytes)
        with self.errors():
            cl.enqueue_copy(self._queue, content, handle.whole(), src_offset=offset)
        self._sending.clear()
        return memoryview(content)

    def read_async(self, handle: Memory, offset: int, nbytes: int) -> Awaitable[memoryview]:
        content = bytearray(nbytes)
        with self.errors():
            event = cl.enqueue_copy(self._queue, content, handle.whole(), src_offset=offset, is_blocking=False)
            self._queue.flush()
        return self._arrived(event, content)

    async def _arrived(self, event: Any, content: bytearray) -> memoryview:
        with self.errors():
            event.wait()
        return memoryview(content)

    def send(self, handle: Memory, offset: int, data: bytes) -> None:
        event = cl.enqueue_copy(self._queue, handle.whole(), data, dst_offset=offset, is_blocking=False)
        self._sending.append(event)
        while self._sending[0].command_execution_status == cl.command_execution_status.COMPLETE:
            self._sending.popleft()
            if not self._sending:
                return

    def call_of(
        self, kernel: Kernel, buffers: Sequence[BoundBuffer], parameters: bytes, grid: tuple[int, int, int]
    ) -> Callable[[], Any]:
        with self.errors():
            program = self._programs.of(kernel)
            parts = [(handle.part(offset, size), size) for handle, offset, size in buffers]
            prepared = program.prepared(parts, parameters)
        workgroup = program.interface.workgroup_size
        size = tuple(size * count for size, count in zip(workgroup, grid, strict=True))
        return partial(cl.enqueue_nd_range_kernel, self._queue, prepared, size, workgroup)

    def transfer(self, source: BoundBuffer, target: BoundBuffer) -> Any:
        (read, read_at, nbytes), (write, write_at, _) = source, target
        return cl.enqueue_copy(
            self._queue, write.whole(), read.whole(), byte_count=nbytes, src_offset=read_at, dst_offset=write_at
        )

    def record(self, commands: Sequence[Command]) -> Command:
        return Recorded(tuple(flattened(commands)))

    def submit(self, commands: Sequence[Command]) -> None:
        self._enqueue_all(commands)

    def _enqueue_all(self, commands: Sequence[Command]) -> list[tuple[Step, Any]]:
        """Enqueue the steps of the commands; each with the event of its run."""
        events = []
        with self.errors():
            try:
                for step in flattened(commands):
                    events.append((step, step.run()))
            except (cl.Error, OptirsError) as error:
                self._continue_after(commands, step, error)
            self._queue.flush()
        return events

    def synchronize(self) -> None:
        with self.errors():
            self._queue.finish()
        self._sending.clear()

    def submit_timed(self, commands: Sequence[Command]) -> Any:
        pairs = [(work_of(step), event) for step, event in self._enqueue_all(commands)]
        return [(work, event) for work, event in pairs if work is not None]

    def times(self, ticket: Any) -> list[Timed]:
        self.synchronize()
        with self.errors():
            return [
                Timed((work,), self._seconds(event.profile.start), self._seconds(event.profile.end))
                for work, event in ticket
            ]

    def _seconds(self, nanoseconds: int) -> float:
        if self._origin is None:
            self._origin = nanoseconds
        return (nanoseconds - self._origin) * 1e-9

    def close(self) -> None:
        if not self.lost:
            with suppress(cl.Error):
                self._queue.finish()
            self.lose(f"device '{self.info.name}' was closed")
        self._sending.clear()
        self._bound.clear()
        self._programs.clear()

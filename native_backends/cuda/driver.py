"""NVIDIA's driver as this library calls it: the functions of `cuda.bindings.driver` that it uses, with their types.

Nothing else calls the driver. Each function is the one of CUDA's driver API whose name its body has; what that gives
besides an error is returned, and an error is raised. Addresses, on the device and on the host, are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cuda.bindings import driver as cu

__all__ = [
    "OUT_OF_MEMORY",
    "CudaError",
    "Device",
    "Handle",
    "allocate",
    "allocate_now",
    "allocate_on_host",
    "await_event",
    "begin_capture",
    "clear",
    "copy",
    "create_event",
    "create_stream",
    "destroy_event",
    "destroy_executable",
    "destroy_graph",
    "destroy_stream",
    "devices",
    "download",
    "end_capture",
    "executable_of",
    "free",
    "free_now",
    "free_on_host",
    "function_of",
    "has_happened",
    "initialize",
    "launch",
    "launch_graph",
    "load_module",
    "make_wait",
    "pop_context",
    "push_context",
    "record_event",
    "release_context",
    "retain_context",
    "seconds_between",
    "stream_of",
    "synchronize",
    "synchronize_context",
    "unload_module",
    "upload",
    "version",
]

OUT_OF_MEMORY = 2
"""CUDA's number of that error."""

Handle = Any
"""A context, stream, event, module, function or graph of the driver's."""

_NAME_LENGTH = 256


class CudaError(Exception):
    """The driver refuses a call, or reports in it that something before it has failed.

    Attributes:
        code: CUDA's number of the error.
    """

    def __init__(self, code: int, text: str) -> None:
        """Make the error with the driver's message."""
        self.code = code
        super().__init__(text)


def _checked(answer: tuple[Any, ...]) -> Any:
    """Raise the error whose code a driver function returned, if any; else return the value after the code, or None."""
    if answer[0]:
        raise _error(answer[0])
    return answer[1] if len(answer) > 1 else None


def _error(result: Any) -> CudaError:
    code = int(result)
    _, text = cu.cuGetErrorString(result)
    _, name = cu.cuGetErrorName(result)
    words = [word.decode() for word in (text, name) if word]
    return CudaError(code, f"{words[0]} ({words[-1]})" if words else f"error {code}")


# Devices. These need no context.


class Device(NamedTuple):
    """The properties of a GPU, as the driver reports them.

    Attributes:
        ordinal: CUDA's number of it, from 0, among those that CUDA_VISIBLE_DEVICES leaves.
        name: as NVIDIA sells it.
        memory: bytes.
        capability: the compute capability, as 90 for 9.0.
        bus: its PCI address, "0000:3b:00.0".
        is_integrated: its memory is the host's.
        is_prohibited: its owner lets no program use it.
        has_pools: it allocates memory in the order of a stream.
        most_threads: of a block.
        shared_bytes: that a block of a kernel declares at most.
    """

    ordinal: int
    name: str
    memory: int
    capability: int
    bus: str
    is_integrated: bool
    is_prohibited: bool
    has_pools: bool
    most_threads: int
    shared_bytes: int


def initialize() -> None:
    """Before any other call."""
    _checked(cu.cuInit(0))


def version() -> tuple[int, int]:
    """The newest CUDA that the driver knows."""
    number: int = _checked(cu.cuDriverGetVersion())
    return number // 1000, number % 1000 // 10


def devices() -> list[Device]:
    """The GPUs that this process sees."""
    count: int = _checked(cu.cuDeviceGetCount())
    return [_device(number) for number in range(count)]


def _device(ordinal: int) -> Device:
    device = _checked(cu.cuDeviceGet(ordinal))
    kinds = cu.CUdevice_attribute

    def attribute(name: str) -> int:
        value: int = _checked(cu.cuDeviceGetAttribute(getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device))
        return value

    prohibited = int(cu.CUcomputemode.CU_COMPUTEMODE_PROHIBITED)
    return Device(
        ordinal=ordinal,
        name=_text(_checked(cu.cuDeviceGetName(_NAME_LENGTH, device))),
        memory=_checked(cu.cuDeviceTotalMem(device)),
        capability=10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR"),
        bus=_text(_checked(cu.cuDeviceGetPCIBusId(_NAME_LENGTH, device))).lower(),
        is_integrated=bool(attribute("INTEGRATED")),
        is_prohibited=attribute("COMPUTE_MODE") == prohibited,
        has_pools=bool(attribute("MEMORY_POOLS_SUPPORTED")),
        most_threads=attribute("MAX_THREADS_PER_BLOCK"),
        shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
    )


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode(errors="replace").strip()


# Contexts. That of a device is the one that all libraries of a process share.


def retain_context(ordinal: int) -> Handle:
    """The primary context of a device. It stays until everybody who retained it has released it."""
    return _checked(cu.cuDevicePrimaryCtxRetain(cu.CUdevice(ordinal)))


def release_context(ordinal: int) -> None:
    """Once for each `retain_context`."""
    _checked(cu.cuDevicePrimaryCtxRelease(cu.CUdevice(ordinal)))


def push_context(context: Handle) -> None:
    """Make the context that of this thread's calls, until `pop_context`."""
    _checked(cu.cuCtxPushCurrent(context))


def pop_context() -> None:
    """Restore the context that this thread had before."""
    _checked(cu.cuCtxPopCurrent())


def synchronize_context() -> None:
    """Wait for all streams of the context, those of other libraries among them."""
    _checked(cu.cuCtxSynchronize())


# Streams and events.


def create_stream() -> Handle:
    """A stream that does not wait for the legacy default stream, nor that for it."""
    return _checked(cu.cuStreamCreate(int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING)))


def destroy_stream(stream: Handle) -> None:
    """Destroy a stream. Work that was enqueued in it still runs."""
    _checked(cu.cuStreamDestroy(stream))


def synchronize(stream: Handle) -> None:
    """Wait for all that was enqueued in it."""
    _checked(cu.cuStreamSynchronize(stream))


def stream_of(number: int) -> Handle:
    """A stream of another library: its address, 1 for the legacy default stream or 2 for that of each thread."""
    return cu.CUstream(number)


def create_event(is_timed: bool = False) -> Handle:
    """An event that may be recorded again and again."""
    flags = cu.CUevent_flags
    return _checked(cu.cuEventCreate(int(flags.CU_EVENT_DEFAULT if is_timed else flags.CU_EVENT_DISABLE_TIMING)))


def destroy_event(event: Handle) -> None:
    """It may still be to come."""
    _checked(cu.cuEventDestroy(event))


def record_event(event: Handle, stream: Handle) -> None:
    """It happens when all has run that was enqueued before it."""
    _checked(cu.cuEventRecord(event, stream))


def await_event(event: Handle) -> None:
    """Wait on the host; not at all where it was never recorded."""
    _checked(cu.cuEventSynchronize(event))


def has_happened(event: Handle) -> bool:
    """Return True if the event has happened, or was never recorded; does not wait."""
    (result,) = cu.cuEventQuery(event)
    if result == cu.CUresult.CUDA_ERROR_NOT_READY:
        return False
    _checked((result,))
    return True


def make_wait(stream: Handle, event: Handle) -> None:
    """Make all work that is enqueued in the stream from now on wait for the event."""
    _checked(cu.cuStreamWaitEvent(stream, event, 0))


def seconds_between(start: Handle, end: Handle) -> float:
    """Return the seconds between two timed events, to half a microsecond; negative where `end` came first."""
    milliseconds: float = _checked(cu.cuEventElapsedTime(start, end))
    return milliseconds * 1e-3


# Memory.


def allocate(nbytes: int, stream: Handle) -> int:
    """Allocate memory for work of this stream, from the device's pool."""
    return int(_checked(cu.cuMemAllocAsync(nbytes, stream)))


def free(address: int, stream: Handle) -> None:
    """Free memory when all that was enqueued in the stream has run."""
    _checked(cu.cuMemFreeAsync(address, stream))


def allocate_now(nbytes: int) -> int:
    """Allocate memory of a device without pools. It may wait for all work."""
    return int(_checked(cu.cuMemAlloc(nbytes)))


def free_now(address: int) -> None:
    """Free memory of `allocate_now`, after a wait for all work; or of `allocate`, of which all uses have ended."""
    _checked(cu.cuMemFree(address))


def clear(address: int, nbytes: int, stream: Handle) -> None:
    """Zeros; `nbytes` is a multiple of 4."""
    _checked(cu.cuMemsetD32Async(address, 0, nbytes // 4, stream))


def copy(target: int, source: int, nbytes: int, stream: Handle) -> None:
    """From device to device."""
    _checked(cu.cuMemcpyDtoDAsync(target, source, nbytes, stream))


def upload(target: int, source: int, nbytes: int, stream: Handle) -> None:
    """From page-locked memory of the host, which is read when the copy runs."""
    _checked(cu.cuMemcpyHtoDAsync(target, source, nbytes, stream))


def download(target: int, source: int, nbytes: int, stream: Handle) -> None:
    """To page-locked memory of the host, which is written when the copy runs."""
    _checked(cu.cuMemcpyDtoHAsync(target, source, nbytes, stream))


def allocate_on_host(nbytes: int) -> int:
    """Page-locked memory."""
    return int(_checked(cu.cuMemHostAlloc(nbytes, 0)))


def free_on_host(address: int) -> None:
    """Free page-locked memory of `allocate_on_host`."""
    _checked(cu.cuMemFreeHost(address))


# Kernels and graphs.


def load_module(image: bytes) -> Handle:
    """A cubin; or PTX, which the driver compiles now and which has to end with a zero byte."""
    return _checked(cu.cuModuleLoadData(image))


def unload_module(module: Handle) -> None:
    """Unload a module; its functions can no longer be launched."""
    _checked(cu.cuModuleUnload(module))


def function_of(module: Handle, name: str) -> Handle:
    """Return a kernel by its name, loaded at once, since the first launch may be in a graph that is captured."""
    function = _checked(cu.cuModuleGetFunction(module, name.encode()))
    _checked(cu.cuFuncLoad(function))
    return function


def launch(function: Handle, grid: Sequence[int], block: Sequence[int], arguments: int, stream: Handle) -> None:
    """Enqueue a kernel.

    Args:
        function: the kernel.
        grid: blocks along each axis.
        block: threads along each axis.
        arguments: where an address of each of its arguments stands. They are copied before this returns.
        stream: where to.
    """
    _checked(cu.cuLaunchKernel(function, *grid, *block, 0, stream, arguments, 0))


def begin_capture(stream: Handle) -> None:
    """Record the work that this thread enqueues in the stream as a graph; none of it runs until `end_capture`."""
    _checked(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))


def end_capture(stream: Handle) -> Handle:
    """The graph. Also where this raises, the stream runs again what is enqueued in it."""
    return _checked(cu.cuStreamEndCapture(stream))


def executable_of(graph: Handle) -> Handle:
    """A graph made ready to be launched many times; it does not need the graph any more."""
    return _checked(cu.cuGraphInstantiate(graph, 0))


def destroy_graph(graph: Handle) -> None:
    """Not what was made of it."""
    _checked(cu.cuGraphDestroy(graph))


def destroy_executable(executable: Handle) -> None:
    """Destroy an executable graph of `executable_of`, when it does not run."""
    _checked(cu.cuGraphExecDestroy(executable))


def launch_graph(executable: Handle, stream: Handle) -> None:
    """Enqueue all of it."""
    _checked(cu.cuGraphLaunch(executable, stream))

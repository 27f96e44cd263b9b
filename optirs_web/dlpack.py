"""Memory shared with other libraries by DLPack (https://dmlc.github.io/dlpack), as in the array API standard.

A tensor on a device whose memory the host can address, as `cpu`, is exported without a copy; so is one on `cuda`, to
libraries that use the same GPU. A consumer keeps its buffer: the memory returns to the pool when the last view of it is
gone. Writes of later steps and replays are visible in the view; tensors on other devices are exported as copies, which
do not change.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .dlpack_capsules import Described, capsule_of, consumed, is_versioned
from .errors import UnsupportedError
from .runtime.buffer import Buffer, View
from .runtime.dtypes import BOOL, dtype as dtype_of
from .runtime.registry import device as device_of, opened
from .tensor_class import Tensor, tensor

if TYPE_CHECKING:
    from .runtime.device import Device

__all__ = ["dlpack_device", "exported", "from_dlpack", "host_array"]

_CPU = (1, 0)
_KINDS = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32), "uint32": (1, 32)}
"""DLPack's codes and bits of the types that a tensor shares."""
_TYPES = {"cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "webgpu": 15}
"""The numbers of DLPack's devices, by the names of ours; it has none for the others."""

_read_only: WeakSet[Buffer] = WeakSet()
"""Borrowed memory that is read-only; tensors are not written in place, but a consumer could write it."""


class _HostMemory:
    """The memory of a buffer on the host, by NumPy's protocol; keeps the buffer alive."""

    __slots__ = ("__array_interface__", "_keeps")

    def __init__(self, memory: Any, buffer: Buffer, interface: dict[str, Any]) -> None:
        self._keeps = memory, buffer  # the array too: a device that is closed drops its memory
        self.__array_interface__ = interface


def host_array(x: Tensor) -> Any:
    """Return a writable NumPy array over the memory of a tensor; None where that is impossible.

    It is impossible for a device's own memory, for types that NumPy lacks (bfloat16) or that have another size there
    (bool), and for strided views with repeated elements. Enqueued work may still have to run.
    """
    import numpy as np

    view, start, strides = x.strided
    memory = x.device.backend.host_bytes(view.buffer.handle)
    overlaps = any(step <= 0 < size - 1 for step, size in zip(strides, x.shape, strict=True))
    if memory is None or x.dtype is BOOL or x.dtype == "bfloat16" or overlaps or not x.size:
        return None
    kind = np.dtype(x.dtype.name)
    address = memory.__array_interface__["data"][0] + view.offset + start * kind.itemsize
    interface = {
        "data": (address, False),
        "shape": x.shape,
        "strides": tuple(kind.itemsize * step for step in strides),
        "typestr": kind.str,
        "version": 3,
    }
    return np.asarray(_HostMemory(memory, view.buffer, interface))


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Return DLPack's number of the tensor's kind of device, and the index of the device; for `__dlpack_device__`.

    Raises:
        BufferError: DLPack has no number for the device.
    """
    if x.device.backend.host_bytes(x.strided.view.buffer.handle) is not None:
        return _CPU
    name = x.device.info.name
    if name not in _TYPES:
        raise BufferError(f"DLPack has no code for the device '{name}'; x.numpy() copies the values to the host")
    sharing = x.device.backend.sharing
    return _TYPES[name], x.device.info.index if sharing is None else sharing.number


def exported(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a capsule of the tensor's memory for one consumer; for `Tensor.__dlpack__`.

    Args:
        x: the tensor. Waits for its enqueued work; on a GPU only the consumer's stream waits.
        stream: None; for memory of a GPU the consumer's, as in the array API standard: None or 1 for CUDA's legacy
            default stream, 2 for that of each thread, -1 for no ordering, else its address.
        max_version: the newest version of DLPack that the consumer reads.
        dl_device: the device that the consumer requests: None for the tensor's, or (1, 0), the host.
        copy: True for a copy, False for the memory itself, None for the memory where that is possible.

    Raises:
        BufferError: the request is impossible; the message says why.
        UnsupportedError: a step is being recorded, so that there is no value yet.
    """
    sharing = x.device.backend.sharing
    if sharing is not None and x.device.recording is None and dl_device in (None, dlpack_device(x)):
        return _lent(x, sharing, stream, max_version, copy)
    if stream is not None:
        raise BufferError(f"a tensor on the host has no stream, and {stream!r} was asked for")
    if x.device.recording is not None:
        raise UnsupportedError("a tensor has no value inside a compiled step: export what the step returns")
    if x.dtype == "bfloat16":
        raise BufferError("NumPy's DLPack has no bfloat16; export x.float()")
    device_name = x.device.name
    if dl_device not in (None, _CPU):
        raise BufferError(
            f"a tensor on '{device_name}' is exported to the host, DLPack's device (1, 0), not to {dl_device}"
        )
    if dl_device is None and dlpack_device(x) != _CPU:
        raise BufferError(
            f"a tensor on '{device_name}' is not in host memory: ask for a copy there, as "
            "numpy.from_dlpack(x, device='cpu') does, or call x.numpy()"
        )
    x.device.synchronize()
    memory = None if copy else host_array(x)
    if memory is None:
        if copy is False:
            raise BufferError(f"{x!r} cannot be exported without a copy")
        memory = x.numpy()
        memory = memory if memory.flags.writeable else memory.copy()
    if max_version is None:
        return memory.__dlpack__()
    try:
        return memory.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy 2.0
        return memory.__dlpack__()


def _lent(x: Tensor, sharing: Any, stream: Any, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    """Return a capsule of memory on the device."""
    if stream == 0:
        raise BufferError("DLPack gives stream 0 no meaning: 1 is CUDA's legacy default stream, 2 that of each thread")
    if x.dtype.name not in _KINDS:
        raise BufferError(f"an element of {x.dtype} takes four bytes here but one elsewhere; export x.float()")
    is_exportable = all(step > 0 for step, size in zip(x.strided.strides, x.shape, strict=True) if size > 1)
    is_read_only = x.strided.view.buffer in _read_only
    may_be_written = is_read_only and not is_versioned(max_version)  # older capsules have no flag for it
    if copy is False and not is_exportable:
        raise BufferError(f"{x!r} cannot be exported without a copy")
    if copy is False and may_be_written:
        raise BufferError("its memory is another library's, lent read-only, which only DLPack 1.0 can express: copy it")
    if copy or not is_exportable or may_be_written:
        x, is_read_only = x.detach().clone(), False
    x.device.flush()
    view, start, strides = x.strided
    buffer = view.buffer
    address = sharing.lend(buffer.handle, stream) + view.offset + start * x.dtype.itemsize

    def end() -> None:
        sharing.give_back(buffer.handle, stream)

    array = Described(address, dlpack_device(x), x.shape, strides, _KINDS[x.dtype.name], is_read_only)
    return capsule_of(array, end, max_version, is_copied=bool(copy))


def from_dlpack(x: Any, /, *, device: str | Device | None = None, copy: bool | None = None) -> Tensor:
    """Make a tensor from another library's array, without a copy where it is on a GPU that a device here can share.

    Writes of each library are visible to the other, once they are ordered: the other library's work so far comes before
    this one's from now on. Exchange the memory again after later work, or wait for it. Read-only memory (a flag of
    DLPack 1.0) is exported as such, or as a copy to libraries that support only an older DLPack.

    Args:
        x: has `__dlpack__` and `__dlpack_device__`, as arrays of torch, CuPy, JAX and NumPy do.
        device: what `optirs_web.device` takes; None for `cuda` where x is on an NVIDIA GPU, else as for `tensor`.
        copy: True for memory of its own, False for an error where there has to be a copy.

    Returns:
        A tensor of its shape: float32, float16, bfloat16, int32 or uint32; where it is copied, as `tensor` makes it.

    Raises:
        BufferError: `copy` is False, and its memory cannot be shared.
        UnsupportedError: it has no memory, or its type is none that a tensor can have.
        DeviceNotAvailableError: there is no device for its memory.

    Example:
        >>> import numpy as np, optirs_web as ow
        >>> ow.from_dlpack(np.ones(2, np.float32), device="cpu").tolist()
        [1.0, 1.0]
    """
    try:
        kind, number = (int(code) for code in x.__dlpack_device__())
    except Exception as error:  # libraries raise different errors for arrays without memory
        raise UnsupportedError(f"a tensor cannot be made from this {type(x).__name__}: {error}") from error
    candidates = opened() if device is None else [device_of(device)]
    target = next((candidate for candidate in candidates if _shares(candidate, kind, number)), None)
    names = [name for name, code in _TYPES.items() if code == kind]
    if target is None and device is None and names:
        target = device_of(f"{names[0]}:{number}")
    if target is not None and _shares(target, kind, number):
        borrowed = _borrowed(x, target)
        return borrowed.clone() if copy else borrowed
    if copy is False:
        raise BufferError(f"data on DLPack's device ({kind}, {number}) becomes a tensor only by a copy")
    return tensor(x, device=device)


def _shares(device: Device, kind: int, number: int) -> bool:
    """Return whether the device can use memory on that device of DLPack's."""
    sharing = device.backend.sharing
    return sharing is not None and not device.lost and (_TYPES[device.info.name], sharing.number) == (kind, number)


def _borrowed(x: Any, device: Device) -> Tensor:
    """Return a tensor over memory of another library on the same device."""
    sharing = device.backend.sharing
    x = x.detach() if hasattr(x, "detach") else x
    try:
        capsule = x.__dlpack__(stream=sharing.stream, max_version=(1, 0))
    except TypeError:  # a library with DLPack before 1.0
        capsule = x.__dlpack__(stream=sharing.stream)
    array, end = consumed(capsule)
    try:
        return _over(array, end, device, sharing)
    except BaseException:
        end()
        raise


def _over(array: Described, end: Any, device: Device, sharing: Any) -> Tensor:
    kind = next((name for name, codes in _KINDS.items() if codes == array.kind), None)
    if kind is None:
        raise UnsupportedError(
            f"a tensor cannot be made from DLPack's type {array.kind}; in the other library make it float32 or int32"
        )
    if any(step < 0 for step in array.strides):
        raise UnsupportedError("an array with negative strides cannot be shared; copy it in the other library")
    dtype = dtype_of(kind)
    before = array.address % device.capabilities.offset_alignment
    if before % dtype.itemsize:
        raise UnsupportedError(f"an array of {kind} that begins at address {array.address:#x} cannot be shared")
    start = before // dtype.itemsize
    if not math.prod(array.shape):
        empty = tensor([], device=device, dtype=dtype).reshape(array.shape)
        end()
        return empty
    extent = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True))
    nbytes = dtype.nbytes(start + extent + 1)
    handle = sharing.borrow(array.address - before, end)
    buffer = Buffer(device, handle, nbytes, partial(_release, device))
    if array.is_read_only:
        _read_only.add(buffer)
    return Tensor(View.whole(buffer), array.shape, dtype, strides=array.strides, start=start)


def _release(device: Device, handle: Any, _: int) -> None:
    """Free borrowed memory that no tensor uses any more, after submitting work that uses it."""
    if device.is_holding:
        device.meanwhile[partial(_release, device, handle, 0)] = None
        return
    with device.lock:
        if not device.lost:
            device.flush()
        device.backend.free(handle)

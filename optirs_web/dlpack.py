"""Memory shared with other libraries: DLPack (https://dmlc.github.io/dlpack), as the array API standard has it.

A tensor on a device whose memory the host can address, as `cpu`, is shown as it lies, without a copy; so is one on
`cuda`, to libraries that use the same GPU. Whoever is shown it keeps its buffer: the pool has the memory back when the
last view of it is gone. What a later step or replay writes there is seen through the view; from other devices comes a
copy, which stays as it is.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .errors import UnsupportedError
from .runtime.buffer import Buffer, View
from .runtime.dtypes import BOOL, dtype as dtype_of
from .runtime.registry import device as device_of, opened
from .tensor_methods import call_operation
from .tensors import Tensor, tensor

if TYPE_CHECKING:
    from .dlpack_capsules import Described
    from .runtime.device import Device

__all__ = ["as_array", "dlpack_device", "exported", "from_dlpack", "host_array"]

_CPU = (1, 0)
_KINDS = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32), "uint32": (1, 32)}
"""DLPack's codes and bits of the types that a tensor shares."""
_TYPES = {"cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "webgpu": 15}
"""The numbers of DLPack's devices, by the names of ours; it has none for the others."""

_read_only: WeakSet[Buffer] = WeakSet()
"""Memory that its owner lent to be read; no tensor is written in place, but who is shown one may write it."""


class _Held:
    """Memory of a buffer on the host, by NumPy's protocol; keeps the buffer."""

    __slots__ = ("__array_interface__", "_keeps")

    def __init__(self, memory: Any, buffer: Buffer, interface: dict[str, Any]) -> None:
        self._keeps = memory, buffer  # the array too: a device that is closed lets go of its memory
        self.__array_interface__ = interface


def host_array(one: Tensor) -> Any:
    """A NumPy array over the memory of a tensor, which may be written; None where there can be none.

    There is none for a device's own memory, nor for types that NumPy has not (bfloat16) or that take another size there
    (bool), nor for a walk that comes to an element twice. Work that was enqueued may still have to run.
    """
    import numpy as np

    view, start, strides = one.walk
    memory = one.device.backend.host_bytes(view.buffer.handle)
    overlaps = any(step <= 0 < size - 1 for step, size in zip(strides, one.shape, strict=True))
    if memory is None or one.dtype is BOOL or one.dtype == "bfloat16" or overlaps or not one.size:
        return None
    kind = np.dtype(one.dtype.name)
    first = memory.__array_interface__["data"][0] + view.offset + start * kind.itemsize
    interface = {
        "data": (first, False),
        "shape": one.shape,
        "strides": tuple(kind.itemsize * step for step in strides),
        "typestr": kind.str,
        "version": 3,
    }
    return np.asarray(_Held(memory, view.buffer, interface))


def dlpack_device(one: Tensor) -> tuple[int, int]:
    """What `Tensor.__dlpack_device__` returns: DLPack's number of the kind of device, and which one of that kind.

    Raises:
        BufferError: DLPack has no number for the device.
    """
    if one.device.backend.host_bytes(one.walk.view.buffer.handle) is not None:
        return _CPU
    name = one.device.info.name
    if name not in _TYPES:
        raise BufferError(f"DLPack has no code for the device '{name}'; x.numpy() copies the values to the host")
    sharing = one.device.backend.sharing
    return _TYPES[name], one.device.info.index if sharing is None else sharing.number


def exported(
    one: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """What `Tensor.__dlpack__` returns: a capsule that one consumer takes over.

    Args:
        one: the tensor. Waits for the work that it is computed by, on a GPU the consumer's stream alone.
        stream: None; for memory of a GPU the consumer's, as the array API standard says: None or 1 for CUDA's legacy
            default stream, 2 for that of each thread, -1 for no order at all, else its address.
        max_version: the newest version of DLPack that the consumer reads.
        dl_device: where the consumer wants it: None for where it lies, or (1, 0), the host.
        copy: True for a copy, False for the memory itself, None for the memory where that can be.

    Raises:
        BufferError: what was asked for is impossible; the message says what is not.
        UnsupportedError: a step is being recorded, so that there is no value yet.
    """
    sharing = one.device.backend.sharing
    if sharing is not None and one.device.recording is None and dl_device in (None, dlpack_device(one)):
        return _lent(one, sharing, stream, max_version, copy)
    if stream is not None:
        raise BufferError(f"a tensor on the host has no stream, and {stream!r} was asked for")
    if one.device.recording is not None:
        raise UnsupportedError("a tensor has no value inside a compiled step: export what the step returns")
    if one.dtype == "bfloat16":
        raise BufferError("NumPy's DLPack has no bfloat16; export x.float()")
    where = one.device.name
    if dl_device not in (None, _CPU):
        raise BufferError(f"a tensor on '{where}' is exported to the host, DLPack's device (1, 0), not to {dl_device}")
    if dl_device is None and dlpack_device(one) != _CPU:
        raise BufferError(
            f"a tensor on '{where}' is not in host memory: ask for a copy there, as "
            "numpy.from_dlpack(x, device='cpu') does, or call x.numpy()"
        )
    one.device.synchronize()
    memory = None if copy else host_array(one)
    if memory is None:
        if copy is False:
            raise BufferError(f"{one!r} cannot be exported without a copy")
        memory = one.numpy()
        memory = memory if memory.flags.writeable else memory.copy()
    if max_version is None:
        return memory.__dlpack__()
    try:
        return memory.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy 2.0
        return memory.__dlpack__()


def _lent(one: Tensor, sharing: Any, stream: Any, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    """A capsule of memory on the device."""
    from .dlpack_capsules import Described, is_versioned, made  # which few need

    if stream == 0:
        raise BufferError("DLPack gives stream 0 no meaning: 1 is CUDA's legacy default stream, 2 that of each thread")
    if one.dtype.name not in _KINDS:
        raise BufferError(f"an element of {one.dtype} takes four bytes here but one elsewhere; export x.float()")
    is_walk = all(step > 0 for step, size in zip(one.walk.strides, one.shape, strict=True) if size > 1)
    is_read_only = one.walk.view.buffer in _read_only
    may_be_written = is_read_only and not is_versioned(max_version)  # who reads older capsules is not told
    if copy is False and not is_walk:
        raise BufferError(f"{one!r} cannot be exported without a copy")
    if copy is False and may_be_written:
        raise BufferError("its memory is another library's, lent read-only, which only DLPack 1.0 can express: copy it")
    if copy or not is_walk or may_be_written:
        one, is_read_only = call_operation("clone", one.detach()), False
    one.device.flush()
    view, start, strides = one.walk
    buffer = view.buffer
    address = sharing.lend(buffer.handle, stream) + view.offset + start * one.dtype.itemsize

    def end() -> None:
        sharing.give_back(buffer.handle, stream)

    described = Described(address, dlpack_device(one), one.shape, strides, _KINDS[one.dtype.name], is_read_only)
    return made(described, end, max_version, is_copied=bool(copy))


def from_dlpack(x: Any, /, *, device: str | Device | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of what another library has, without a copy where it lies on a GPU that a device here can share.

    What either writes there, the other sees, once the work of both is in order: the other library's so far comes before
    this one's from now on. Exchange the memory again after later work, or wait for it. What was lent to be read alone
    (DLPack 1.0 says so) is lent on as such, or as a copy to libraries that know an older DLPack.

    Args:
        x: has `__dlpack__` and `__dlpack_device__`, as arrays of torch, CuPy, JAX and NumPy do.
        device: what `optirs_web.device` takes; None for `cuda` where x lies on a GPU of NVIDIA, else as for `tensor`.
        copy: True for memory of its own, False for an error where there has to be a copy.

    Returns:
        A tensor of its shape: float32, float16, bfloat16, int32 or uint32; elsewhere as `tensor` makes it.

    Raises:
        BufferError: `copy` is False, and its memory cannot be shared.
        UnsupportedError: it has no memory, or its type is none that a tensor can have.
        DeviceNotAvailableError: there is no device for the memory that it lies in.

    Example:
        >>> import numpy as np, optirs_web as ow
        >>> ow.from_dlpack(np.ones(2, np.float32), device="cpu").tolist()
        [1.0, 1.0]
    """
    try:
        kind, number = (int(one) for one in x.__dlpack_device__())
    except Exception as error:  # libraries have no error in common for what has no memory
        raise UnsupportedError(f"a tensor cannot be made from this {type(x).__name__}: {error}") from error
    candidates = opened() if device is None else [device_of(device)]
    target = next((one for one in candidates if _shares(one, kind, number)), None)
    names = [name for name, one in _TYPES.items() if one == kind]
    if target is None and device is None and names:
        target = device_of(f"{names[0]}:{number}")
    if target is not None and _shares(target, kind, number):
        made = _borrowed(x, target)
        return call_operation("clone", made) if copy else made
    if copy is False:
        raise BufferError(f"data on DLPack's device ({kind}, {number}) becomes a tensor only by a copy")
    return tensor(x, device=device)


def _shares(device: Device, kind: int, number: int) -> bool:
    """The device can use memory that lies on that one of DLPack's."""
    sharing = device.backend.sharing
    return sharing is not None and not device.lost and (_TYPES[device.info.name], sharing.number) == (kind, number)


def _borrowed(x: Any, device: Device) -> Tensor:
    """A tensor over memory of another library on the same device."""
    from .dlpack_capsules import taken  # which few need

    sharing = device.backend.sharing
    x = x.detach() if hasattr(x, "detach") else x
    try:
        capsule = x.__dlpack__(stream=sharing.stream, max_version=(1, 0))
    except TypeError:  # a library that knows DLPack as it was before
        capsule = x.__dlpack__(stream=sharing.stream)
    one, end = taken(capsule)
    try:
        return _over(one, end, device, sharing)
    except BaseException:
        end()
        raise


def _over(one: Described, end: Any, device: Device, sharing: Any) -> Tensor:
    kind = next((name for name, codes in _KINDS.items() if codes == one.kind), None)
    if kind is None:
        raise UnsupportedError(
            f"a tensor cannot be made from DLPack's type {one.kind}; in the other library make it float32 or int32"
        )
    if any(step < 0 for step in one.strides):
        raise UnsupportedError("an array with negative strides cannot be shared; copy it in the other library")
    dtype = dtype_of(kind)
    before = one.address % device.capabilities.offset_alignment
    if before % dtype.itemsize:
        raise UnsupportedError(f"an array of {kind} that begins at address {one.address:#x} cannot be shared")
    start = before // dtype.itemsize
    if not math.prod(one.shape):
        empty = tensor([], device=device, dtype=dtype).reshape(one.shape)
        end()
        return empty
    last = sum((size - 1) * step for size, step in zip(one.shape, one.strides, strict=True))
    nbytes = dtype.nbytes(start + last + 1)
    handle = sharing.borrow(one.address - before, end)
    buffer = Buffer(device, handle, nbytes, partial(_left, device))
    if one.is_read_only:
        _read_only.add(buffer)
    return Tensor(View.whole(buffer), one.shape, dtype, strides=one.strides, start=start)


def _left(device: Device, handle: Any, _: int) -> None:
    """Nobody here holds borrowed memory; work that uses it may still have to be sent."""
    if device.is_holding:
        device.meanwhile[partial(_left, device, handle, 0)] = None
        return
    with device.lock:
        if not device.lost:
            device.flush()
        device.backend.free(handle)


def as_array(data: Any) -> Any:
    """A NumPy array of what another library has: torch, JAX, TensorFlow, whatever has `__dlpack__`.

    Raises:
        UnsupportedError: it has no values on the host, or of no type that NumPy has.
    """
    import numpy as np

    try:
        if hasattr(data, "detach"):  # torch's, which it gives away without their history
            data = data.detach()
            data = data.float() if str(data.dtype) == "torch.bfloat16" else data
        values = np.asarray(data) if hasattr(data, "__array__") else np.from_dlpack(data)
    except (BufferError, NotImplementedError, RuntimeError, TypeError) as error:
        raise UnsupportedError(f"a tensor cannot be made from this {type(data).__name__}: {error}") from error
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values  # JAX's

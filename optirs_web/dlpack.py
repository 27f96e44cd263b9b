"""Memory shared with other libraries: DLPack (https://dmlc.github.io/dlpack), as the array API standard has it.

A tensor on a device whose memory the host can address, as `cpu`, is shown as it lies, without a copy. Whoever is shown
it keeps its buffer: the pool has the memory back when the last view of it is gone. What a later step or replay writes
there is seen through the view; from other devices comes a copy, which stays as it is.
"""

from __future__ import annotations

from typing import Any

from .errors import UnsupportedError
from .runtime.buffer import Buffer
from .runtime.dtypes import BOOL
from .tensors import Tensor

__all__ = ["as_array", "dlpack_device", "exported", "host_array"]

_CPU = (1, 0)
_TYPES = {"cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "webgpu": 15}
"""The numbers of DLPack's devices, by the names of ours; it has none for the others."""


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
        raise BufferError(f"DLPack has no word for the device '{name}'; x.numpy() copies the values to the host")
    return _TYPES[name], one.device.info.index


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
        one: the tensor. Waits for the work that it is computed by.
        stream: None.
        max_version: the newest version of DLPack that the consumer reads.
        dl_device: where the consumer wants it: None for where it lies, or (1, 0), the host.
        copy: True for a copy, False for the memory itself, None for the memory where that can be.

    Raises:
        BufferError: what was asked for is impossible; the message says what is not.
        UnsupportedError: a step is being recorded, so that there is no value yet.
    """
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
            f"a tensor on '{where}' does not lie in the host's memory: ask for a copy there, as "
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
        raise UnsupportedError(f"a tensor cannot be made of this {type(data).__name__}: {error}") from error
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values  # JAX's

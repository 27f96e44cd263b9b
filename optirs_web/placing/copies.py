"""Tensors on another device than their own: each is carried there once, and again only when it has changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ..autograd import grad_enabled, record
from ..errors import DeviceLimitError
from ..launch import contiguous
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.launches import Copy, Launch
from ..runtime.program import Program
from ..tensors import Tensor

__all__ = ["is_at", "moved", "tensors_in", "with_tensors"]

_Region = tuple[int, int, Device]  # offset and bytes in the buffer, and the device of the copy

_copies: WeakKeyDictionary[Buffer, dict[_Region, View]] = WeakKeyDictionary()
_copied_from: WeakKeyDictionary[Buffer, weakref.ref[Buffer]] = WeakKeyDictionary()
_written: WeakKeyDictionary[Program, frozenset[Buffer]] = WeakKeyDictionary()


def _forget(change: View | Launch | Copy | Program) -> None:
    if not _copies:
        return
    for buffer in _changed(change):
        _copies.pop(buffer, None)
        source = _copied_from.pop(buffer, None)
        original = source() if source is not None else None
        if original is not None:
            _copies.pop(original, None)


def _changed(change: View | Launch | Copy | Program) -> Iterable[Buffer]:
    if isinstance(change, View):
        return (change.buffer,)
    if not isinstance(change, Program):
        return [view.buffer for view in change.writes]
    if change not in _written:
        _written[change] = frozenset(view.buffer for launch in change.launches for view in launch.writes)
    return _written[change]


def is_at(x: Tensor, device: Device) -> bool:
    """Return whether a tensor, or a copy of it, is on this device."""
    view = x.strided.view
    if view.buffer.device is device:
        return True
    copies = _copies.get(view.buffer)
    return copies is not None and (view.offset, view.nbytes, device) in copies


def moved(x: Tensor, device: Device) -> Tensor:
    """Return the tensor, or its copy on this device; gradients of the copy are carried back to the tensor. Waits."""
    if x.device is device:
        return x
    copy = _copy_of(x, device)
    if not (x.requires_grad and grad_enabled()):
        return copy
    # An earlier copy is returned again, so that its gradients are added up there and carried back once. The copy refers
    # to the tensor, so the tensor must not refer to the copy.
    handed_out: dict[Device, weakref.ref[Tensor]] = vars(x).setdefault("_moved", {})
    earlier = handed_out[device]() if device in handed_out else None
    if earlier is not None and earlier._edges and earlier.strided == copy.strided:
        return earlier
    result = record(copy, (x, partial(_carried_back, x.device)))
    handed_out[device] = weakref.ref(result)
    return result


def _carried_back(home: Device, g: Any, _: Tensor) -> Any:
    return g.to(home)  # also of `SparseRows`


def _copy_of(x: Tensor, device: Device) -> Tensor:
    view, start, strides = x.strided
    if 2 * x.size * x.dtype.itemsize < view.nbytes:  # a small part of something large
        with suppress(DeviceLimitError):  # all of it, where elements of 16 bits cannot be put together
            x = contiguous(x.detach()) if not x.is_contiguous else Tensor(x.view, x.shape, x.dtype)
            view, start, strides = x.strided
    copy = _copied(view, device)
    return Tensor(copy, x.shape, x.dtype, strides=strides, start=start)


def _copied(view: View, device: Device) -> View:
    copies = _copies.get(view.buffer)
    region = (view.offset, view.nbytes, device)
    if copies is not None and region in copies and not device.lost:
        return copies[region]
    recording = device.recording
    buffer = device.allocate(view.nbytes) if recording is None else device.allocate_zeroed(max(4, view.nbytes))
    if recording is not None:
        recording.keep(buffer)
    copy = View(buffer, 0, view.nbytes)
    for owner in (view.buffer.device, device):
        owner.on_change = _forget
    copies = _copies.setdefault(view.buffer, {})
    if view.nbytes:
        device.write(copy, view.buffer.device.read(view))
    if _copies.get(view.buffer) is copies:  # no other thread has changed what was read
        copies[region] = copy
        _copied_from[buffer] = weakref.ref(view.buffer)
    return copy


# Arguments of operations.


def tensors_in(arguments: Iterable[Any], options: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors among the arguments, and in lists and tuples among them."""
    tensors = []
    for argument in (*arguments, *options.values()) if options else arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif isinstance(argument, (list, tuple)):
            tensors += [part for part in argument if isinstance(part, Tensor)]
    return tensors


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return an argument with each of its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return type(value)(change(item) if isinstance(item, Tensor) else item for item in value)
    return value

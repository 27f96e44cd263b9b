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
from ..ops.launch import contiguous
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.launches import Copy, Launch
from ..runtime.program import Program
from ..tensors import Tensor

__all__ = ["is_at", "moved", "tensors_in", "with_tensors"]

_Place = tuple[int, int, Device]  # offset and bytes in the buffer, and where the copy lies

_copies: WeakKeyDictionary[Buffer, dict[_Place, View]] = WeakKeyDictionary()
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
        _written[change] = frozenset(view.buffer for one in change.launches for view in one.writes)
    return _written[change]


def is_at(x: Tensor, device: Device) -> bool:
    """The tensor lies there, or a copy of it does."""
    view = x.walk.view
    if view.buffer.device is device:
        return True
    places = _copies.get(view.buffer)
    return places is not None and (view.offset, view.nbytes, device) in places


def moved(x: Tensor, device: Device) -> Tensor:
    """The tensor, or its copy on this device, whose gradient is carried back to where the tensor lies. Waits."""
    if x.device is device:
        return x
    copy = _copy_of(x, device)
    if not (x.requires_grad and grad_enabled()):
        return copy
    # What was handed out before serves again, so that its gradients are added up there and carried back once. It holds
    # the tensor, so the tensor must not hold it.
    handed_out: dict[Device, weakref.ref[Tensor]] = vars(x).setdefault("_moved", {})
    earlier = handed_out[device]() if device in handed_out else None
    if earlier is not None and earlier._edges and earlier.walk == copy.walk:
        return earlier
    result = record(copy, (x, partial(_carried_back, x.device)))
    handed_out[device] = weakref.ref(result)
    return result


def _carried_back(home: Device, g: Any, _: Tensor) -> Any:
    return g.to(home)  # also of `SparseRows`


def _copy_of(x: Tensor, device: Device) -> Tensor:
    view, start, strides = x.walk
    if 2 * x.size * x.dtype.itemsize < view.nbytes:  # a small part of something large
        with suppress(DeviceLimitError):  # all of it, where elements of 16 bits cannot be put together
            x = contiguous(x.detach()) if not x.is_contiguous else Tensor(x.view, x.shape, x.dtype)
            view, start, strides = x.walk
    there = _copied(view, device)
    return Tensor(there, x.shape, x.dtype, strides=strides, start=start)


def _copied(view: View, device: Device) -> View:
    places = _copies.get(view.buffer)
    place = (view.offset, view.nbytes, device)
    if places is not None and place in places and not device.lost:
        return places[place]
    recording = device.recording
    buffer = device.allocate(view.nbytes) if recording is None else device.allocate_zeroed(max(4, view.nbytes))
    if recording is not None:
        recording.keep(buffer)
    there = View(buffer, 0, view.nbytes)
    for one in (view.buffer.device, device):
        one.on_change = _forget
    places = _copies.setdefault(view.buffer, {})
    if view.nbytes:
        device.write(there, view.buffer.device.read(view))
    if _copies.get(view.buffer) is places:  # no other thread has changed what was read
        places[place] = there
        _copied_from[buffer] = weakref.ref(view.buffer)
    return there


# Arguments of operations.


def tensors_in(arguments: Iterable[Any], options: Mapping[str, Any]) -> list[Tensor]:
    """Those among the arguments, and in lists and tuples among them."""
    found = []
    for one in (*arguments, *options.values()) if options else arguments:
        if isinstance(one, Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += [part for part in one if isinstance(part, Tensor)]
    return found


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An argument with its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and any(isinstance(one, Tensor) for one in value):
        return type(value)(change(one) if isinstance(one, Tensor) else one for one in value)
    return value

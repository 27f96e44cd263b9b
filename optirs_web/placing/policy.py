"""`placement`: the policies, and how an operation is run under one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, Literal, Protocol, Self, get_args
from weakref import ref

from .. import ops
from ..autograd import walks_back
from ..compiled import Compiled
from ..errors import DeviceLimitError, DeviceNotAvailableError, OutOfDeviceMemoryError
from ..runtime.backend import AdapterInfo
from ..runtime.device import Device
from ..runtime.locks import ForkSafeLock
from ..runtime.modes import Block, Mode
from ..runtime.registry import adapters, device as device_of
from ..tensors import Tensor
from .choice import Call, Fastest
from .copies import is_at, moved, tensors_in, with_tensors
from .fallback import holds, is_of_a_limit, other_device, warn_once
from .steps import place_step

__all__ = ["Policy", "current", "placement"]

PolicyName = Literal["auto", "gpu", "cpu", "minimize_transfers"]

_STAYS = {
    "add_into",
    "broadcast_to",
    "chunk",
    "clone",
    "embedding",
    "flatten",
    "getitem",
    "in_order",
    "permute",
    "reshape",
}
_STAYS |= {"split", "squeeze", "to_device", "transpose", "unsqueeze"}
"""Operations that run where their first operand lies: most look at its memory in another way, or at a part of it."""


class Policy(Protocol):
    """Says where work runs."""

    @property
    def candidates(self) -> Sequence[Device]:
        """The devices that a step may be tried on; one if it is to run there; none if it stays where it is."""

    def device_for(self, call: Call) -> Device:
        """Where an operation runs."""

    def stays(self) -> None:
        """The next operation runs where its operands lie: nothing is asked about it."""

    def cannot_run(self, call: Call, device: Device) -> None:
        """The limits of this device do not allow the operation: it runs elsewhere."""

    def ran(self, result: Any) -> None:
        """The operation that `device_for` or `stays` was called for has run, and gave this."""


class _LearnsNothing:
    """What does not depend on what ran before."""

    def stays(self) -> None:
        pass

    def cannot_run(self, call: Call, device: Device) -> None:
        pass

    def ran(self, result: Any) -> None:
        pass


class _Forced(_LearnsNothing):
    """Everything on one device."""

    def __init__(self, device: Device) -> None:
        self.candidates = (device,)

    def device_for(self, call: Call) -> Device:
        return self.candidates[0]


class _FewestBytes(_LearnsNothing):
    """Each operation where most bytes of its operands are."""

    candidates: Sequence[Device] = ()

    def device_for(self, call: Call) -> Device:
        tensors = call.tensors
        names = dict.fromkeys(one.device for one in tensors)
        if len(names) == 1:
            return tensors[0].device
        return max(names, key=lambda device: sum(one.size for one in tensors if is_at(one, device)))


_inner: Mode[Policy | EllipsisType | None] = Mode("placement", ...)
"""Policy of the innermost block of this thread or task; `...` outside of all."""

_outright: list[tuple[ref[placement], Policy | None]] = []
"""Policies set outside of blocks, for all threads, and by whom: one that is still held may become a block yet."""

_lock = ForkSafeLock()
"""Held while that changes."""


def current() -> Policy | None:
    """The policy here. Where one of its devices was lost or closed, it is reopened."""
    policy = _inner.get()
    is_inner = not isinstance(policy, EllipsisType)
    if isinstance(policy, EllipsisType):
        said = _outright[-1:]
        policy = said[0][1] if said else None
    if policy is not None and any(one.lost for one in policy.candidates):
        devices = [device_of(one.info.label) if one.lost else one for one in policy.candidates]
        again: Policy = Fastest.between(devices) if len(devices) > 1 else _Forced(devices[0])
        if is_inner:
            _inner.replace(again)
        else:
            with _lock:
                _outright[:] = [(by, again if one is policy else one) for by, one in _outright]
        return again
    return policy


class placement(Block["Policy | EllipsisType | None"]):
    """Say where operations run: from the call on, or in a block, after which the policy is the one before.

    Operands that lie elsewhere are carried over, each once as long as it does not change. A result stays where it was
    computed. The backward pass of an operation runs where it ran itself; the gradient of a leaf goes to the leaf. Views
    (`reshape`, slices) and `embedding` stay with what they look at. What makes tensors is not moved, nor is a
    `custom_op`. A policy continues with a device that was lost or closed once it is reopened.

    What the limits of a device do not allow runs on the other one, with a warning at the first time; under "gpu" and
    "cpu" its result is carried back.

    A block holds in its own thread or asyncio task alone. A call outside of all blocks holds in all threads, those that
    run already and those that start later, wherever they are in no block of their own; one in a block, to its end.

    A compiled step runs on one device as a whole, unless `compile` was given one: the parameters, optimizers and
    buffers that it uses move there, without gradients. With "auto" its first calls are run on each device in turn and
    timed, and the rest on the faster. A step that shares parameters with one that was placed before goes with it; one
    with `recover=True`, or with gradients that are still to be added to, stays where it is.

    Outside of compiled steps "auto" places each operation where it is the faster, with transfers counted in. What comes
    again, from one wait for a result to the next, is then run in turn on each device as a whole and with its operations
    placed one by one, timed, and from then on run the way that was the fastest. Since devices round differently, a run
    with "auto" is not repeatable bit for bit.

    Moving waits for values, so a browser must be able to wait. In a browser without NumPy there is no device `cpu`:
    "auto" is then the one device.

    Args:
        policy: "gpu" and "cpu" for that device; "minimize_transfers" for the one that has most bytes of the operands;
            "auto" for the faster one, by what was measured on this machine, with transfers counted in; None for no
            policy, where operands on two devices are an error. The first use of "auto" measures both devices, for about
            two seconds, and keeps the figures in the user's cache folder.
        gpu: which GPU is meant, as `optirs_web.device` takes it; by default the first in hardware, or the first at all.

    Raises:
        ValueError: the policy is none of these.
        DeviceNotAvailableError: there is no such device.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((2, 2), device="cpu")
        >>> with ow.placement("cpu"):
        ...     (x @ x).device.name
        'cpu'
    """

    def __init__(self, policy: PolicyName | None = "auto", *, gpu: str | Device | None = None) -> None:
        made = _made(policy, gpu)
        super().__init__(_inner, made)
        self._replaced = _inner.get()
        self._is_outright = True
        if not isinstance(self._replaced, EllipsisType):
            _inner.replace(made)
            return
        with _lock:
            settled = [number for number, (by, _) in enumerate(_outright) if by() is None]
            del _outright[: max(settled, default=0)]  # what is below can come to hold no more
            _outright.append((ref(self), made))

    def _take_back(self) -> None:
        """It is a block, and says nothing outside of it."""
        if self._is_outright:
            self._is_outright = False
            if not isinstance(self._replaced, EllipsisType):
                _inner.replace(self._replaced)
            with _lock:
                _outright[:] = [(by, one) for by, one in _outright if by() is not self]

    def __enter__(self) -> Self:
        self._take_back()
        super().__enter__()
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called inside such a block."""
        self._take_back()
        return Block(self._mode, self._value)(function)


def _made(name: str | None, gpu: str | Device | None) -> Policy | None:
    if name is None:
        return None
    if name not in get_args(PolicyName):
        raise ValueError(f"a placement must be one of {', '.join(get_args(PolicyName))}, or None, not {name!r}")
    ops.place = _place
    Compiled.place = _place_step
    if name == "minimize_transfers":
        return _FewestBytes()
    if name == "auto":
        both = _all_devices(gpu)
        return Fastest.between(both) if len(both) > 1 else _Forced(both[0])
    return _Forced(device_of("cpu") if name == "cpu" else _gpu(gpu))


def _all_devices(gpu: str | Device | None) -> list[Device]:
    """The processor and the GPU, or the one that there is."""
    found, reasons = [], []
    for find in (partial(device_of, "cpu"), partial(_gpu, gpu)):
        try:
            found.append(find())
        except DeviceNotAvailableError as error:
            reasons.append(str(error))
    if not found or (gpu is not None and len(found) == len(reasons) == 1 and found[0].name == "cpu"):
        raise DeviceNotAvailableError("; ".join(reasons))
    return found


def _gpu(asked: str | Device | None) -> Device:
    if asked is not None:
        return device_of(asked)
    default = device_of(None)
    if default.name != "cpu":
        return default
    infos: list[AdapterInfo] = [one for one in adapters() if one.available]
    if not infos:
        raise DeviceNotAvailableError("there is no GPU here, in hardware or software; optirs_web.devices() says why")
    return device_of(min(infos, key=lambda one: (one.software, one.reason != "")).label)


def _place(operation: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    policy = current()
    if policy is None:
        return operation(*arguments, **options)
    tensors = tensors_in(arguments, options)
    if not tensors:
        return operation(*arguments, **options)
    with Block(_inner, None):  # what an operation is made of stays together
        call = Call(operation, arguments, options, tensors)
        target = _target(policy, call)
        try:
            result = _run_on(target, call)
        except (DeviceLimitError, OutOfDeviceMemoryError) as error:
            result = _run_elsewhere(policy, call, target or tensors[0].device, error)
        policy.ran(result)
        return result


def _run_on(target: Device | None, call: Call) -> Any:
    if target is not None and any(one.device is not target for one in call.tensors):
        call = call.with_tensors(partial(_moved, target))
    return call.run()


def _run_elsewhere(policy: Policy, call: Call, device: Device, error: Exception) -> Any:
    """Run on another device what this one cannot run, with the result where the policy has it, or raise the error."""
    other = None
    if Device.recorder() is None and is_of_a_limit(error, device):
        other = _other(device)
    if other is None:
        raise error
    policy.cannot_run(call, device)
    result = _run_on(other, call)
    warn_once(call.operation.__name__, [one.shape for one in call.tensors], error, device, other)
    if tuple(policy.candidates) == (device,):
        result = with_tensors(result, lambda one: moved(one, device) if holds(device, one) else one)
    return result


def _other(device: Device) -> Device | None:
    return other_device(device, partial(_gpu, None), partial(device_of, "cpu"))


def _moved(target: Device, x: Tensor) -> Tensor:
    return moved(x, target)


def _target(policy: Policy, call: Call) -> Device | None:
    """Where to run it; None for where it cannot be run otherwise."""
    recorder = Device.recorder()
    is_view = call.operation.__name__ in _STAYS
    if recorder is None and not is_view and not walks_back():
        return policy.device_for(call)
    policy.stays()
    if recorder is not None:  # a step runs where its parameters lie, which `steps` finds out; constants come along
        return (
            None if any(one._tracked is not None and one.device is not recorder for one in call.tensors) else recorder
        )
    if is_view:
        return call.tensors[0].device
    return _FewestBytes().device_for(call)  # what ran forward on one device goes back there


def _place_step(step: Compiled, prepared: list[Any]) -> Device | None:
    policy = current()
    return None if policy is None else place_step(step, prepared, policy.candidates, _other)

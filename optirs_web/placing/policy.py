"""`placement`: the policies, and how an operation is run under one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, Literal, Protocol, Self, get_args
from weakref import ref

from ..autograd import walks_back
from ..compiled import Compiled
from ..errors import DeviceLimitError, DeviceNotAvailableError, OutOfDeviceMemoryError
from ..ops import calls
from ..runtime.backend import AdapterInfo
from ..runtime.device import Device
from ..runtime.locks import ForkSafeLock
from ..runtime.modes import Block, Mode
from ..runtime.registry import adapters, device as device_of
from ..tensors import Tensor
from .choice import THRESHOLD, Call, Fastest, Prediction
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
        """The devices that a step may be timed on; one if it is to run there; none if it stays where it is."""

    def reopened(self, devices: Sequence[Device]) -> Policy:
        """Return the policy with these devices in place of the candidates, of which one was lost."""

    def device_for(self, call: Call) -> Device:
        """Return the device that an operation runs on."""

    def prediction(self, call: Call) -> Prediction:
        """Return the device that an operation would run on, with the times that say so."""

    def cannot_run(self, call: Call, device: Device) -> None:
        """Note that the limits of this device do not allow the operation: it runs elsewhere."""


class _Forced:
    """Everything on one device."""

    def __init__(self, device: Device) -> None:
        self.candidates = (device,)

    def reopened(self, devices: Sequence[Device]) -> _Forced:
        return _Forced(devices[0])

    def device_for(self, call: Call) -> Device:
        return self.candidates[0]

    def prediction(self, call: Call) -> Prediction:
        return Prediction(self.candidates[0], {}, {})

    def cannot_run(self, call: Call, device: Device) -> None:
        pass


class _FewestBytes:
    """Each operation where most bytes of its operands are."""

    candidates: Sequence[Device] = ()

    def reopened(self, devices: Sequence[Device]) -> _FewestBytes:
        return self

    def device_for(self, call: Call) -> Device:
        devices = dict.fromkeys(tensor.device for tensor in call.tensors)
        if len(devices) == 1:
            return call.tensors[0].device
        return max(devices, key=lambda device: sum(one.size for one in call.tensors if is_at(one, device)))

    def prediction(self, call: Call) -> Prediction:
        return Prediction(self.device_for(call), {}, {})

    def cannot_run(self, call: Call, device: Device) -> None:
        pass


_inner: Mode[Policy | EllipsisType | None] = Mode("placement", ...)
"""Policy of the innermost block of this thread or task; `...` outside of all."""

_outright: list[tuple[ref[placement], Policy | None]] = []
"""Policies set outside of blocks, for all threads, and by whom: one that is still held may become a block yet."""

_lock = ForkSafeLock()
"""Held while that changes."""

_asks: Mode[bool] = Mode("placement.would_run", False)
"""Operations are to tell where they would run, and not to run."""


def current() -> Policy | None:
    """The policy here. Where one of its devices was lost or closed, it is reopened."""
    policy = _inner.get()
    is_inner = not isinstance(policy, EllipsisType)
    if isinstance(policy, EllipsisType):
        said = _outright[-1:]
        policy = said[0][1] if said else None
    if policy is not None and any(one.lost for one in policy.candidates):
        devices = [device_of(one.info.label) if one.lost else one for one in policy.candidates]
        again = policy.reopened(devices)
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

    Outside of compiled steps "auto" compares times that are predicted for each operation by itself, from its sizes and
    from what was measured on the machine for work of its kind, with transfers counted in: the operation leaves the
    device where its operands are stored if the other one is predicted to be faster by `threshold`. Nothing is timed
    while a program runs; `would_run` tells the times. Since devices round differently, a run with "auto" is not
    repeatable bit for bit where operands are on several devices, or steps are compiled.

    Moving waits for values, so a browser must be able to wait. In a browser without NumPy there is no device `cpu`:
    "auto" is then the one device.

    Args:
        policy: "gpu" and "cpu" for that device; "minimize_transfers" for the one that has most bytes of the operands;
            "auto" for the faster one, by what was measured on this machine, with transfers counted in; None for no
            policy, where operands on two devices are an error. The first use of "auto" measures both devices, for about
            two seconds, and keeps the figures in the user's cache folder.
        gpu: which GPU is meant, as `optirs_web.device` takes it; by default the first in hardware, or the first at all.
        threshold: for "auto", how many times faster the other device has to be before operands are carried there: 1
            or more. Infinite, an operation stays where all of its operands are.

    Raises:
        ValueError: the policy is none of these, or the threshold is less than 1.
        DeviceNotAvailableError: there is no such device.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((2, 2), device="cpu")
        >>> with ow.placement("cpu"):
        ...     (x @ x).device.name
        'cpu'
    """

    def __init__(
        self,
        policy: PolicyName | None = "auto",
        *,
        gpu: str | Device | None = None,
        threshold: float = THRESHOLD,
    ) -> None:
        made = _made(policy, gpu, threshold)
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

    @staticmethod
    def would_run(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Prediction:
        """Return the device that an operation would run on under the policy here, and under "auto" the predicted times.

        Nothing is run, and nothing is carried.

        Args:
            operation: one of `optirs_web.ops`, a method of a tensor, or a function whose first operation is meant.
            arguments: its positional arguments, tensors among them.
            options: the others.

        Raises:
            ValueError: no operation over tensors was called.

        Example:
            >>> import optirs_web as ow
            >>> x = ow.ones((2, 2), device="cpu")
            >>> with ow.placement("cpu"):
            ...     ow.placement.would_run(ow.ops.matmul, x, x).device.name
            'cpu'
        """
        calls.place = _place
        with Block(_asks, True):
            try:
                operation(*arguments, **options)
            except _AnswerError as answer:
                return answer.prediction
        name = getattr(operation, "__name__", type(operation).__name__)
        raise ValueError(f"{name} called no operation over tensors, so there is nothing to place")


class _AnswerError(Exception):
    """Leaves an operation that is not to be run, with where it would be."""

    def __init__(self, prediction: Prediction) -> None:
        super().__init__("an operation was asked about")
        self.prediction = prediction


def _made(name: str | None, gpu: str | Device | None, threshold: float) -> Policy | None:
    if not threshold >= 1:
        raise ValueError(f"the threshold of a placement must be 1 or more, not {threshold!r}")
    if name is None:
        return None
    if name not in get_args(PolicyName):
        raise ValueError(f"a placement must be one of {', '.join(get_args(PolicyName))}, or None, not {name!r}")
    calls.place = _place
    Compiled.place = _place_step
    if name == "minimize_transfers":
        return _FewestBytes()
    if name == "auto":
        devices = _all_devices(gpu)
        return Fastest(devices[0], devices[1], threshold) if len(devices) > 1 else _Forced(devices[0])
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
    if policy is None and not _asks.get():
        return operation(*arguments, **options)
    tensors = tensors_in(arguments, options)
    if not tensors:
        return operation(*arguments, **options)
    call = Call(operation, arguments, options, tensors)
    if _asks.get():
        raise _AnswerError(_predicted(policy or _FewestBytes(), call))
    assert policy is not None
    with Block(_inner, None):  # what an operation is made of stays together
        target = _target(policy, call)
        try:
            return _run_on(target, call)
        except (DeviceLimitError, OutOfDeviceMemoryError) as error:
            return _run_elsewhere(policy, call, target or tensors[0].device, error)


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
    bound, device = _bound_to(call)
    return device if bound else policy.device_for(call)


def _bound_to(call: Call) -> tuple[bool, Device | None]:
    """Return whether the policy has no say, and where the operation runs then; None for where it was called."""
    recorder = Device.recorder()
    if recorder is not None:  # a step runs where its parameters are, which `steps` finds out; constants come along
        is_elsewhere = any(one._tracked is not None and one.device is not recorder for one in call.tensors)
        return True, None if is_elsewhere else recorder
    if call.operation.__name__ in _STAYS:
        return True, call.tensors[0].device
    if walks_back():
        return True, _FewestBytes().device_for(call)  # what ran forward on one device goes back there
    return False, None


def _predicted(policy: Policy, call: Call) -> Prediction:
    is_bound, device = _bound_to(call)
    if is_bound:
        return Prediction(device or call.tensors[0].device, {}, {})
    with Block(_inner, None):
        return policy.prediction(call)


def _place_step(step: Compiled, prepared: list[Any]) -> Device | None:
    policy = current()
    return None if policy is None else place_step(step, prepared, policy.candidates, _other)

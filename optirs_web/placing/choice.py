"""Which device an operation is run on for speed: the time that it takes there, and that of carrying operands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import local
from time import perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..autograd import grad_enabled, no_grad
from ..errors import DeviceLimitError, OutOfDeviceMemoryError
from ..ops.creation import full
from ..ops.random_state import drawn_again
from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.launches import Recorded
from ..tensors import Tensor, empty
from . import cache
from .copies import is_at, with_tensors
from .rates import Rates, Transfers, at, measure, measure_transfers, seconds_for, timed
from .stretches import Stretches

__all__ = ["Call", "Fastest"]

_NEAR = 8.0
"""Predictions are not trusted where one device is ahead by less than this: there the operation is measured."""

_DOUBT = 2.0
"""A transfer counts as so much more than it was measured to take: work that goes to and fro waits each time."""

_AT_MOST = 0.5
"""Seconds for one such measurement."""

_MEASURING = 10.0
"""Seconds that a process spends on such measurements at most."""


@dataclass(slots=True)
class Call:
    """An operation that is to be run, with the tensors among its arguments."""

    operation: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    tensors: list[Tensor]
    _key: tuple[Any, ...] = ()

    def key(self) -> tuple[Any, ...]:
        """What its time depends on: shapes, types, and arguments that are neither tensors nor floats."""
        self._key = self._key or self._made_key()
        return self._key

    def _made_key(self) -> tuple[Any, ...]:
        parts: list[Any] = [self.operation]
        for one in self.arguments:  # a microsecond counts here
            parts.append(one.shape if type(one) is Tensor and one.dtype is FLOAT32 else _key(one))
        for name, one in self.options.items():
            parts += name, _key(one)
        return tuple(parts)

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Call:
        """The same with other tensors."""
        arguments = tuple(with_tensors(one, change) for one in self.arguments)
        options = {name: with_tensors(one, change) for name, one in self.options.items()}
        return Call(self.operation, arguments, options, [])

    def run(self) -> Any:
        """Run it where its operands lie."""
        return self.operation(*self.arguments, **self.options)


def _key(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.shape if argument.dtype is FLOAT32 else (argument.dtype.name, argument.shape)
    if argument is None or isinstance(argument, (int, str)):
        return argument
    if isinstance(argument, (list, tuple)):
        return len(argument), *map(_key, argument[:8])
    return type(argument).__name__


class _Enough(Exception):
    """Ends a recording that nobody replays."""


def launches_of(call: Call) -> Sequence[Recorded]:
    """What an operation would launch, told by recording it over tensors without memory; nothing where it fails."""
    device = call.tensors[0].device
    launches: list[Recorded] = []
    with suppress(Exception), no_grad(), device.record(fuses=False) as program:  # what is wrong is said when it is run
        call.with_tensors(lambda one: empty(one.shape, one.dtype, device)).run()
        launches = program.as_recorded
        raise _Enough
    return launches


class _Trail(NamedTuple):
    """Where values come from.

    Attributes:
        key: of the operation at which they came to a device that is not the faster one for it.
        gain: seconds that all operations since would have saved on the GPU; negative where it is slower.
        owed: seconds that were lost by not carrying them over so far.
    """

    key: Any
    gain: float
    owed: float


class Fastest(local):
    """Compares the processor and a GPU. What it has learned each thread has for itself.

    An operation runs where it takes less time, with the transfers that this needs. What an operation saves may be less
    than a transfer costs when that of a hundred is more; so what was lost by staying is added up along the values
    that an operation reads and makes, and counts against staying at the next one. And where that has been seen
    before, what it came to is known at the first operation.

    That is for what comes first. What comes again, from one wait to the next, is run as a whole the way that was the
    fastest when it was tried.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.candidates = tuple(devices)
        self._cpu, self._gpu = devices
        self._known: dict[Any, tuple[float, float]] = {}
        self._only: dict[Any, Device] = {}  # where alone an operation can run
        self._trails: WeakKeyDictionary[Buffer, _Trail] = WeakKeyDictionary()
        self._seen: dict[Any, float] = {}  # by the key of a trail, what its gain came to
        self._last: _Trail | None = None
        self._follows = False  # there are trails
        self._spent = 0.0
        self._stretches = Stretches(devices, _NEAR)
        for one in devices:
            one.on_wait = self._waited

    @classmethod
    def between(cls, devices: Sequence[Device]) -> Fastest:
        """The one for these two, with what it has learned in earlier blocks."""
        earlier: Fastest | None = vars(devices[1]).get("_fastest")
        if earlier is None or earlier.candidates != tuple(devices):
            earlier = vars(devices[1])["_fastest"] = cls(devices)
        return earlier

    def _waited(self) -> None:
        self._stretches.waited()  # those of the thread that waited

    # Figures.

    @cached_property
    def _identity(self) -> str:
        return cache.identity([one.info for one in self.candidates])

    @cached_property
    def _figures(self) -> cache.Figures:
        found = cache.load(self._identity)
        if found is not None:
            return found
        cpu, gpu = measure(self.candidates)
        transfers = measure_transfers(self._gpu)
        figures = {
            **{
                f"{where}.{kind}": curve
                for where, one in (("cpu", cpu), ("gpu", gpu))
                for kind, curve in one._asdict().items()
            },
            **transfers._asdict(),
            "operations": {},
        }
        cache.store(self._identity, figures)
        return figures

    def _rates(self, where: str) -> Rates:
        return Rates(*(self._figures[f"{where}.{kind}"] for kind in Rates._fields))

    @cached_property
    def _transfers(self) -> Transfers:
        return Transfers(*(self._figures[way] for way in Transfers._fields))

    def _learn(self, key: Any, call: Call) -> tuple[float, float]:
        """Seconds on the processor and on the GPU."""
        launches = launches_of(call)
        predicted = tuple(seconds_for(launches, self._rates(where)) for where in ("cpu", "gpu"))
        less, more = sorted(predicted)
        seconds = predicted[0], predicted[1]
        if launches and more < _NEAR * less and self._spent < _MEASURING:
            with suppress(DeviceLimitError, OutOfDeviceMemoryError):  # one of them cannot run it, as will be seen
                seconds = self._measured(key, call)
        self._known[key] = seconds
        return seconds

    def _measured(self, key: Any, call: Call) -> tuple[float, float]:
        operation, *rest = key
        name = f"{operation.__module__}.{operation.__name__}{tuple(rest)}"
        operations = self._figures["operations"]
        if name not in operations:
            started = perf_counter()
            with no_grad(), drawn_again(self._gpu, 0):
                operations[name] = timed([(one, _over_ones(call, one)) for one in self.candidates], _AT_MOST)
            self._spent += perf_counter() - started
            cache.store(self._identity, self._figures)
        cpu, gpu = operations[name]
        return cpu, gpu

    # Decisions.

    def device_for(self, call: Call) -> Device:
        """Where the operation runs."""
        self._last = None
        way = self._stretches.way_for(call)
        if way is not None:
            return way
        key = call.key()
        only = self._only.get(key)
        if only is not None:
            self._stretches.placed(only, [0.0] * len(self.candidates))
            return only
        seconds = self._known.get(key) or self._learn(key, call)
        device = self._faster_one(key, call, seconds)
        self._stretches.placed(device, seconds)
        return device

    def _faster_one(self, key: Any, call: Call, seconds: tuple[float, float]) -> Device:
        if not self._follows:  # the common case: all lie where the operation is the faster
            faster = self.candidates[seconds[0] > seconds[1]]
            for one in call.tensors:
                if one.walk.view.buffer.device is not faster:
                    break
            else:
                return faster
        return self._compared(key, call.tensors, seconds)

    def cannot_run(self, call: Call, device: Device) -> None:
        """The limits of this device do not allow the operation: from now on the other one runs it."""
        self._only[call.key()] = self._cpu if device is self._gpu else self._gpu

    def stays(self) -> None:
        """An operation comes that is not placed."""
        self._last = None
        self._stretches.stays()

    def ran(self, result: Any) -> None:
        """The operation has run, and gave this."""
        self._stretches.ran()
        if self._last is not None and isinstance(result, Tensor):
            self._trails[result.walk.view.buffer] = self._last

    def _compared(self, key: Any, tensors: Sequence[Tensor], seconds: tuple[float, float]) -> Device:
        carrying = [self._carrying(tensors, one) for one in self.candidates]
        here = min((0, 1), key=lambda number: (carrying[number], seconds[number]))
        has_backward = grad_enabled() and any(one.requires_grad for one in tensors)
        gain = (seconds[0] - seconds[1]) * (3 if has_backward else 1)
        buffers = [one.walk.view.buffer for one in tensors]
        trails = [self._trails[one] for one in buffers if one in self._trails]
        trail = max(trails, key=lambda one: one.owed, default=_Trail(key, 0.0, 0.0))
        lost = -gain if here else gain
        whole = 0.0 if trails else self._seen.get(key, 0.0)
        ahead = max(lost, -whole if here else whole)
        goes = carrying[here] + trail.owed + ahead > carrying[1 - here]
        owed = 0.0 if goes else max(0.0, trail.owed + lost)
        for one in buffers:
            if goes or not owed:
                self._trails.pop(one, None)
            else:
                self._trails[one] = trail._replace(owed=owed)
        if trails or goes or owed:
            self._last = _Trail(trail.key, trail.gain + gain, owed)
            self._seen[trail.key] = self._last.gain
        self._follows = bool(owed or self._last or self._trails)
        return self.candidates[1 - here if goes else here]

    def _carrying(self, tensors: Sequence[Tensor], device: Device) -> float:
        """Seconds to bring the operands there that are not, and gradients back."""
        curve = self._transfers.up if device is self._gpu else self._transfers.down
        return _DOUBT * sum(
            at(curve, one.size * one.dtype.itemsize) * (2 if one.requires_grad and grad_enabled() else 1)
            for one in tensors
            if not is_at(one, device)
        )


def _over_ones(call: Call, device: Device) -> Callable[[], Any]:
    """The operation over ones on a device; over zeros, where these are numbers of rows and the like."""

    def stand_in(one: Tensor) -> Tensor:
        if one.dtype is FLOAT32:
            return full(one.shape, 1.0, device)
        return Tensor(View.whole(device.allocate_zeroed(max(4, 4 * one.size))), one.shape, one.dtype)

    return call.with_tensors(stand_in).run

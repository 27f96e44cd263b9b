"""`tune`: a step is run, and what its kernels do is searched for."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from ..errors import OutOfDeviceMemoryError, UnsupportedError
from ..profiling.units import share_text
from ..runtime import kept
from ..runtime.backend import Backend
from ..runtime.device import Device
from ..runtime.driving import drive, drive_async
from ..runtime.launches import Launch
from ..runtime.program import Program
from ..runtime.registry import device as device_of, device_async, opened
from ..runtime.tuner.candidates import Choice
from ..runtime.tuner.choices import Choices, Work as Key
from ..runtime.tuner.records import Record, figure_of
from ..runtime.tuner.search import SINGLE_SAMPLE, best_of, search
from ..runtime.tuner.switch import requested, set_requested, subject_of
from .report import TuningReport, Work

__all__ = ["tune", "tune_async", "tuning", "tuning_async"]

_IN_BROWSER = sys.platform == "emscripten"
_OFF = "the tuner is switched off (OPTIRS_TUNE=0, or tuning(False)): nothing was searched"
_NOTHING = "no device here runs kernels that can be tuned: on 'cpu' library calls take their place"
_LEAST = 0.02
"""Share of the time of a step from which on a work is searched: the rest gains little, and its search takes as long."""

_SAVED = "chosen by an earlier search; tune(..., again=True) repeats it"


def tune(
    step: Callable[..., Any], *arguments: Any, device: str | Device | None = None, again: bool = False
) -> TuningReport:
    """Search the workgroups and tiles that are fastest for what a step does, and use them from now on.

    Calls the step once, as it is: it trains. Each kernel that it runs over shapes that no search has met is then timed
    with each candidate that the device allows, on memory of the search's own. What was found is used by this process
    at once, by compiled steps too, and kept for others: in a file of the user's cache folder, in a browser in
    IndexedDB. It serves the same device, driver and version of the library. Results do not change, but for sums, which
    are added up in another order.

    No search happens anywhere else. `tuning(False)`, or OPTIRS_TUNE=0, switches it off here too.

    Args:
        step: a function, such as one that `compile` has made.
        arguments: what it is called with.
        device: whose kernels; None for all devices that are open, or the one that `optirs_web.device` gives.
        again: search also what an earlier search has chosen.

    Returns:
        What was timed and chosen; ``print`` shows it.

    Raises:
        UnsupportedError: in a page that cannot wait; await `tune_async` there. Or a step is being recorded.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((64, 64), device="cpu")
        >>> len(ow.tune(lambda: x @ x, device="cpu").works)  # on `cpu` library calls take the kernels' place
        0
    """
    devices = _tunable(_devices(device))
    _check_not_recording()
    for target in devices:
        if not target.can_wait:
            raise UnsupportedError("tune() waits for the device; here use: await optirs_web.tune_async(step, ...)")
        _finished(_attach_async(target))
    with _watched(devices):
        step(*arguments)
    works = [work for target in devices for work in drive(_searches(target, again), partial(_answer, target))]
    return _report(devices, works)


async def tune_async(
    step: Callable[..., Any], *arguments: Any, device: str | Device | None = None, again: bool = False
) -> TuningReport:
    """The awaitable twin of `tune`. What the step returns is awaited if it can be."""
    if device is not None or not opened():
        await device_async(device)
    devices = _tunable(_devices(device))
    _check_not_recording()
    for target in devices:
        await _attach_async(target)
    with _watched(devices):
        result = step(*arguments)
        if inspect.isawaitable(result):
            await result
    works = []
    for target in devices:
        works += await drive_async(_searches(target, again), partial(_answer_async, target))
    return _report(devices, works)


def tuning(enabled: bool = True) -> None:
    """Say whether tuned kernels are used on all devices, open now or later.

    True: the choices of earlier searches, and for shapes that none has met those that came with the library
    for this device, if it is one that was measured. False: neither, and `tune` does not search. As long as a program
    says nothing, OPTIRS_TUNE decides: 1 or 0; and where that is not set, what a search has saved natively is used.
    A page looks into IndexedDB when this, or `tune`, is called, for the devices that are open.

    Raises:
        UnsupportedError: in a page that cannot wait; await `tuning_async` there.

    Example:
        >>> import optirs_web as ow
        >>> ow.tuning(False)
        >>> print(ow.tune(lambda: None, device="cpu").title)
        the tuner is switched off (OPTIRS_TUNE=0, or tuning(False)): nothing was searched
    """
    devices = [target for target in opened() if target.capabilities.max_invocations]
    for target in devices:
        if enabled and not target.can_wait:
            raise UnsupportedError("tuning() waits for the browser; here use: await optirs_web.tuning_async()")
    set_requested(enabled)
    for target in devices:
        _backend(target).tuned = None
        if enabled:
            _finished(_attach_async(target))
        _bind_programs(target)


async def tuning_async(enabled: bool = True) -> None:
    """The awaitable twin of `tuning`."""
    set_requested(enabled)
    for target in opened():
        if target.capabilities.max_invocations:
            _backend(target).tuned = None
            if enabled:
                await _attach_async(target)
            _bind_programs(target)


# Devices.


def _devices(device: str | Device | None) -> list[Device]:
    return ([] if device is not None else opened()) or [device_of(device)]


def _tunable(devices: Sequence[Device]) -> list[Device]:
    return [target for target in devices if target.capabilities.max_invocations and requested() is not False]


def _check_not_recording() -> None:
    if Device.recorder() is not None:
        raise UnsupportedError("a step that is being recorded does not run; tune the compiled step")


def _backend(device: Device) -> Backend:
    """The connector itself, even while a profiler listens."""
    backend: Backend = getattr(device.backend, "backend", device.backend)
    return backend


def _choices(device: Device) -> Choices | None:
    tuned = _backend(device).tuned
    return tuned if isinstance(tuned, Choices) else None


async def _attach_async(device: Device) -> None:
    if _choices(device) is not None:
        return
    Choices(_backend(device)).take(await kept.load_async(subject_of(device.info)))


def _finished(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end. Natively those of this file await nothing."""
    if _IN_BROWSER:
        from pyodide.ffi import run_sync

        run_sync(work)
        return
    with suppress(StopIteration):
        work.send(None)


# What a step does.


@contextmanager
def _watched(devices: Sequence[Device]) -> Iterator[None]:
    """Note one launch of each work that the block enqueues, records or replays."""
    with ExitStack() as stack:
        for target in devices:
            choices = _choices(target)
            assert choices is not None
            choices.seen = {}
            for program in list(target.programs):
                note = _noting(choices, program)
                program.before_replay.append(note)
                stack.callback(program.before_replay.remove, note)
        try:
            yield
        except BaseException:
            for target in devices:
                _take_seen(target)  # nothing is searched, and nothing held
            raise


def _take_seen(device: Device) -> dict[Key, tuple[Launch, int]]:
    """Return the launches noted so far and how often each ran, by tunable and shape class, and stop noting."""
    choices = _choices(device)
    if choices is None:
        return {}
    seen, choices.seen = choices.seen or {}, None
    return seen


def _noting(choices: Choices, program: Program) -> Callable[[], None]:
    def note() -> None:
        for launch in program.launches:
            if isinstance(launch, Launch):
                choices(launch)

    return note


def _bind_programs(device: Device) -> None:
    """Give the compiled steps what is chosen by now."""
    for program in list(device.programs):
        if program.recorded is not None:
            device.bind(program)


# The search.


class _Save(NamedTuple):
    """Asks whoever drives the search to keep what it found."""

    name: str
    figure: dict[str, Any]


_Searches = Generator[Any, Any, list[Work]]
"""Yields tickets of the backend, is sent what they measured, and yields what is to be saved."""


def _searches(device: Device, again: bool) -> _Searches:
    choices = _choices(device)
    assert choices is not None
    seen = _take_seen(device)
    device.flush()
    notes = {key: "" if again or key not in choices.searched else _SAVED for key in seen}
    shares = {}
    for key, (launch, count) in seen.items():
        try:
            default = key[0].default(launch)
            shares[key] = count * (yield from search(device, launch, key[0], [default], SINGLE_SAMPLE))[default].median
        except OutOfDeviceMemoryError as error:
            notes[key] = notes[key] or f"not searched: {error}"
    works = []
    for key, (launch, _) in seen.items():
        seconds: dict[Choice, float] = {}
        share = shares.get(key, 0.0) / (sum(shares.values()) or 1.0)
        note = notes[key] or (f"not searched: {share_text(share)} of the step" if share < _LEAST else "")
        if not note:
            times = yield from search(device, launch, key[0])
            seconds = {choice: own.median for choice, own in times.items()}
            record = Record(*key, best_of(key[0].default(launch), times))
            choices.add(record)
            yield _Save(record.name, figure_of(record, seconds))
        works.append(_work(device, choices, key, launch, seconds, note))
    _bind_programs(device)
    return works


def _work(device: Device, choices: Choices, key: Key, launch: Launch, seconds: dict[Choice, float], note: str) -> Work:
    (tunable, shape_class), default = key, key[0].default(launch)
    chosen = choices.chosen(key, launch)
    return Work(tunable.name, device.name, shape_class, tunable.numbers, default, chosen, seconds, note)


def _answer(device: Device, request: Any) -> Any:
    """Answer a request of a search: save a record, or return the times that a ticket measured."""
    if isinstance(request, _Save):
        return _finished(_save_async(device, request))
    return device.backend.times(request)


async def _answer_async(device: Device, request: Any) -> Any:
    """The awaitable twin of `_answer`."""
    if isinstance(request, _Save):
        return await _save_async(device, request)
    return await device.backend.times_async(request)


async def _save_async(device: Device, choice: _Save) -> None:
    try:
        await kept.store_async(subject_of(device.info), {choice.name: choice.figure})
    except OSError as error:
        others = "pages" if _IN_BROWSER else "processes"
        warnings.warn(f"a tuned choice is used, but cannot be saved for other {others}: {error}", stacklevel=2)


def _report(devices: Sequence[Device], works: list[Work]) -> TuningReport:
    why_not = "" if devices else _OFF if requested() is False else _NOTHING
    return TuningReport(works, why_not)

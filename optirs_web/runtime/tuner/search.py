"""The search: each candidate for a work is timed on memory of the search's own, and the fastest is chosen."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ..backend import BoundBuffer, Command
from ..buffer import Buffer, View
from ..device import Device
from ..kernels import elementwise
from ..launches import Launch
from ..timing import Timed
from .candidates import Choice, Tunable

__all__ = ["WORTH", "Runs", "best_of", "search"]

WORTH = 1.05
"""So many times faster than the default a candidate has to be: times of the same kernel differ by a few percent."""

_ROUND = 5e-3
"""Seconds that a candidate runs in a round, if it takes less."""

_FEWEST_LAUNCHES = 4
_MOST_LAUNCHES = 64
_ROUNDS = 5
_LONG = 5e-2
"""Seconds of a launch from which on two rounds have to do."""
_HOPELESS = 2.0
"""So many times slower than the fastest in the first round, a candidate is not timed again."""

_TICK = 1e-4
"""Clocks in pages move in steps of so many seconds."""

_FILL = elementwise("identity", "identity_f32", ("scalar",), 0)

Runs = Generator[Any, list[Timed], dict[Choice, float]]
"""Yields tickets of the backend, is sent what they measured, and returns the seconds of a launch by choice."""


def search(device: Device, launch: Launch, tunable: Tunable, choices: Sequence[Choice] | None = None) -> Runs:
    """Time the candidates that the device allows for a launch, or these of them.

    Floats are ones; the tables that say where things lie are copies of the launch's. Candidates take turns, and the
    shortest time of each counts, so that what disturbs one round does not decide.

    Raises:
        OutOfDeviceMemoryError: there is no memory for the search beside what the program has.
    """
    capabilities = device.capabilities
    scratch = [device.allocate_zeroed(view.nbytes) for view in launch.views]
    device.backend.submit(_contents(device, launch, scratch))
    bound = [(one.handle, 0, view.nbytes) for one, view in zip(scratch, launch.views, strict=True)]
    commands = {
        choice: _bound(device, tunable.tuned(launch, choice, capabilities), bound)
        for choice in choices or tunable.candidates
        if tunable.allows(launch, choice, capabilities)
    }
    times: dict[Choice, float] = {}
    for choice, command in commands.items():
        yield device.backend.submit_timed([command])  # compiles
        first = _seconds((yield device.backend.submit_timed([command])))
        times[choice] = (
            first
            if first > _LONG
            else min(first, _seconds((yield device.backend.submit_timed([command] * _launches(first)))))
        )
    fastest = min(times.values())
    hopeful = [one for one in commands if times[one] <= fastest * _HOPELESS or one == tunable.default(launch)]
    for _ in range(1 if fastest > _LONG else _ROUNDS if len(commands) > 1 else 0):
        for choice in hopeful:
            ticket = device.backend.submit_timed([commands[choice]] * _launches(times[choice]))
            times[choice] = min(times[choice], _seconds((yield ticket)))
    return times


def _launches(seconds: float) -> int:
    """How many make a round."""
    return max(_FEWEST_LAUNCHES, min(_MOST_LAUNCHES, int(_ROUND / max(seconds, _ROUND / _MOST_LAUNCHES))))


def best_of(default: Choice, seconds: dict[Choice, float]) -> Choice:
    """The fastest, if that is worth it."""
    fastest = min(seconds, key=lambda one: seconds[one])
    return fastest if seconds[default] >= WORTH * seconds[fastest] else default


def _seconds(times: Sequence[Timed]) -> float:
    """Of a launch: the shortest of these, or their mean where the clock is too coarse to tell them apart."""
    each = [one.end - one.start for one in times]
    is_coarse = all(abs(one / _TICK - round(one / _TICK)) < 1e-3 for one in each)
    launches = sum(len(one.works) for one in times)
    return sum(each) / launches if is_coarse or launches > len(each) else min(each)


def _bound(device: Device, launch: Launch, buffers: Sequence[BoundBuffer]) -> Command:
    return device.backend.bind(launch.kernel, buffers, launch.kernel.pack(launch.parameters), launch.grid)


def _contents(device: Device, launch: Launch, scratch: Sequence[Buffer]) -> list[Command]:
    """What fills the memory of a search."""
    commands = []
    for binding, view, buffer in zip(launch.kernel.bindings, launch.views, scratch, strict=True):
        whole = (buffer.handle, 0, view.nbytes)
        if "f32" in binding.type:
            count = view.nbytes // 4
            grid = device.capabilities.grid(-(-count // _FILL.elements_per_workgroup))
            fill = Launch(_FILL, (View.whole(buffer),), grid, (count, 1.0))
            commands.append(_bound(device, fill, [whole]))
        else:
            commands.append(device.backend.copy((view.buffer.handle, view.offset, view.nbytes), whole))
    return commands

"""The search: each candidate for a work is timed on memory of the search's own, and the fastest is chosen."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ..backend import BoundBuffer, Command
from ..buffer import Buffer, View
from ..device import Device
from ..launches import Launch
from ..map_kernels import elementwise
from ..measure import Plan, Times, fastest, rounds
from ..timing import Timed
from .candidates import Choice, Tunable

__all__ = ["SINGLE_SAMPLE", "WORTH", "Runs", "best_of", "search"]

WORTH = 1.05
"""So many times faster than the default a candidate has to be: times of the same kernel differ by a few percent."""

SEARCH = Plan(at_most=0.03, hopeless=2.0)
SINGLE_SAMPLE = Plan(fewest=1, most=1)

_FILL = elementwise("identity", "identity_f32", ("scalar",), 0)

Runs = Generator[Any, list[Timed], dict[Choice, Times]]
"""Yields tickets of the backend, is sent what they measured, and returns the times of a launch by choice."""


def search(
    device: Device,
    launch: Launch,
    tunable: Tunable,
    choices: Sequence[Choice] | None = None,
    plan: Plan = SEARCH,
) -> Runs:
    """Time the candidates that the device allows for a launch, or these of them.

    Floats are ones; tables of offsets are copies of the launch's.

    Raises:
        OutOfDeviceMemoryError: there is no memory for the search beside what the program has.
    """
    capabilities = device.capabilities
    scratch = [device.allocate_zeroed(view.nbytes) for view in launch.views]
    device.backend.submit(_contents(device, launch, scratch))
    bound = [(buffer.handle, 0, view.nbytes) for buffer, view in zip(scratch, launch.views, strict=True)]
    commands = {
        choice: _bound(device, tunable.tuned(launch, choice, capabilities), bound)
        for choice in choices or tunable.candidates
        if tunable.allows(launch, choice, capabilities)
    }
    measuring = rounds(list(commands), plan)
    choice, repeats = next(measuring)
    while True:
        measured = yield device.backend.submit_timed([commands[choice]] * repeats)
        try:
            choice, repeats = measuring.send(_mean(measured))
        except StopIteration as end:
            times: dict[Choice, Times] = end.value
            return times


def best_of(default: Choice, times: Mapping[Choice, Times]) -> Choice:
    """Return the fastest, if that is worth it and the times of both spread by less than what it gains."""
    best = fastest(times)
    least_gain = max(WORTH, 1 + times[default].spread, 1 + times[best].spread)
    return best if times[default].median >= least_gain * times[best].median else default


def _mean(measured: Sequence[Timed]) -> float:
    """Return the mean seconds of a launch: clocks in pages move in steps that are longer than many launches."""
    return sum(timing.end - timing.start for timing in measured) / sum(len(timing.works) for timing in measured)


def _bound(device: Device, launch: Launch, buffers: Sequence[BoundBuffer]) -> Command:
    return device.backend.bind(launch.kernel, buffers, launch.kernel.pack(launch.parameters), launch.grid)


def _contents(device: Device, launch: Launch, scratch: Sequence[Buffer]) -> list[Command]:
    """Return commands that fill the scratch buffers: float32 with 1, others with copies of the launch's own memory."""
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

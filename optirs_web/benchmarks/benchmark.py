"""`Benchmark`: times one case on a device, alternating with other libraries that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..errors import OutOfDeviceMemoryError
from ..runtime.device import Device
from ..runtime.registry import device as device_of
from .cases import CASES, Case
from .counting import counts_of, peak_of
from .denominators import COPY, PRODUCT, Denominator, denominators_of
from .libraries import RIVALS, NotOffered, rival
from .libraries.library import Library
from .libraries.ours import Ours
from .results import OURS, Result
from .timing import Side, race

__all__ = ["ROUNDS", "Benchmark"]

ROUNDS = 7
"""Rounds of a benchmark that names none."""

T = TypeVar("T")


class Benchmark:
    """A case to time on a device, alternating with other libraries that compute the same.

    A time is the mean of as many calls as take 40 ms, with one wait at the end. Each round times every side once, and
    ratios are taken within a round. Calls that compile are not timed. Rounds are added, up to three times as many,
    while a ratio spreads by more than 10%.

    Args:
        case: a name of `cases()`, or a function without arguments that enqueues work on the device.
        device: where our side runs; None for what `optirs_web.device` returns.
        against: names of rivals ("torch", "jax", "numpy", "tinygrad") for a case of the suite; or functions by name,
            which return when they have computed.
        rounds: how often each side is timed, at least; from 15 seconds on, three rounds are enough.

    Raises:
        ValueError: no case or no rival has that name, rivals are named for a function, or rounds is less than 1.
        DeviceNotAvailableError: there is no such device.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.ones((32, 32), device="cpu")
        >>> result = ow.benchmarks.Benchmark(lambda: x @ x, "cpu", rounds=3).run()
        >>> result.counts["dispatches"], result.figure.median > 0
        (1, True)
        >>> result = ow.benchmarks.Benchmark("products/128", "cpu", against=["numpy"], rounds=3).run()
        >>> result.rivals, result.ratio("numpy").median > 0
        (['numpy'], True)
    """

    def __init__(
        self,
        case: str | Callable[[], object],
        device: str | Device | None = None,
        against: Sequence[str] | Mapping[str, Callable[[], object]] = (),
        rounds: int = ROUNDS,
    ) -> None:
        if callable(case):
            if not isinstance(against, Mapping) and against:
                raise ValueError("a function is compared with functions: pass against={'torch': function}")
            self.case = Case(getattr(case, "__name__", "function"), lambda _: case)
        elif case not in CASES:
            raise ValueError(f"there is no case '{case}'; optirs_web.benchmarks.cases() lists them")
        else:
            self.case = CASES[case]
        unknown = [] if isinstance(against, Mapping) else [name for name in against if name not in RIVALS]
        if unknown:
            raise ValueError(f"there is no library {', '.join(unknown)}; there are {', '.join(RIVALS)}")
        if rounds < 1:
            raise ValueError(f"rounds must be at least 1, not {rounds}")
        self.device = device if isinstance(device, Device) else device_of(device)
        self.against = against
        self.rounds = rounds

    def run(self, denominators: Mapping[str, Denominator] | None = None) -> Result:
        """Time the case.

        Args:
            denominators: those of the device, which several cases may share; None makes new ones.

        Returns:
            The times, counts and notes. A rival that is not installed, does not offer the case or fails has a note
            instead of times.
        """
        ours = Ours(self.device)
        case, sides, libraries = self.case, {OURS: self._side(ours)}, dict[str, Library]()
        result = Result(case.name, self.device.name, {}, {}, case.operations, case.nbytes, case.touched)
        for name in self.against:
            try:
                if isinstance(self.against, Mapping):
                    sides[name] = Side(self.against[name])
                else:
                    library = _offered(partial(rival, name, self.device))
                    sides[name] = self._tried(library)
                    libraries[name] = library
            except NotOffered as reason:
                result.notes[name] = str(reason)
        if case.kind == "memory":
            for name, side in sides.items():
                try:
                    result.times[name] = [_offered(side.call) if name in libraries else side.call()]
                except NotOffered as reason:
                    result.notes[name] = str(reason)
            return result
        if case.compares:
            result.differences = _differences(ours, libraries, sides)
        if case.kind == "call":
            sides[OURS].seconds(2)  # records and compiles
            result.counts = self._counts(sides[OURS].call)
            for name, denominator in self._denominators(denominators).items():
                sides[name], result.amounts[name] = denominator.side, denominator.amount
        result.times = race(sides, self.rounds)
        return result

    def _side(self, library: Library) -> Side:
        is_process = self.case.kind == "process"
        return Side(self.case.make(library), None if is_process else library.wait, is_process)

    def _tried(self, library: Library) -> Side:
        """Return a rival's side, called once but for cases of memory.

        Raises:
            NotOffered: the rival does not offer the case, or fails.
        """
        side = _offered(lambda: self._side(library))
        if self.case.kind != "memory":
            _offered(lambda: side.seconds(1))
        return side

    def _denominators(self, shared: Mapping[str, Denominator] | None) -> dict[str, Denominator]:
        """Return the denominators that measure this case, by name."""
        names = [COPY] if self.case.nbytes else [PRODUCT] if self.case.operations else []
        available = (denominators_of(self.device) if shared is None else shared) if names else {}
        return {name: available[name] for name in names}

    def _counts(self, call: Callable[[], object]) -> dict[str, int]:
        counts = counts_of(self.device, call)
        try:
            return {**counts, "peak_memory": peak_of(self.device, call)}
        except OutOfDeviceMemoryError:
            return counts


def _offered(call: Callable[[], T]) -> T:
    """Return the result of what a rival does, whose failure is no error of the benchmark.

    Raises:
        NotOffered: it failed.
    """
    try:
        return call()
    except NotOffered:
        raise
    except Exception as error:
        raise NotOffered(f"failed with {type(error).__name__}: {error}".splitlines()[0]) from error


def _differences(ours: Library, libraries: Mapping[str, Library], sides: Mapping[str, Side]) -> dict[str, float]:
    """Return the largest difference of each rival's result from ours, as a share of our largest value."""
    expected: Any = ours.values(sides[OURS].call()).astype(np.float64)
    scale = float(np.abs(expected).max()) or 1.0
    return {
        name: float(np.abs(library.values(sides[name].call()) - expected).max()) / scale
        for name, library in libraries.items()
    }

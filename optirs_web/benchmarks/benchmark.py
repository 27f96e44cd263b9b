"""`Benchmark`: one case, timed on a device, alternating with the same in other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import OutOfDeviceMemoryError
from ..runtime.device import Device
from ..runtime.registry import device as device_of
from .cases import CASES, Case
from .counting import counts_of, peak_of
from .denominators import COPY, PRODUCT, Denominator, denominators
from .libraries import NotOffered, rival
from .libraries.library import Library
from .libraries.ours import Ours
from .results import OURS, Result
from .timing import Side, race

__all__ = ["ROUNDS", "Benchmark"]

ROUNDS = 7


class Benchmark:
    """A case that can be timed on a device, alternating with the same in other libraries.

    Times are the mean of as many calls as take 40 ms, with one wait at the end. All sides are timed once in a round;
    ratios are of the same round. Calls that compile come before. Rounds are added, up to three times as many, while a
    ratio spreads by more than 10%.

    Args:
        case: a name of `cases()`, or a function without arguments that enqueues work on the device.
        device: where our side runs; None for what `optirs_web.device` returns.
        against: names of rivals ("torch", "jax", "numpy", "tinygrad") for a case of the suite; or functions by name,
            which return when they have computed.
        rounds: how often each side is timed, at least.

    Raises:
        ValueError: no case has that name, or rivals are named for a function.

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
        self.device = device if isinstance(device, Device) else device_of(device)
        self.rounds = rounds
        if callable(case):
            if not isinstance(against, Mapping) and against:
                raise ValueError("a function is compared with functions: pass against={'torch': function}")
            self.case = Case(getattr(case, "__name__", "function"), lambda _: case)
        elif case not in CASES:
            raise ValueError(f"there is no case '{case}'; optirs_web.benchmarks.cases() lists them")
        else:
            self.case = CASES[case]
        self.against = against

    def run(self, beside: Mapping[str, Denominator] | None = None) -> Result:
        """Time it, and return what was measured.

        Args:
            beside: the denominators of the device, where several cases share them; made anew if left out.
        """
        ours, notes, libraries = Ours(self.device), {}, dict[str, Library]()
        calls: dict[str, Side] = {OURS: self._side(ours)}
        for name in self.against:
            try:
                if isinstance(self.against, Mapping):
                    calls[name] = Side(self.against[name])
                else:
                    library = rival(name, self.device)
                    calls[name] = _working(self._side(library), self.case)
                    libraries[name] = library
            except NotOffered as reason:
                notes[name] = str(reason)
        case = self.case
        result = Result(case.name, self.device.name, {}, {}, case.operations, case.nbytes, case.touched, notes=notes)
        if self.case.kind == "memory":
            for name, side in calls.items():
                try:
                    result.times[name] = [_number(side.call())]
                except NotOffered as reason:
                    notes[name] = str(reason)
            return result
        if self.case.compares:
            result.differences = _differences(ours, libraries, calls)
        if self.case.kind == "call":
            calls[OURS].seconds(2)  # records and compiles
            result.counts = self._counts(calls[OURS].call)
            for name, one in self._beside(beside).items():
                calls[name], result.amounts[name] = one.side, one.amount
        result.times = race(calls, self.rounds)
        return result

    def _side(self, library: Library) -> Side:
        is_process = self.case.kind == "process"
        return Side(self.case.make(library), None if is_process else library.wait, is_process)

    def _beside(self, beside: Mapping[str, Denominator] | None) -> dict[str, Denominator]:
        """The denominators that measure this case."""
        wanted = [COPY] if self.case.nbytes else [PRODUCT] if self.case.operations else []
        there = (denominators(self.device) if beside is None else beside) if wanted else {}
        return {name: there[name] for name in wanted}

    def _counts(self, call: Callable[[], object]) -> dict[str, int]:
        counts = counts_of(self.device, call)
        try:
            return {**counts, "peak_memory": peak_of(self.device, call)}
        except OutOfDeviceMemoryError:
            return counts


def _working(side: Side, case: Case) -> Side:
    """A rival's side, which has been called once.

    Raises:
        NotOffered: that failed. What goes wrong in another library is no error of the benchmark.
    """
    if case.kind == "call":
        try:
            side.seconds(1)
        except Exception as error:
            raise NotOffered(f"failed with {type(error).__name__}: {error}".splitlines()[0]) from error
    return side


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _differences(ours: Library, libraries: Mapping[str, Library], calls: Mapping[str, Side]) -> dict[str, float]:
    expected: Any = ours.values(calls[OURS].call()).astype(np.float64)
    scale = float(np.abs(expected).max()) or 1.0
    return {
        name: float(np.abs(library.values(calls[name].call()) - expected).max()) / scale
        for name, library in libraries.items()
    }

"""Run the suite: cases on devices against rivals. `Report` has the results, and is read from and written to JSON."""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import OptirsError
from ..files import write_whole
from ..runtime.device import Device
from .benchmark import ROUNDS, Benchmark
from .cases import CASES
from .denominators import Denominator, denominators_of
from .libraries import missing
from .machine import description
from .results import Result

__all__ = ["FORMAT", "REPORTS", "Report", "run"]

FORMAT = 1

REPORTS = sorted((Path(__file__).parent / "reports").glob("*.json"))
"""The files of the reports published with this version."""


@dataclass
class Report:
    """The results of a run.

    Attributes:
        date: the UTC day, in ISO 8601.
        command: the command line.
        machine: see `machine.description`.
        devices: by name, "description" and "kind" of the adapter, and its "rates": by denominator the "rate" in bytes
            or operations per second, and "by", what computed it.
        results: one for each case and device.
        notes: by rival, or case and device, why there is no result.
    """

    date: str
    command: str
    machine: dict[str, Any]
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def write(self, path: str | Path) -> None:
        """Write JSON. The file is replaced as a whole: readers see the old content or the new, never a part.

        Raises:
            OSError: it cannot be written.
        """
        facts = {**self.__dict__, "format": FORMAT, "results": [result.to_json() for result in self.results]}
        write_whole(Path(path), [(json.dumps(facts, indent=1) + "\n").encode()])

    @classmethod
    def read(cls, path: str | Path) -> Report:
        """Read a report that `write` wrote.

        Raises:
            ValueError: it is not JSON, or not a report of this version.
            TypeError: a field is missing or unknown.
            KeyError: there are no results.
        """
        facts = json.loads(Path(path).read_text("utf-8"))
        if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is not a report of this version of optirs-web bench")
        results = [Result.from_json(result) for result in facts.pop("results")]
        return cls(**facts, results=results)


def run(
    names: Sequence[str],
    devices: Sequence[Device],
    against: Sequence[str] = (),
    rounds: int = ROUNDS,
    command: str = "",
    finished: Callable[[Report], None] | None = None,
) -> Report:
    """Run cases on devices. A case that a device cannot run is noted and left out.

    Args:
        names: the cases.
        devices: where our side runs, one after the other.
        against: names of rivals; one that is not installed is noted and left out.
        rounds: see `Benchmark`.
        command: the report's command line.
        finished: called with the report so far after each case.
    """
    report = Report(datetime.now(UTC).date().isoformat(), command, description())
    report.notes = {name: reason for name in against if (reason := missing(name))}
    rivals = [name for name in against if name not in report.notes]
    for device in devices:
        denominators = denominators_of(device)
        report.devices[device.name] = {"description": device.info.description, "kind": device.info.kind or "hardware"}
        of_device: list[Result] = []
        for result in _results(names, device, rivals, rounds, denominators, report.notes):
            of_device.append(result)
            report.results.append(result)
            report.devices[device.name]["rates"] = _rates(of_device, denominators)
            if finished:
                finished(report)
    return report


def _results(
    names: Sequence[str], device: Device, rivals: Sequence[str], rounds: int, denominators: dict[str, Denominator],
    notes: dict[str, str],
) -> Iterator[Result]:  # fmt: skip
    for name in names:
        try:
            yield Benchmark(CASES[name].name, device, rivals, rounds).run(denominators)
        except OptirsError as error:  # a device may be too small for a case
            notes[f"{name} on {device.name}"] = str(error).splitlines()[0]
        gc.collect()
        device.trim()


def _rates(results: Sequence[Result], denominators: dict[str, Denominator]) -> dict[str, Any]:
    """Return the median rate of each denominator over all rounds of all cases, and what computes it, by name."""
    rates = {}
    for name, denominator in denominators.items():
        times = [time for result in results for time in result.times.get(name, ())]
        if times:
            rates[name] = {"rate": float(f"{denominator.amount / statistics.median(times):.4g}"), "by": denominator.by}
    return rates

"""The result of a case: times by side, ratios, shares of the device's rates, and counts."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from .denominators import COPY, PRODUCT
from .timing import ratios, spread

__all__ = ["OURS", "Figure", "Result"]

OURS = "ours"


class Figure(NamedTuple):
    """A median, and the interquartile range as a share of it."""

    median: float
    spread: float


def _figure(values: list[float]) -> Figure:
    return Figure(statistics.median(values), spread(values))


@dataclass
class Result:
    """The result of a benchmark.

    Attributes:
        case: its name.
        device: the name of the device.
        times: by side, the seconds of a call in each round; in a case of memory, bytes.
        counts: of one call: dispatches, submits, bytes up and down, allocations, and the most memory in use.
        operations: floating-point operations of a call, or 0.
        nbytes: bytes that a call reads and writes at least, or 0.
        touched: bytes of the inputs and results of a case with operations, for the roofline.
        amounts: by denominator that was timed, the bytes or operations of a call.
        notes: by rival, why it has no times.
        differences: by rival, the largest difference of its result from ours, as a share of the largest value.
    """

    case: str
    device: str
    times: dict[str, list[float]]
    counts: dict[str, int] = field(default_factory=dict)
    operations: float = 0
    nbytes: float = 0
    touched: float = 0
    amounts: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)

    @property
    def figure(self) -> Figure:
        """The seconds of our call; in a case of memory, the bytes."""
        return _figure(self.times[OURS])

    @property
    def rivals(self) -> list[str]:
        """The names of the other libraries that have times."""
        return [name for name in self.times if name not in (OURS, COPY, PRODUCT)]

    def ratio(self, rival: str) -> Figure:
        """Return our time as a share of a rival's, round by round: below 1 ours is faster."""
        return _figure(ratios(self.times[OURS], self.times[rival]))

    def share(self) -> Figure | None:
        """Return our rate as a share of that of the device's copy or peak product; None where neither was timed."""
        name, amount = (COPY, self.nbytes) if self.nbytes else (PRODUCT, self.operations)
        if name not in self.times or not amount:
            return None
        return _figure([amount / self.amounts[name] * ratio for ratio in ratios(self.times[name], self.times[OURS])])

    def rate(self) -> float:
        """Return bytes or operations per second, at the median; 0 where the case has neither."""
        return (self.nbytes or self.operations) / self.figure.median

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are not empty, for JSON; times have six digits."""
        facts = asdict(self)
        facts["times"] = {name: [float(f"{time:.6g}") for time in times] for name, times in self.times.items()}
        return {name: value for name, value in facts.items() if value}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Result:
        """Return the result of which `to_json` returned these facts."""
        return cls(**facts)

    def __str__(self) -> str:
        from .report import text_of

        return text_of(self)

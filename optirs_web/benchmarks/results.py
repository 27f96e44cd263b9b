"""What a case gave: times by side, ratios, shares of the device's rates, and counts; to JSON and back."""

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
    """What a benchmark measured.

    Attributes:
        case: its name.
        device: where it ran.
        times: by side the seconds of a call, one for each round. In cases of memory, bytes.
        counts: of one call: dispatches, submits, bytes up and down, allocations, and the most memory in use.
        operations: floating-point operations of a call, or 0.
        nbytes: bytes that a call has to read and write, or 0.
        touched: bytes of the inputs and results of a case with operations, for the roofline.
        amounts: bytes of a call of the copy, operations of one of the peak product, where they were timed.
        notes: by rival, why it did not take part.
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
        """Seconds of a call of ours; of a case of memory, bytes."""
        return _figure(self.times[OURS])

    @property
    def rivals(self) -> list[str]:
        """The sides that are neither ours nor a denominator."""
        return [name for name in self.times if name not in (OURS, COPY, PRODUCT)]

    def ratio(self, rival: str) -> Figure:
        """Return our time as a share of a rival's, round by round: below 1 ours is faster."""
        return _figure(ratios(self.times[OURS], self.times[rival]))

    def share(self) -> Figure | None:
        """Return the rate reached as a share of the device's, of its copy or of the peak product; None without one."""
        name, amount = (COPY, self.nbytes) if self.nbytes else (PRODUCT, self.operations)
        if name not in self.times or not amount:
            return None
        return _figure([amount / self.amounts[name] * one for one in ratios(self.times[name], self.times[OURS])])

    def rate(self) -> float:
        """Return bytes or operations in a second, at the median; 0 where neither measures the case."""
        return (self.nbytes or self.operations) / self.figure.median

    def to_json(self) -> dict[str, Any]:
        """Return everything as what JSON holds; times have six digits."""
        facts = asdict(self)
        facts["times"] = {name: [float(f"{one:.6g}") for one in times] for name, times in self.times.items()}
        return {name: one for name, one in facts.items() if one}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Result:
        """Return what `to_json` wrote."""
        return cls(**facts)

    def __str__(self) -> str:
        from .report import text_of

        return text_of(self)

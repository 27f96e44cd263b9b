"""The result of a search, as figures and as a table."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..profiling.table import TextTable
from ..profiling.units import seconds_text
from ..runtime.tuner.candidates import TUNABLE

__all__ = ["TuningReport", "Work"]

_COLUMNS = ("kernel", "device", "shape class", "default", "time", "chosen", "time", "gain", "candidates")
_TEXTS = ("kernel", "device", "shape class", "default", "chosen", "candidates")


class Work(NamedTuple):
    """A kernel over shapes of a class, and what was chosen for it.

    Attributes:
        kernel: "matmul" (batched ones and fused ones too), "sum", "map" or "update".
        device: where.
        shape_class: the shapes that the choice serves, rounded up: of a product "64x128x16 nn" for rows, inner and
            columns, n for an operand whose rows lie in order and t for one that is transposed; of a sum the results and
            what each adds up; otherwise the elements.
        numbers: the names of what is chosen.
        default: what runs where nothing is tuned.
        chosen: what runs from now on: the default, if no candidate is 5% faster.
        seconds: of a launch, by candidate; empty if an earlier search has chosen.
        note: why there was no search, if so.
    """

    kernel: str
    device: str
    shape_class: str
    numbers: tuple[str, ...]
    default: tuple[int, ...]
    chosen: tuple[int, ...]
    seconds: dict[tuple[int, ...], float]
    note: str = ""

    @property
    def gain(self) -> float:
        """How many times faster the choice was than the default; 1.0 where nothing was timed."""
        return self.seconds[self.default] / self.seconds[self.chosen] if self.seconds else 1.0


class TuningReport(TextTable):
    """The result of `tune`: ``print(report)`` shows it, with rich where that is installed.

    Attributes:
        works: what the step did, by kernel and shape class.
    """

    columns = _COLUMNS
    texts = _TEXTS

    def __init__(self, works: list[Work], why_not: str = "") -> None:
        """A table of these; or of nothing, for a reason."""
        self.works = works
        searched = [work for work in works if work.seconds]
        tuned = sum(work.chosen != work.default for work in searched)
        title = f"{len(works)} kernels and shapes: {len(searched)} searched, {tuned} tuned"
        numbers = dict.fromkeys(f"{work.kernel}: {' x '.join(work.numbers)}" for work in works)
        super().__init__(why_not or title, [_row(work) for work in works], list(numbers))


def _row(work: Work) -> tuple[str, ...]:
    text = {choice: TUNABLE[work.kernel].text(choice) for choice in (*work.seconds, work.default, work.chosen)}
    times = {choice: seconds_text(value) for choice, value in work.seconds.items()}
    timed: Any = (times.get(work.default, ""), text[work.chosen], times.get(work.chosen, ""))
    gain = f"{work.gain:.2f}" if work.seconds else ""
    others = ", ".join(f"{text[choice]} {time}" for choice, time in times.items()) or work.note
    return work.kernel, work.device, work.shape_class, text[work.default], *timed, gain, others

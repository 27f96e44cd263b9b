"""Tables of text, with rich where it is installed and as plain text everywhere; and the table of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .analysis import Summary
from .units import bytes_text, rate_text, seconds_text, share_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["Table", "TextTable"]

_WIDEST = 10_000  # lines are not to be broken

_COLUMNS = (
    "kernel", "device", "launches", "time", "share", "each", "bytes", "bandwidth", "of peak", "operations",
    "arithmetic", "of peak", "bound by",
)  # fmt: skip
_TEXTS = ("kernel", "device", "bound by")


class TextTable:
    """Rows of text under a title, above notes; only the title where there are no rows. rich prints it as its own table.

    Attributes:
        columns: their names.
        texts: the columns of text, aligned to the left; the others have figures.
        title: in one line.
        rows: the texts of each, in the order of `columns`.
        notes: lines below.
    """

    columns: tuple[str, ...]
    texts: tuple[str, ...]

    def __init__(self, title: str, rows: Sequence[tuple[str, ...]], notes: Sequence[str]) -> None:
        """Take the texts as they are."""
        self.title = title
        self.rows = list(rows)
        self.notes = list(notes)

    def __str__(self) -> str:
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            return self.plain()
        console = Console(width=_WIDEST, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def plain(self) -> str:
        """The table without rich."""
        rows = [self.columns, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        is_text = [column in self.texts for column in self.columns]
        texts = [
            "  ".join(
                cell.ljust(width) if to_left else cell.rjust(width)
                for cell, width, to_left in zip(row, widths, is_text, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, *texts, *self.notes])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        return Group(self._rich_table() if self.rows else Text(self.title), *map(Text, self.notes))

    def _rich_table(self) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in self.columns:
            table.add_column(name, justify="left" if name in self.texts else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table


class Table(TextTable):
    """The table of a profile."""

    columns = _COLUMNS
    texts = _TEXTS

    def __init__(self, title: str, summaries: Sequence[Summary], notes: Sequence[str]) -> None:
        """Format the summaries as rows."""
        super().__init__(title, [_row(summary) for summary in summaries], notes)


def _row(summary: Summary) -> tuple[str, ...]:
    per_launch = summary.seconds / summary.launches
    per_second = 1 / summary.seconds if summary.seconds else 0.0
    operations = ("?", "?", "?")
    if summary.operations is not None and summary.of_arithmetic is not None:
        rate = rate_text(summary.operations * per_second, "op/s")
        operations = (rate_text(summary.operations, "").strip(), rate, share_text(summary.of_arithmetic))
    return (
        summary.name, summary.device, f"{summary.launches:,}", seconds_text(summary.seconds), share_text(summary.share),
        seconds_text(per_launch), bytes_text(summary.nbytes), rate_text(summary.nbytes * per_second, "B/s"),
        share_text(summary.of_bandwidth), *operations, summary.bound,
    )  # fmt: skip

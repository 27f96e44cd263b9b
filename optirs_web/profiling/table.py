"""Tables of text, with rich where it is installed, as plain text everywhere; and that of a profile."""

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
    """Rows of text under a title, above notes; the title alone without rows. `print` shows it; rich as its own table.

    Attributes:
        columns: their names.
        texts: those of the columns that are no figures.
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
        return "\n".join(one.rstrip() for one in capture.get().splitlines())

    def plain(self) -> str:
        """The table without rich."""
        lines = [self.columns, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        is_text = [one in self.texts for one in self.columns]
        texts = [
            "  ".join(
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, is_text, strict=True)
            ).rstrip()
            for line in lines
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
        """Format what was summarized."""
        super().__init__(title, [_row(one) for one in summaries], notes)


def _row(one: Summary) -> tuple[str, ...]:
    each = one.seconds / one.launches
    per_second = 1 / one.seconds if one.seconds else 0.0
    operations = ("?", "?", "?")
    if one.operations is not None and one.of_arithmetic is not None:
        rate = rate_text(one.operations * per_second, "op/s")
        operations = (rate_text(one.operations, "").strip(), rate, share_text(one.of_arithmetic))
    return (
        one.name, one.device, f"{one.launches:,}", seconds_text(one.seconds), share_text(one.share),
        seconds_text(each), bytes_text(one.nbytes), rate_text(one.nbytes * per_second, "B/s"),
        share_text(one.of_bandwidth), *operations, one.bound,
    )  # fmt: skip

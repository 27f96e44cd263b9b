"""Print tables: folded to the width of a terminal, and with unbroken lines in a pipe."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

__all__ = ["print_table", "table_of"]


def table_of(*headings: str) -> Table:
    """Return a table without rows; text that is too long for its column is folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table on standard output."""
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    console = Console(width=10_000)  # a pipe has no width
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        click.echo(line.rstrip())

"""``optirs-web``: its commands in one group, and how errors end."""

from __future__ import annotations

import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import optirs_web as ow

from .demo import demo
from .optimizers import optimizers
from .runs import runs
from .shader import shader
from .train import train

__all__ = ["cli"]


class _Commands(click.Group):
    """Errors that the library raises on purpose end as one line, not as a traceback, with exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ow.errors.OptirsError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands)
@click.version_option(ow.__version__, prog_name="optirs-web")
def cli() -> None:
    """Train models on any GPU, from one set of WGSL kernels."""


cli.add_command(demo)
cli.add_command(optimizers)
cli.add_command(runs)
cli.add_command(shader)
cli.add_command(train)


@cli.command()
def devices() -> None:
    """List the devices, and say which one "auto" takes and why."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe has no width; lines are not to be broken
    table = Table("name", "description", "kind", "available", box=None, pad_edge=False, header_style="bold")
    for one in ow.devices():
        is_available = "yes" if one.available else f"no: {one.reason}"
        table.add_row(one.label, one.description, _kind(one), is_available)
    console.print(table)
    click.echo(f"\n{_automatic()}")


def _kind(adapter: ow.AdapterInfo) -> str:
    if not adapter.available:
        return ""
    return "processor" if adapter.name == "cpu" else "software" if adapter.software else "hardware"


def _automatic() -> str:
    """What "auto" takes; it is opened, since only that shows that it works."""
    try:
        chosen = ow.device("auto")
    except ow.errors.DeviceNotAvailableError as error:
        return f'"auto" takes nothing: {error}'
    text = f'"auto" takes {chosen.name}: {chosen.why}'
    asked = os.environ.get("OPTIRS_DEVICE")
    return f"{text}\nOPTIRS_DEVICE={asked} is taken where no device is named" if asked else text

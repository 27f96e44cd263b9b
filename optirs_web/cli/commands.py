"""``optirs-web``: its commands in one group, and how errors end."""

from __future__ import annotations

from typing import Any

import click

import optirs_web as ow

from .compile import compile_
from .demo import demo
from .devices import devices
from .optimizers import optimizers
from .parity import parity
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


cli.add_command(compile_)
cli.add_command(demo)
cli.add_command(devices)
cli.add_command(optimizers)
cli.add_command(parity)
cli.add_command(runs)
cli.add_command(shader)
cli.add_command(train)

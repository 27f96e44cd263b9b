"""``optirs-web``: the group of its commands, which turns expected errors into messages of one line."""

from __future__ import annotations

import errno
from typing import Any

import click

import optirs_web as ow

from .bench import bench
from .check import check
from .compile import compile_
from .demo import demo
from .devices import devices
from .hardware import hardware
from .optimizers import optimizers
from .parity import parity
from .runs import runs
from .shader import shader
from .train import train

__all__ = ["cli"]


class _Commands(click.Group):
    """A group that prints errors that users can act on as one line without a traceback, and exits with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            raise click.ClickException(message) from error


def _message(error: Exception) -> str | None:
    """Return the message to print for an error; None for one that is not expected, or that click handles."""
    if isinstance(error, ow.errors.OptirsError):
        return str(error)
    if isinstance(error, OSError) and error.errno != errno.EPIPE:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    if isinstance(error, MemoryError):
        return str(error) or "this machine is out of memory"
    is_ours = isinstance(error, ModuleNotFoundError) and error.__cause__ is not None  # it says what to install
    is_setting = isinstance(error, ValueError) and "OPTIRS_" in str(error)  # an environment variable's value
    return str(error) if is_ours or is_setting else None


@click.group(cls=_Commands)
@click.version_option(ow.__version__, prog_name="optirs-web")
def cli() -> None:
    """Train models on any GPU, from one set of WGSL kernels."""


cli.add_command(bench)
cli.add_command(check)
cli.add_command(compile_)
cli.add_command(demo)
cli.add_command(devices)
cli.add_command(hardware)
cli.add_command(optimizers)
cli.add_command(parity)
cli.add_command(runs)
cli.add_command(shader)
cli.add_command(train)

"""`need_writable`: refuses output files that cannot be written before a long command starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

__all__ = ["need_writable"]


def need_writable(path: Path | None, option: str) -> None:
    """Check that `write_whole` can write a file; None needs nothing.

    Args:
        path: what the option names. A pipe or a device is not opened.
        option: the option's name, for the message.

    Raises:
        BadParameter: its folder does not exist, or takes no new file.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        return
    if not target.parent.is_dir():
        raise click.BadParameter(f"there is no folder {target.parent}", param_hint=option)
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise click.BadParameter(f"{target.parent}: {error.strerror}", param_hint=option) from error

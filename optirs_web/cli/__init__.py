"""The entry point of the command line. It imports only Python's own modules, so that it can name what to install."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

__all__ = ["main"]

_WITH_ALL_THREADS = (["bench"], ["check"], ["hardware"])
_NEEDED = ("click", "rich", "matplotlib")


def main() -> None:
    """Run ``optirs-web`` with the arguments of the process; ends the process."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"optirs-web needs {', '.join(missing)}: pip install 'optirs-web[train]'")
    # Set before NumPy is loaded: on products as small as those of the digits, BLAS threads mostly wait for each other.
    if sys.argv[1:2] not in _WITH_ALL_THREADS:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from .commands import cli

        cli(prog_name="optirs-web")
    except KeyboardInterrupt:  # during imports; later click prints the same
        sys.exit("Aborted!")

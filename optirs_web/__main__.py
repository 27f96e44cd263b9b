"""The command `optirs-web`, which is implemented in optirs_web.cli, of the wheel optirs-web-demo."""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what to install; ends the process."""
    if find_spec("optirs_web.cli") is None:
        sys.exit(
            "The command line comes with the demo: pip install 'optirs-web[demo]', in a clone pip install ./demo_site"
        )
    from .cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()

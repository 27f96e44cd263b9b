"""Modules that are imported when they are first asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["imported"]


def imported(name: str) -> ModuleType:
    """Return the module `optirs_web.NAME`.

    Raises:
        ModuleNotFoundError: it comes with the demo, which is not installed, or what it loads is not installed.
    """
    try:
        return importlib.import_module(f"optirs_web.{name}")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing in ("optirs_web.benchmarks", "optirs_web.datasets"):
            raise ModuleNotFoundError(f"{missing} comes with the demo: pip install 'optirs-web[demo]'") from None
        raise

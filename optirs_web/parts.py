"""Modules that may not be there: those of another wheel."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["imported"]


def imported(name: str) -> ModuleType:
    """The module `optirs_web.NAME`.

    Raises:
        ModuleNotFoundError: it is in a wheel that is not installed; the message says which.
    """
    try:
        return importlib.import_module(f"optirs_web.{name}")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing in ("optirs_web.benchmarks", "optirs_web.datasets"):
            raise ModuleNotFoundError(f"{missing} comes with the demo: pip install 'optirs-web[demo]'") from None
        if missing.startswith("optirs_web."):
            raise ModuleNotFoundError(
                f"{missing} is not in the wheel that trains in a page: load optirs_web_more too"
            ) from None
        raise

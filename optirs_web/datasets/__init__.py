"""Small real data sets that are part of the package. The digits need NumPy, the book does not."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .book import load_book as load_book
    from .digits import Digits as Digits, load_digits as load_digits

_NAMES = {"Digits": "digits", "load_book": "book", "load_digits": "digits"}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)

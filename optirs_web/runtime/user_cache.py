"""Files for what this user's programs can find out again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["folder", "write"]


def folder() -> str:
    """The library's folder among the user's caches, by the rules of the platform; in XDG_CACHE_HOME if that is set."""
    home = os.path.expanduser("~")
    if os.environ.get("XDG_CACHE_HOME"):
        cache = os.environ["XDG_CACHE_HOME"]
    elif sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        cache = os.path.join(home, "Library", "Caches")
    else:
        cache = os.path.join(home, ".cache")
    return os.path.join(cache, "optirs-web")


def write(path: str, text: str) -> None:
    """Write a file, and its folder: another process finds the old file or the new one.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.part")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(partial)
        raise

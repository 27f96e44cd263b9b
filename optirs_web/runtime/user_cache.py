"""Files for what this user's programs can find out again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

__all__ = ["folder", "machine", "table", "write"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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


def write(path: str, content: str | bytes) -> None:
    """Write a file, and its folder: another process finds the old file or the new one.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.part")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(partial, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(partial)
        raise


def table(path: str) -> dict[str, Any]:
    """The object in a file of JSON; an empty one where there is none."""
    import json  # most look at the folder alone

    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):  # the last for brackets in brackets
        return {}
    return content if isinstance(content, dict) else {}


def machine() -> list[str]:
    """What times on this machine depend on besides its devices: the processor, and the threads that it is given."""
    import platform

    threads = [f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ]
    return [platform.node(), platform.processor(), f"{os.cpu_count()} cores", *threads]

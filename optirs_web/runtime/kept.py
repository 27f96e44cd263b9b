"""Figures measured on this machine, in a file of the user's cache folder; in a page, an entry of the page's storage.

It is JSON: figures by name, by the subject that they are of. Those who keep figures check what they read, since anybody
may have written the file. It may be deleted at any time.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import sleep
from typing import IO, Any

from . import user_cache
from .backend import AdapterInfo

__all__ = ["device_and_machine", "driver", "load", "load_async", "path", "store", "store_async", "store_if_possible"]

Figures = dict[str, Any]

_IN_PAGE = sys.platform == "emscripten"
_NAME = "measured.json"
_MOST_BYTES = 1 << 24
_PATIENCE, _PAUSE = 5.0, 0.01
"""Seconds to wait for another process that writes, and between two looks at it."""


def device_and_machine(info: AdapterInfo) -> str:
    """Name what times of the host's calls are of: a device and its driver, the processor, its threads, the library."""
    from importlib.metadata import version  # which takes longer than to look whether there is a file

    parts = [f"{info.label}: {info.description}", *user_cache.machine(), f"optirs-web {version('optirs-web')}"]
    return "; ".join([*parts, driver()] if _IN_PAGE else parts)


def driver() -> str:
    """Return what else kernels are compiled by in a page; "" natively, where descriptions of devices say it."""
    if not _IN_PAGE:
        return ""
    from .indexed_db import driver

    return driver()


def path() -> str:
    """Return the path of the file; in a page, the name of the entry."""
    return _NAME if _IN_PAGE else os.path.join(user_cache.folder(), _NAME)


def load(subject: str) -> Figures:
    """Return the figures of a subject by name; empty where there are none. A damaged file is ignored, with a warning.

    A page that cannot wait has none; it awaits `load_async`.
    """
    if _IN_PAGE:
        from pyodide.ffi import can_run_sync, run_sync

        figures: Figures = run_sync(load_async(subject)) if can_run_sync() else {}
        return figures
    return _figures_in(_text(), subject)


async def load_async(subject: str) -> Figures:
    """The awaitable twin of `load`. Where a browser refuses, a warning says so."""
    if not _IN_PAGE:
        return load(subject)
    from . import indexed_db

    try:
        return _figures_in(await indexed_db.read(_NAME), subject)
    except OSError as error:
        warnings.warn(f"this browser keeps nothing that was measured: {error}", stacklevel=2)
        return {}


def store(subject: str, figures: Mapping[str, Any]) -> None:
    """Add figures to those of a subject, in place of those of the same names.

    Processes may do so at once: each waits for the others, and a reader finds the old file or the new one.

    Raises:
        OSError: the folder cannot be written, or another process has held the file for seconds, or the browser refuses;
            the old file stays.
    """
    if _IN_PAGE:
        from pyodide.ffi import run_sync

        run_sync(store_async(subject, figures))
        return
    os.makedirs(user_cache.folder(), exist_ok=True)
    with _alone():
        user_cache.write(path(), _merged(subject, figures, _text()))


async def store_async(subject: str, figures: Mapping[str, Any]) -> None:
    """The awaitable twin of `store`."""
    if not _IN_PAGE:
        store(subject, figures)
        return
    from . import indexed_db

    await indexed_db.change(_NAME, partial(_merged, subject, figures))


def store_if_possible(subject: str, figures: Mapping[str, Any]) -> None:
    """As `store`. Where that is impossible the log says so, and another process measures again."""
    try:
        store(subject, figures)
    except OSError as error:
        import logging  # which wgpu loads too

        logging.getLogger("optirs_web").info(f"what was measured is used, but cannot be kept: {error}")


def _figures_in(text: str, subject: str) -> Figures:
    content = _parsed(text)
    if content is None:
        warnings.warn(f"{path()} is damaged, and is ignored: what it kept is measured again", stacklevel=3)
        return {}
    return content.get(subject, {})


def _merged(subject: str, figures: Mapping[str, Any], text: str) -> str:
    """Return the content of the file with figures added. Where it was damaged, they are all that there is."""
    import json

    content = _parsed(text) or {}
    return json.dumps({**content, subject: {**content.get(subject, {}), **figures}}, indent=1)


def _parsed(text: str) -> dict[str, Figures] | None:
    """Return figures by name, by subject; None for a text that has another form."""
    if not text:
        return {}
    import json  # which processes that find no file do not need

    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # the latter for brackets in brackets
        return None
    if not isinstance(content, dict) or not all(isinstance(figures, dict) for figures in content.values()):
        return None
    return content


def _text() -> str:
    """Return the content of the file; "" where there is none that can be read."""
    try:
        with open(path(), "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        return ""
    return content.decode(errors="replace") if len(content) <= _MOST_BYTES else "too long"


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes, and threads, from writing. A process that ends lets go, however it ends."""
    with open(f"{path()}.lock", "ab") as file:
        for _ in range(round(_PATIENCE / _PAUSE)):
            if _locks(file):
                break
            sleep(_PAUSE)
        else:
            raise TimeoutError(f"another process holds {file.name}")
        yield


if sys.platform == "win32":

    def _locks(file: IO[bytes]) -> bool:
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _locks(file: IO[bytes]) -> bool:
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

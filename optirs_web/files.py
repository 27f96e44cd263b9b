"""Atomic writes of files."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

try:
    fcntl: Any = importlib.import_module("fcntl")
except ModuleNotFoundError:  # Windows
    fcntl = None

__all__ = ["lock", "write_picture", "write_whole"]

_ABANDONED = 3600  # seconds without a write, where there are no locks


def write_picture(path: str | os.PathLike[str], figure: Any) -> None:
    """Write a figure of matplotlib as PNG, as `write_whole` writes a file.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: it cannot be written; the old file is kept.
    """
    content = BytesIO()
    figure.savefig(content, format="png")
    write_whole(path, [content.getbuffer()])


def write_whole(path: str | os.PathLike[str], content: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically: readers of `path` see the old file or the new one, even if the process is killed.

    The content is written to a hidden file in the same folder, ``.NAME.8 hexadecimal digits.part``, which then
    replaces `path`. Such files of writers that were killed are removed first. One that is being written is not: its
    writer holds a lock on it (flock), which ends with the writer. On Windows, which has no such lock, a file that is
    open cannot be removed, and one that is not counts as abandoned after an hour.

    Args:
        path: a file, also one that does not exist yet, or a pipe or a device, which is written to directly.
        content: parts of the content, in order.

    Raises:
        FileNotFoundError: there is no such folder.
        OSError: it cannot be written; the old file is kept.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}")
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            file.writelines(content)
        return
    _remove_abandoned(target)
    with _part_of(target) as (partial, file):
        file.writelines(content)
        file.flush()
        os.fsync(file.fileno())
        if fcntl is None:
            file.close()  # Windows renames no open file
        partial.replace(target)


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; False where another process has it, or on Windows."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _part_of(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a locked file next to the target; it is removed if it still has its name at the end."""
    while True:
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        with open(partial, "xb") as file:
            try:
                if fcntl is not None:
                    with suppress(OSError):  # a file system without locks, where it does not count as abandoned either
                        fcntl.flock(file, fcntl.LOCK_EX)
                if partial.exists():  # it was not removed as abandoned before it was locked
                    yield partial, file
                    return
            finally:
                try:
                    file.close()  # writes the buffered content, for which there may be no room
                finally:
                    partial.unlink(missing_ok=True)


def _remove_abandoned(target: Path) -> None:
    part = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):  # a folder that cannot be listed
        for name in filter(part.fullmatch, os.listdir(target.parent)):
            with suppress(OSError):  # it is locked, or is another user's
                _remove_if_abandoned(target.with_name(name))


def _remove_if_abandoned(partial: Path) -> None:
    if fcntl is None:
        if time.time() - partial.stat().st_mtime > _ABANDONED:
            partial.unlink()
        return
    descriptor = os.open(partial, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and lock(descriptor):
            partial.unlink()
    finally:
        os.close(descriptor)

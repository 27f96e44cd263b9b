"""Store checkpoints and benchmark results on the disk: files that never change, and an SQLite index of them.

An upload is written to a file of its own, synchronised, and only then entered in the index, in one transaction. After
a crash at any time, a name leads to the old file or to the new one; files that are not in the index are removed at the
next start. Names of runs are never used as names of files.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from ..errors import OptirsError

__all__ = ["Run", "Store", "StoreError", "StoreFullError", "Summary", "Upload"]

_INDEX = "index.sqlite3"
_CHECKPOINT = ".safetensors"
_PARTIAL = ".part"
_OURS = re.compile(rf"[0-9a-f]{{32}}({re.escape(_CHECKPOINT)}|{re.escape(_PARTIAL)})")
_VERSION = 1
_TABLES = """
CREATE TABLE runs (
    name TEXT PRIMARY KEY, file TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, sha256 TEXT NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, step INTEGER, epoch INTEGER, optimizer TEXT
) STRICT;
CREATE TABLE results (id INTEGER PRIMARY KEY AUTOINCREMENT, created TEXT NOT NULL, result TEXT NOT NULL) STRICT;
"""


class StoreError(OptirsError):
    """The folder cannot be used."""


class StoreFullError(OptirsError):
    """A quota is used up."""


class Summary(NamedTuple):
    """The step, epoch and optimizer that a checkpoint names; None where it does not."""

    step: int | None
    epoch: int | None
    optimizer: str | None


class Run(NamedTuple):
    """A run in the index. Times are UTC, in ISO 8601."""

    name: str
    size: int
    sha256: str
    created: str
    updated: str
    step: int | None
    epoch: int | None
    optimizer: str | None


_COLUMNS = ", ".join(Run._fields)


class Upload:
    """A checkpoint that is being received; `discard` must be called in any case, and has no effect once it was kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115  closed by `finish` or `discard`

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes written so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append a chunk to the file."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def finish(self) -> None:
        """Synchronise the file with the disk and close it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Remove the file, unless it was kept."""
        try:
            self._file.close()  # writes buffered bytes, for which the disk may have no room
        finally:
            self.path.unlink(missing_ok=True)


class Store:
    """The folder of one server, which owns it until `close`. Methods may be called from any thread.

    Args:
        folder: made when missing.
        max_runs: the number of runs that are kept.
        max_total: bytes of all checkpoints together.
        max_results: the number of benchmark results that are kept; above it the oldest are deleted.

    Raises:
        StoreError: another server owns the folder, or the index is damaged.
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, max_runs: int, max_total: int, max_results: int) -> None:
        self.folder = folder.resolve()
        self._max_runs, self._max_total, self._max_results = max_runs, max_total, max_results
        self._lock = Lock()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._index = _open_index(self.folder / _INDEX)
        self._remove_unreferenced_files()

    def close(self) -> None:
        """Release the folder."""
        with self._lock:
            self._index.close()

    def _remove_unreferenced_files(self) -> None:
        referenced = {name for (name,) in self._index.execute("SELECT file FROM runs")}
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in referenced:
                path.unlink(missing_ok=True)

    # Checkpoints.

    def begin(self) -> Upload:
        """Return a new file to receive a checkpoint."""
        return Upload(self.folder / f"{secrets.token_hex(16)}{_PARTIAL}")

    def keep(self, name: str, upload: Upload, summary: Summary) -> tuple[Run, bool]:
        """Make a finished upload the run's checkpoint; return the run, and True if it is new.

        Raises:
            StoreFullError: a quota is used up; nothing was changed.
        """
        now = _now()
        with self._lock:
            old = self._find(name)
            self._check_quota(name, upload.size)
            file = upload.path.with_suffix(_CHECKPOINT)
            upload.path.rename(file)
            _synchronize(self.folder)
            run = Run(name, upload.size, upload.sha256, old[0].created if old else now, now, *summary)
            marks = ", ".join("?" * (len(run) + 1))
            try:
                with self._index:
                    self._index.execute(f"REPLACE INTO runs ({_COLUMNS}, file) VALUES ({marks})", (*run, file.name))
            except BaseException:
                file.unlink()
                raise
            if old:
                self._remove(old[1])
            return run, old is None

    def _check_quota(self, name: str, size: int) -> None:
        others = "SELECT count(*), coalesce(sum(size), 0) FROM runs WHERE name != ?"
        count, total = self._index.execute(others, (name,)).fetchone()
        if count >= self._max_runs:
            raise StoreFullError(f"the limit of {count:,} runs is reached: delete one first")
        if total + size > self._max_total:
            raise StoreFullError(
                f"{size:,} bytes on top of the {total:,} saved would exceed the limit of {self._max_total:,}: "
                "delete a run first"
            )

    def run(self, name: str) -> Run | None:
        """Return the run of this name; None if there is none."""
        with self._lock:
            match = self._find(name)
        return match[0] if match else None

    def runs(self) -> list[Run]:
        """Return all runs, the last written first."""
        with self._lock:
            rows = self._index.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY updated DESC, name").fetchall()
        return [Run(*row) for row in rows]

    def open(self, name: str) -> tuple[Run, BinaryIO] | None:
        """Return a run with its opened checkpoint, which stays readable when it is replaced. The caller closes it."""
        with self._lock:
            match = self._find(name)
            return (match[0], open(self.folder / match[1], "rb")) if match else None

    def delete(self, name: str) -> bool:
        """Delete a run; False if there is none."""
        with self._lock:
            match = self._find(name)
            if match:
                with self._index:
                    self._index.execute("DELETE FROM runs WHERE name = ?", (name,))
                self._remove(match[1])
            return match is not None

    def _find(self, name: str) -> tuple[Run, str] | None:
        row = self._index.execute(f"SELECT {_COLUMNS}, file FROM runs WHERE name = ?", (name,)).fetchone()
        return (Run(*row[:-1]), row[-1]) if row else None

    def _remove(self, file: str) -> None:
        with suppress(OSError):  # Windows keeps a file that someone reads; the next start removes it
            (self.folder / file).unlink(missing_ok=True)

    # Benchmark results: the text of a JSON object each.

    def add_result(self, result: str) -> tuple[int, str]:
        """Save a result; return its number and the time."""
        now = _now()
        with self._lock, self._index:
            number = self._index.execute("INSERT INTO results (created, result) VALUES (?, ?)", (now, result)).lastrowid
            assert number is not None
            self._index.execute("DELETE FROM results WHERE id <= ?", (number - self._max_results,))
        return number, now

    def results(self) -> list[tuple[int, str, str]]:
        """Return the number, time and text of all results, the newest first."""
        with self._lock:
            return self._index.execute("SELECT id, created, result FROM results ORDER BY id DESC").fetchall()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _open_index(path: Path) -> sqlite3.Connection:
    index = sqlite3.connect(path, timeout=0, check_same_thread=False)
    try:
        # The lock is taken once and kept, so that a second server cannot remove this one's uploads.
        index.execute("PRAGMA locking_mode = EXCLUSIVE")
        index.execute("PRAGMA synchronous = FULL")
        with index:
            index.execute("BEGIN EXCLUSIVE")
            version = index.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    index.execute(statement)
                index.execute(f"PRAGMA user_version = {_VERSION}")
            elif version != _VERSION:
                raise StoreError(f"{path} was created by another version of optirs-web; choose another folder")
    except sqlite3.DatabaseError as error:
        index.close()
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            raise StoreError(f"another server is using {path.parent}; choose another folder") from error
        raise StoreError(f"{path} cannot be used as an index: {error}; choose another folder") from error
    except BaseException:
        index.close()
        raise
    return index


def _synchronize(folder: Path) -> None:
    """Synchronise the entries of a folder with the disk; Windows does so by itself, and opens no folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

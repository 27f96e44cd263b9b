"""Compiles loops in another process while the program runs; the machine code is left in the cache on disk.

In a thread Numba, which compiles mostly in Python, would slow steps down meanwhile; forks would inherit its lock of the
compiler, held by nobody; and the program could not end safely while LLVM runs. The process starts with the first
compilation, makes them one after another, and ends when there was none for a while, or with this process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ....wgsl.numba_shell import Loops
from .loops import Loop, keep_text

__all__ = ["Compilation", "compile_in_worker", "main"]

_IDLE = 10.0
"""Seconds without work after which the process ends, which takes some 200 MB."""

_PROGRAM = f"from {__name__} import main; main()"
_DONE = b"."


class Compilation:
    """Loops that are compiled for arguments of some types."""

    def __init__(self, loops: Loops, name: str, types: Sequence[Any]) -> None:
        """Use `compile_in_worker`."""
        self.message = pickle.dumps((loops, name, types))
        self._worker: _Worker | None = None
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """The machine code is on disk, or could not be made by another process."""
        if not self._is_done and self._worker is not _worker:  # that of the process of which this one is a fork
            self.submit()
        return self._is_done

    def submit(self) -> None:
        """Enqueue it for the worker of this process."""
        self._worker = _worker
        _worker.submit(self)

    def finish(self) -> None:
        """There is nothing more to wait for."""
        self._is_done = True


def compile_in_worker(loops: Loops, name: str, arguments: Sequence[Any]) -> Compilation:
    """Start to compile loops for arguments of these types; done at once where another process cannot do it."""
    compilation = Compilation(loops, name, [_description(argument) for argument in arguments])
    if _is_python(sys.executable) and keep_text(loops, name):
        compilation.submit()
    else:
        compilation.finish()
    return compilation


def _description(argument: Any) -> Any:
    """Describe an argument to the worker: an array by its type, a scalar by any value."""
    if isinstance(argument, np.ndarray):
        return argument.dtype.str, argument.ndim, argument.flags.writeable
    return argument


def _is_python(executable: str | None) -> bool:
    """The executable runs Python programs, and is not an application with Python in it."""
    name = os.path.basename(executable or "").lower()
    return name.startswith(("python", "pypy")) and not hasattr(sys, "frozen")


class _Worker:
    """The process, and a thread that gives it one compilation after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: SimpleQueue[Compilation | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def submit(self, compilation: Compilation) -> None:
        """Enqueue a compilation."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                thread = threading.Thread(target=self._serve, name="optirs_web Numba", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self._is_closed = True
                else:
                    self._thread = thread
            if self._is_closed:
                compilation.finish()
            else:
                self._waiting.put(compilation)

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            if self._process is not None:
                self._process.kill()
        if thread is not None:
            self._waiting.put(None)
            thread.join()
            self._end()

    def forget(self) -> None:
        """In a fork: close the copies of the pipes to the process, which is not a child of this one."""
        process = self._process
        if process is not None:
            _close_pipes(process)
            process.returncode = 0  # nothing to wait for

    def _serve(self) -> None:
        while (compilation := self._next()) is not None:
            if not self._compile(compilation.message):
                self._end()
            compilation.finish()

    def _next(self) -> Compilation | None:
        """The next compilation; None after a while without, or where this process ends."""
        while True:
            try:
                return self._waiting.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if not self._waiting.empty():
                        continue
                    self._end()
                    self._thread = None
                    return None

    def _compile(self, message: bytes) -> bool:
        """Have the process compile; False where there is none, or it ended."""
        try:
            with self._lock:
                if self._process is None and not self._is_closed:
                    self._process = _started()
            process = self._process
            if process is None:
                return False
            assert process.stdin is not None
            assert process.stdout is not None
            remaining = memoryview(message)
            while remaining:
                remaining = remaining[process.stdin.write(remaining) :]
            return process.stdout.read(1) == _DONE
        except OSError:
            return False

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)


def _started() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(str(folder) or os.curdir for folder in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C in a terminal is for this process
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def main() -> None:
    """Compile what standard input says, and answer each compilation with a byte.

    An error ends the process. The one that waits meets it again when it compiles the loops, and reports it.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what is printed is no answer
    while True:
        try:
            loops, name, types = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        Loop(loops, name).compile([_type(description) for description in types])
        os.write(answers, _DONE)


def _type(description: Any) -> Any:
    from numba import from_dtype, typeof, types

    if not isinstance(description, tuple):
        return typeof(description)
    dtype, ndim, is_writeable = description
    return types.Array(from_dtype(np.dtype(dtype)), ndim, "C", readonly=not is_writeable)


def _close() -> None:
    _worker.close()


def _after_fork() -> None:
    global _worker
    _worker.forget()
    _worker = _Worker()


_worker = _Worker()
atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

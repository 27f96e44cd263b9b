"""`Compiler`: translates kernels by compilers of others, which run in a process of their own, one request at a time.

They are large and native; JAX alone takes 200 MB, and holds Python's lock for long. A process of its own can be ended
when it takes too long, and its crashes and its memory do not affect the server. Texts are cached: there are about 1,400
of them, 12 MB in all, so that clients cannot make the server compile without end.

``python -m optirs_web.demo_site.compiler`` is that process: it answers each line of JSON with another until its input
ends.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from .shader_kernels import Name, Translation, translation

__all__ = ["Busy", "Compiler"]

_IDLE = 300.0
"""Seconds after the last request until the process ends, which frees its memory."""


class Busy(Exception):
    """The largest allowed number of requests is waiting already."""


class Compiler:
    """The compilers of others, and a cache of their texts. Methods may be called from any thread.

    Args:
        patience: seconds that one text may take.
        most_waiting: the largest number of requests that wait, including the one that is served.
    """

    def __init__(self, patience: float, most_waiting: int) -> None:
        self._patience = patience
        self._slots = threading.Semaphore(most_waiting)
        self._cache: dict[Name, Translation] = {}
        self._serving = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._end_of_process: Callable[[], object] = lambda: None  # or what ends it, called at the latest at exit
        self._idle: threading.Timer | None = None

    def translation(self, name: Name) -> Translation:
        """Return the text of a name, or a note instead of it.

        Args:
            name: an existing shader, variant and target.

        Raises:
            Busy: too many requests are waiting.
        """
        if name in self._cache:
            return self._cache[name]
        with self._waiting_slot(), self._serving:
            if name in self._cache:  # another request has made it meanwhile
                return self._cache[name]
            answer, is_final = self._ask(name)
            if is_final:
                self._cache[name] = answer
            return answer

    def close(self) -> None:
        """End the process. The next request starts another one."""
        with self._serving:
            self._end()

    @contextmanager
    def _waiting_slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise Busy
        try:
            yield
        finally:
            self._slots.release()

    def _ask(self, name: Name) -> tuple[Translation, bool]:
        """Return the answer, and True if it is final; a refusal is not, since a missing compiler may be installed."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            process.kill()

        overdue = threading.Timer(self._patience, give_up)
        overdue.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(name) + "\n")
                process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            overdue.cancel()
            overdue.join()  # it may be giving up just now
        is_whole = answer.endswith("\n")
        if is_late.is_set() or not is_whole:
            self._end()
        if not is_whole:
            why = f"took longer than {self._patience:g} s" if is_late.is_set() else "exited unexpectedly"
            note = f"the compiler {why}; see the server's log, and restart the server to retry"
            return Translation(None, note), True
        result = Translation(*json.loads(answer))
        if self._process is not None:
            self._idle = threading.Timer(_IDLE, self._end_if_idle, (process,))
            self._idle.daemon = True
            self._idle.start()
        return result, result.text is not None

    def _started(self) -> subprocess.Popen[str]:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            # What JAX prints is the same for each platform; the server's GPU is left to others.
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONIOENCODING": "utf-8"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                env=environment,
            )
            self._end_of_process = weakref.finalize(self, _end, self._process)
        return self._process

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._process = None
        self._end_of_process()

    def _end_if_idle(self, process: subprocess.Popen[str]) -> None:
        if self._serving.acquire(blocking=False):
            try:
                if self._process is process:
                    self._end()
            finally:
                self._serving.release()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()  # closes its pipes


def _serve(requests: IO[str], answers: IO[str]) -> None:
    for line in requests:
        importlib.invalidate_caches()  # missing packages may have been installed
        print(json.dumps(translation(Name(*json.loads(line)))), file=answers, flush=True)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this by closing its input
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    _serve(sys.stdin, answers)


if __name__ == "__main__":
    _main()

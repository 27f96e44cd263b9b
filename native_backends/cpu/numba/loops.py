"""Texts with loops for Numba, compiled and called: from files that Numba caches what it compiles beside, in threads.

Threads are Numba's (OpenMP, TBB or its own), so that a process has one set of them for all of its Numba code. They are
used where that is safe: OpenMP's do not live on in a forked process, whoever started them there, and Numba's own take
one caller at a time. Where they are not, the calling thread does all of the work.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from glob import escape, glob
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from ....runtime import user_cache
from ....wgsl.numba_shell import Loops
from ....wgsl.print_python import compile_python

__all__ = ["Loop", "has_machine_code", "keep_text", "loop_of", "threads"]

_GRAIN = 1 << 14
"""Elements that a thread is worth starting for."""

_PF_FORKNOEXEC = 0x40
"""Linux' flag of a process that was forked and has executed no program since (proc(5), /proc/PID/stat)."""


class Loop:
    """The `launch` of a text.

    Attributes:
        parameters: the names of what `launch` takes, as in `Loops`.
    """

    def __init__(self, loops: Loops, name: str) -> None:
        """Load the text; LLVM compiles it, or Numba finds it compiled, at the first call."""
        namespace = _loaded(loops.text, name)
        self.parameters = loops.parameters
        self._launch = namespace["launch"]
        self._part = namespace.get("part")

    def is_compiled(self, arguments: Sequence[Any]) -> bool:
        """The machine code for arguments of these types is on disk."""
        from numba import typeof

        from .cache import is_kept

        return all(is_kept(*compiled) for compiled in self._signatures([typeof(argument) for argument in arguments]))

    def compile(self, types: Sequence[Any]) -> None:
        """Compile it for arguments of these types of Numba's."""
        for function, signature in self._signatures(types):
            function.compile(signature)

    def _signatures(self, types: Sequence[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
        from numba import intp

        if self._part is None:
            return [(self._launch, tuple(types))]
        return [(self._part, (intp, intp, *types)), (self._launch, (intp, *types))]

    def bound(self, arguments: Sequence[Any], elements: int, at_most: int) -> Callable[[], None]:
        """A call of it.

        Args:
            arguments: what `launch` takes after the number of parts.
            elements: how many it is about.
            at_most: threads.
        """
        launch, part = self._launch, self._part
        if part is None:
            return lambda: launch(*arguments)
        parts = max(1, min(elements // _GRAIN, at_most))
        if parts == 1:
            return lambda: part(0, 1, *arguments)

        def run() -> None:
            if not _in_threads(launch, parts, arguments):
                part(0, 1, *arguments)

        return run


@cache
def loop_of(loops: Loops, name: str) -> Loop:
    """The text, loaded once."""
    return Loop(loops, name)


def threads() -> int:
    """Return how many threads a kernel may use: OPTIRS_CPU_THREADS, and at most NUMBA_NUM_THREADS or the cores.

    Raises:
        ValueError: the variable holds something else than a number of threads.
    """
    import numba

    most: int = numba.config.NUMBA_NUM_THREADS
    limit = os.environ.get("OPTIRS_CPU_THREADS")
    if not limit:
        return most
    if not limit.isdecimal() or int(limit) == 0:
        raise ValueError(f"OPTIRS_CPU_THREADS must be 1 or more, not '{limit}'")
    return min(int(limit), most)


def has_machine_code(loops: Loops, name: str) -> bool:
    """The user's cache has some for that text: perhaps of another processor or version, which Numba knows."""
    folder, file = os.path.split(_path(loops.text, name))
    return bool(glob(os.path.join(escape(folder), "*", f"{file.removesuffix('.py')}.launch-*.nbi")))


def keep_text(loops: Loops, name: str) -> bool:
    """Write the text to the user's cache; False where that cannot be written to."""
    try:
        _keep(_path(loops.text, name), loops.text)
    except OSError:
        return False
    return True


def _path(text: str, name: str) -> str:
    folder = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(user_cache.folder(), "numba")
    return os.path.join(folder, f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}_{_digest(text)}.py")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _loaded(text: str, name: str) -> dict[str, Any]:
    """The namespace of a text, in a file of the user's cache: Numba caches only what comes out of a file."""
    _load_openmp()
    path = _path(text, name)
    try:
        _keep(path, text)
        namespace = _imported(f"optirs_web_numba_{_digest(text)}", path)
    except (OSError, RuntimeError):  # without a folder that can be written, as Numba says it, each process compiles
        return compile_python(text.replace("cache=True, ", ""), f"{name} for numba")
    from .cache import keep_with_digests  # Numba is loaded by now

    for name in ("launch", "part"):
        keep_with_digests(namespace.get(name))
    return namespace


def _imported(name: str, path: str) -> dict[str, Any]:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)  # where Numba looks for what it has cached
    spec.loader.exec_module(module)
    return vars(module)


def _keep(path: str, text: str) -> None:
    """Have that text in the file. One that is there stays as it is: Numba goes by its time."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    user_cache.write(path, text)


# Threads.

_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}
"""How idle threads wait: the second, in iterations, is GNU's, and has precedence there."""
_caller_lock = threading.Lock()
_layer = ""  # what Numba's threads are, once a kernel has used them
_are_lost = False


@cache
def _load_openmp() -> None:
    """Load OpenMP with idle threads that soon sleep, unless the environment says what they do, or it is loaded already.

    By default they spin for a while after each loop, on the cores that BLAS needs next: the step of the GPT in
    `examples/` takes 2.7 times as long then on two cores. Threads that sleep at once make an update of small tensors
    1.3 times as long.
    """
    if not _WAITING.keys().isdisjoint(os.environ):
        return
    os.environ.update(_WAITING)  # which is read when the library is loaded
    try:
        with suppress(ImportError):  # Numba is built without it on some platforms
            import_module("numba.np.ufunc.omppool")
    finally:
        for name in _WAITING:
            del os.environ[name]


def _in_threads(launch: Callable[..., None], parts: int, arguments: Sequence[Any]) -> bool:
    """Call it, unless its threads cannot be used here and now."""
    global _layer
    if _are_lost:
        return False
    if _layer in ("omp", "tbb"):
        launch(parts, *arguments)
        return True
    if not _caller_lock.acquire(blocking=False):
        return False
    try:
        launch(parts, *arguments)
    finally:
        _caller_lock.release()
    import numba

    _layer = numba.threading_layer()
    return True


def _started() -> str:
    """Return the name of Numba's threading layer, or "" if neither a kernel nor the user's code has started threads."""
    numba: Any = sys.modules.get("numba")
    try:
        layer: str = numba.threading_layer()
    except (AttributeError, ValueError):  # it is not loaded as yet, or has no threads
        return ""
    return layer


def _after_fork() -> None:
    """In the child. Numba ends a process that would use OpenMP's threads of its parent; in a grandchild it hangs."""
    global _caller_lock, _are_lost
    _caller_lock = threading.Lock()  # who had the other may be a thread that is not in this process
    _are_lost = _started() == "omp"


def _is_forked() -> bool:
    """Return whether this process was forked and runs no new program since; False if the system does not tell."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            flags = file.read().rpartition(")")[2].split()[6]
    except OSError:
        return False
    return bool(int(flags) & _PF_FORKNOEXEC)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
    _are_lost = _started() == "omp" and _is_forked()  # they may be of a process that did not load this module

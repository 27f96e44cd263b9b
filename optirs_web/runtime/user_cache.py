"""Files for what this user's programs can find out again."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import get_ident

__all__ = ["folder", "machine", "sealed", "write", "write_sealed"]

_DIGEST = 32  # bytes
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def folder() -> str:
    """The library's folder among the user's caches, by the rules of the platform.

    For a user without a home it is one that can be neither read nor written.
    """
    from platformdirs import user_cache_dir  # which there is no need for in a page

    try:
        path = user_cache_dir("optirs-web", appauthor=False, opinion=False)
    except (RuntimeError, ValueError):  # no home
        path = ""
    return path if os.path.isabs(path) else os.path.join(os.devnull, "optirs-web")


def write(path: str, content: str | bytes) -> None:
    """Write a file, and its folder: another process finds the old file or the new one.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.{get_ident()}.part")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(partial, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(partial)
        raise


def write_sealed(path: str, content: bytes) -> None:
    """Write a file whose content `sealed` gives back.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    from hashlib import sha256  # most look at the folder alone

    write(path, sha256(content).digest() + content)


def sealed(path: str) -> bytes | None:
    """The content of a file of `write_sealed`; None where there is none, or it is not as it was written.

    What a driver made is given to it in no other way: some end the process for a file that was cut off.
    """
    from hashlib import sha256

    try:
        with open(path, "rb") as file:
            digest, content = file.read(_DIGEST), file.read()
    except OSError:
        return None
    return content if sha256(content).digest() == digest else None


def machine() -> list[str]:
    """Return the host name, the processor, the number of cores, and the variables that limit threads, as strings.

    Measured times depend on these as well as on devices.
    """
    import platform

    threads = [f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ]
    return [platform.node(), platform.processor(), f"{os.cpu_count()} cores", *threads]

"""A cache of Numba's compiled code with digests: a file that is damaged, or of other code, is compiled again.

Numba takes what its files hold as it is: one that was cut off stops every process that needs it, until somebody deletes
it, and one in the place of another computes something else.
"""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

__all__ = ["is_kept", "keep_with_digests"]


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """An index and what it names. Each is kept as bytes with a digest of them and of what they were compiled for."""

    def __init__(self, cache_path: str, filename_base: str, source_stamp: Any) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._name = filename_base  # which has that of the text

    def save(self, key: Any, data: Any) -> None:
        content = self._dump(data)
        kept = self._digest(key, content), content
        with suppress(OSError):  # without room for it each process compiles it
            try:
                super().save(key, kept)
            except OSError:
                raise
            except Exception:  # of a damaged index, which pickle may say in any way
                self.flush()
                super().save(key, kept)

    def load(self, key: Any) -> Any:
        try:
            digest, content = super().load(key)
            return pickle.loads(content) if digest == self._digest(key, content) else None
        except Exception:  # there is none; or it is damaged, which pickle may say in any way
            return None

    def _digest(self, key: Any, content: bytes) -> bytes:
        return hashlib.sha256(repr((self._name, key)).encode() + content).digest()


class _Cache(FunctionCache):  # type: ignore[misc]
    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        locator = self._impl.locator
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, locator.get_source_stamp())

    def holds(self, signature: Any, target: Any) -> bool:
        """Return whether a file has machine code for a signature and this processor."""
        return self._cache_file.load(self._index_key(signature, target.codegen())) is not None


def keep_with_digests(function: Any) -> None:
    """Have a function of Numba's, which it has not compiled yet, kept so; one that it does not keep is left alone."""
    if isinstance(getattr(function, "_cache", None), FunctionCache):
        function._cache = _Cache(function.py_func)


def is_kept(function: Any, signature: Any) -> bool:
    """Return whether the machine code of a Numba function for a signature is on disk."""
    cache = getattr(function, "_cache", None)
    return isinstance(cache, _Cache) and cache.holds(signature, function.targetctx)

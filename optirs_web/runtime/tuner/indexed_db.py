"""Choices in a browser: IndexedDB, which all pages of a site share. Asynchronous, so everything here is awaited."""

from __future__ import annotations

import warnings
from asyncio import Future, get_running_loop
from typing import Any

__all__ = ["driver", "load", "save"]

_STORE = "choices"


def driver() -> str:
    """A page is not told the driver; what compiles its shaders comes with the browser."""
    import js

    return str(js.navigator.userAgent)


def _answer(request: Any) -> Future[Any]:
    """What an IDBRequest gives. It is listened to from now on."""
    from pyodide.ffi import create_once_callable

    future: Future[Any] = get_running_loop().create_future()

    def done(event: Any) -> None:
        if event.type == "success":
            future.set_result(request.result)
        else:
            future.set_exception(OSError(str(request.error)))

    request.onsuccess = request.onerror = create_once_callable(done)
    return future


async def _store(mode: str) -> Any:
    """The object store of a transaction of its own."""
    import js
    from pyodide.ffi import create_once_callable

    request = js.indexedDB.open("optirs-web", 1)
    request.onupgradeneeded = create_once_callable(lambda _: request.result.createObjectStore(_STORE))
    database = await _answer(request)
    transaction = database.transaction(_STORE, mode)
    database.close()  # once the transaction is done
    return transaction.objectStore(_STORE)


async def load(key: str) -> dict[str, str]:
    """The texts of a device, by their names. None, with a warning, where the browser refuses."""
    import js
    from pyodide.ffi import JsException

    try:
        store = await _store("readonly")
        within = js.IDBKeyRange.bound(f"{key}/", f"{key}0")  # 0 comes after /
        names, texts = _answer(store.getAllKeys(within)), _answer(store.getAll(within))
        return dict(zip(map(str, await names), map(str, await texts), strict=True))
    except (AttributeError, JsException, OSError) as error:  # no IndexedDB, or a page that must not use it
        warnings.warn(f"this browser stores no tuned choices: {error}", stacklevel=2)
        return {}


async def save(key: str, name: str, text: str) -> None:
    """Keep a text. Where that is impossible, a warning says so."""
    from pyodide.ffi import JsException

    try:
        await _answer((await _store("readwrite")).put(text, f"{key}/{name}"))
    except (AttributeError, JsException, OSError) as error:
        warnings.warn(f"a tuned choice is used, but this browser does not store it: {error}", stacklevel=2)

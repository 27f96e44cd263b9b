"""Texts in IndexedDB, which all pages of a site share. Asynchronous, so everything here is awaited."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable
from typing import Any

__all__ = ["change", "driver", "read"]

_STORE = "texts"


def driver() -> str:
    """Return what the browser says of itself: a page is not told the driver, and the browser compiles its shaders."""
    import js

    return str(js.navigator.userAgent)


async def read(name: str) -> str:
    """Return a text; "" where there is none.

    Raises:
        OSError: the browser refuses.
    """
    from pyodide.ffi import JsException

    try:
        return str(await _answer((await _store("readonly")).get(name)) or "")
    except (AttributeError, JsException) as error:  # no IndexedDB, or a page that must not use it
        raise OSError(str(error)) from None


async def change(name: str, made: Callable[[str], str]) -> None:
    """Replace a text by what is made of it, while no other page changes it.

    Raises:
        OSError: the browser refuses.
    """
    from pyodide.ffi import JsException, create_once_callable

    try:
        store = await _store("readwrite")
        reading = store.get(name)
        # A transaction is over when its page awaits something else, so the text is written where it has been read.
        reading.onsuccess = create_once_callable(lambda _: store.put(made(str(reading.result or "")), name))
        await _answer(store.transaction)
    except (AttributeError, JsException) as error:
        raise OSError(str(error)) from None


def _answer(request: Any) -> Future[Any]:
    """Return what an IDBRequest gives, or the end of an IDBTransaction. It is listened to from now on."""
    from pyodide.ffi import create_once_callable

    future: Future[Any] = get_running_loop().create_future()

    def done(event: Any) -> None:
        if event.type == "success":
            future.set_result(request.result)
        elif event.type == "complete":
            future.set_result(None)
        else:
            future.set_exception(OSError(str(request.error)))

    listener = create_once_callable(done)
    if hasattr(request, "oncomplete"):
        request.oncomplete = request.onabort = listener
    else:
        request.onsuccess = request.onerror = listener
    return future


async def _store(mode: str) -> Any:
    """Return the object store of a transaction of its own."""
    import js
    from pyodide.ffi import create_once_callable

    request = js.indexedDB.open("optirs-web", 2)
    request.onupgradeneeded = create_once_callable(lambda _: request.result.createObjectStore(_STORE))
    database = await _answer(request)
    transaction = database.transaction(_STORE, mode)
    database.close()  # once the transaction is done
    return transaction.objectStore(_STORE)

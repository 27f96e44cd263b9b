"""Serve the application: bind a free port, run uvicorn, and shut down without a traceback."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from .connections import protocol_for
from .pages import prepare
from .settings import Settings

__all__ = ["bind", "serve", "url_of"]

FIRST_PORT = 8000
_PORTS_TO_TRY = 100


def bind(host: str, port: int | None = None) -> socket.socket:
    """Return a listening socket.

    Args:
        host: an address or a name of this machine.
        port: 0 for any port; None for the first free one from 8000.

    Raises:
        OSError: the port is taken, or the address is not of this machine.
    """
    ports = range(FIRST_PORT, FIRST_PORT + _PORTS_TO_TRY) if port is None else [port]
    for candidate in ports:
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == ports[-1]:
                raise
    raise AssertionError("there is at least one port to try")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere the option lets two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address to open on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that calls `when_ready` once it answers requests."""

    def __init__(self, config: uvicorn.Config, when_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_ready()


def serve(
    app: ASGIApp, settings: Settings, listener: socket.socket, when_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        app: the application, or one that has it mounted.
        settings: those of the application.
        listener: from `bind`.
        when_ready: called once, when requests are answered.

    Raises:
        KeyboardInterrupt: SIGINT came; everything is closed.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could choose the address for which its requests count
        http=protocol_for(settings),
        timeout_graceful_shutdown=3,
        ws="none",
    )
    threading.Thread(target=prepare, args=(settings,), daemon=True).start()
    _Server(config, when_ready).run(sockets=[listener])

"""The HTTP protocol with limits: ends connections of clients that send or read nothing, or have too many."""

from __future__ import annotations

import asyncio
from math import inf

from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import client_key
from .settings import Settings

__all__ = ["protocol_for"]

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, with limits to the duration and the number of a client's connections.

    A client has `head_patience` to send the first line and the headers of a request, counted from the start of the
    connection or the end of the last response. The remainder of a body that was refused does not count. A client has
    `read_patience` to read more of a response. Where there are too many connections, the one that has waited longest
    for a request is closed.
    """

    settings: Settings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request if the limits allow another connection, otherwise refuse it."""
        super().connection_made(transport)
        now = self.loop.time()
        self._client_key = client_key(self.client[0] if self.client else "")
        self._idle_since = now  # infinity while a request is answered
        self._unread, self._read_at = 0, now
        self._interval = min(1.0, self.settings.head_patience / 4, self.settings.read_patience / 4)
        self._check = self.loop.call_later(self._interval, self._check_patience)
        if not self._has_room():
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the checks of the connection."""
        self._check.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle the requests that are complete."""
        super().handle_events()
        if not getattr(self.cycle, "response_complete", True):
            self._idle_since = inf

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have arrived already."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _check_patience(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size()
        if unread != self._unread or not unread:
            self._unread, self._read_at = unread, now
        idle_since = now if unread else self._idle_since
        if now - self._read_at > self.settings.read_patience or now - idle_since > self.settings.head_patience:
            self._end()
        else:
            self._check = self.loop.call_later(self._interval, self._check_patience)

    def _has_room(self) -> bool:
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, _Protocol) and connection is not self
        ]
        same_client = [connection for connection in others if connection._client_key == self._client_key]
        limits = [(same_client, self.settings.max_client_connections), (others, self.settings.max_connections)]
        for held, limit in limits:
            if len(held) >= limit:
                idle = {
                    connection._idle_since: connection
                    for connection in held
                    if connection._is_idle() and connection in self.connections
                }
                if not idle:
                    return False
                idle[min(idle)]._end()
        return True

    def _is_idle(self) -> bool:
        return self._idle_since < inf and not self.transport.get_write_buffer_size()

    def _end(self) -> None:
        self.connections.discard(self)  # the transport reports its end only later
        self.transport.abort()


def protocol_for(settings: Settings) -> type[asyncio.Protocol]:
    """Return the protocol class of a server with these settings, for uvicorn."""
    return type("Protocol", (_Protocol,), {"settings": settings})

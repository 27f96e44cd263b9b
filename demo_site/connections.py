"""Connections that a server ends by itself: of clients who do not ask, do not read, or hold too many."""

from __future__ import annotations

import asyncio
from math import inf

from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import client_key
from .settings import Settings

__all__ = ["protocol_for"]

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Protocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with limits to how long and how often a client may hold a connection.

    A client has `head_patience` to send the first line and the headers of a request, counted from the start of the
    connection or the end of the last answer. What it sends on of a body that nobody wants counts as nothing. It has
    `read_patience` to take something more of an answer. Where there are too many connections, the one that has waited
    longest for a request makes room.
    """

    settings: Settings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if there is room for another connection."""
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
        """Forget the connection."""
        self._check.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Answer the requests that are complete."""
        super().handle_events()
        if not getattr(self.cycle, "response_complete", True):
            self._idle_since = inf

    def on_response_complete(self) -> None:
        """Wait for the next request; it may be there already."""
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
        others = [one for one in self.connections if isinstance(one, _Protocol) and one is not self]
        same_client = [one for one in others if one._client_key == self._client_key]
        limits = [(same_client, self.settings.max_client_connections), (others, self.settings.max_connections)]
        for held, most in limits:
            if len(held) >= most:
                idle = {one._idle_since: one for one in held if one._is_idle() and one in self.connections}
                if not idle:
                    return False
                idle[min(idle)]._end()
        return True

    def _is_idle(self) -> bool:
        return self._idle_since < inf and not self.transport.get_write_buffer_size()

    def _end(self) -> None:
        self.connections.discard(self)  # the transport tells of its end only later
        self.transport.abort()


def protocol_for(settings: Settings) -> type[asyncio.Protocol]:
    """The protocol of a server with these settings, for uvicorn."""
    return type("Protocol", (_Protocol,), {"settings": settings})

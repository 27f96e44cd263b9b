"""`Guard`: checks every request before the application sees it, and adds the security headers to every response."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .addresses import route_path
from .errors import ApiError, error_response
from .pyodide import PYODIDE_CDN, has_packages
from .settings import Rate, Settings, is_loopback

__all__ = ["Buckets", "Guard", "client_key", "content_security_policy", "security_headers"]

_LOG = logging.getLogger(__name__)
_PIECE = 64 << 10  # bytes of a response that are sent at once
_SAFE = {"GET", "HEAD", "OPTIONS"}


def content_security_policy(
    uses_cdn: bool, frame_ancestors: Sequence[str] = (), *, in_page: bool = False, has_packages: bool = False
) -> str:
    """Return a policy that allows content of this server, and Pyodide of its CDN where it is not installed.

    Args:
        uses_cdn: Pyodide is not installed.
        frame_ancestors: sites that may embed a page in a frame; () allows none.
        in_page: for a page that states its policy itself, where browsers ignore the rule for frames.
        has_packages: the packages of Pyodide's distribution that programs import, such as NumPy, are installed too.
    """
    packages = "" if has_packages else f" {PYODIDE_CDN}"
    cdn = f" {PYODIDE_CDN}" if uses_cdn else ""
    directives = {
        "default-src": "'none'",
        "script-src": f"'self' 'wasm-unsafe-eval'{cdn}",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": f"'self'{packages}",
        "worker-src": "'self'",
        "font-src": "'self'",
        "manifest-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(frame_ancestors) or "'none'",
    }
    if in_page:
        del directives["frame-ancestors"]
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


def security_headers(settings: Settings) -> dict[str, str]:
    """Return the headers of every response."""
    return {
        "Content-Security-Policy": content_security_policy(
            settings.pyodide is None, settings.frame_ancestors, has_packages=has_packages(settings.pyodide)
        ),
        # Both together enable SharedArrayBuffer, which is needed to interrupt a running program.
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
        # An isolated page can embed only content that allows other origins.
        "Cross-Origin-Resource-Policy": "cross-origin" if settings.frame_ancestors else "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    }


class Buckets:
    """A token bucket for each client; those not seen for the longest time are dropped."""

    _MOST = 4096

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str) -> float:
        """Take a token and return 0.0, or return the seconds until there is one."""
        now = self._clock()
        level, since = self._levels.pop(client, (float(self._rate.burst), now))
        level = min(self._rate.burst, level + (now - since) * self._rate.per_second)
        has_token = level >= 1
        self._levels[client] = (level - has_token, now)
        if len(self._levels) > self._MOST:
            self._levels.popitem(last=False)
        return 0.0 if has_token else (1 - level) / self._rate.per_second


class Guard:
    """The outermost layer: Host, origin, rates and sizes of requests; headers of responses; HEAD; unexpected errors."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        clock = settings.clock or time.monotonic
        self._app = app
        self._settings = settings
        self._headers = security_headers(settings)
        self._names = {settings.host.lower(), *settings.allowed_hosts}
        self._requests = Buckets(settings.rate, clock)
        self._writes = Buckets(settings.write_rate, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        has_started = False
        body = _Body(receive, self._limit(scope), self._settings)

        async def send_guarded(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = body.is_complete = True  # the remainder of the body is not waited for
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)  # the reference has a policy of its own
                if route_path(scope).startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            for piece in _pieces(message):
                await send(piece)

        # A handler for GET answers HEAD too, with the same headers.
        inner = {**scope, "method": "GET", "state": {**scope.get("state", {}), "is_head": True}} if is_head else scope
        try:
            answer = self._refusal(scope)
            if answer is None:
                await self._app(inner, body, send_guarded)
            else:
                await answer(inner, receive, send_guarded)
        except ClientDisconnect:
            return  # the client is gone
        except Exception:
            if has_started:
                raise
            _LOG.exception("%s %r failed", scope["method"], scope["path"])
            await error_response(500, "internal_error", "The server failed; see its log.")(inner, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_ours(headers.get("host", "")):
            return error_response(421, "unknown_host", "This server does not accept that host name; see --allow-host.")
        # Pages of other sites or ports must not use the API.
        if route_path(scope).startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return error_response(403, "cross_site", "The API refuses requests from other sites.")
        client = client_key(scope["client"][0] if scope.get("client") else "")
        wait = self._requests.wait(client)
        if not wait and scope["method"] not in _SAFE:
            wait = self._writes.wait(client)
        if wait:
            seconds = math.ceil(wait)
            message = f"Too many requests; try again in {seconds} s."
            return error_response(429, "too_many_requests", message, {"Retry-After": str(seconds)})
        return None

    def _is_ours(self, host: str) -> bool:
        """Return True if the Host header is one that this server's own pages send.

        Another site can let its own name resolve to this machine (DNS rebinding); its requests then have that name.
        """
        name = _without_port(host).lower()
        if is_loopback(name) or name in self._names:
            return True
        return not self._settings.is_local and _is_address(name)

    def _limit(self, scope: Scope) -> int:
        is_checkpoint = scope["method"] == "PUT" and scope["path"].endswith("/checkpoint")
        return self._settings.max_checkpoint if is_checkpoint else self._settings.max_json


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message, with a large body in pieces, between which the server waits until the client has read.

    A body sent as a whole would be copied for each client, and the copy held until the client has read it.
    """
    body = message.get("body", b"")
    if len(body) <= _PIECE:
        yield message
        return
    for end in range(_PIECE, len(body) + _PIECE, _PIECE):
        is_last = end >= len(body) and not message.get("more_body", False)
        yield {**message, "body": body[end - _PIECE : end], "more_body": not is_last}


def _without_port(host: str) -> str:
    """Return the name of a Host header, or "" where that is malformed."""
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::\d*)?", host)
    return (match[1] or match[2] or "") if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def client_key(host: str) -> str:
    """Return the key by which a client is counted: its IPv4 address, or the IPv6 network of 64 bits of a customer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


class _Body:
    """A `receive` that limits the size of a body, whatever its Content-Length says, and the time that it takes."""

    def __init__(self, receive: Receive, limit: int, settings: Settings) -> None:
        self._receive, self._limit = receive, limit
        self._patience, self._rate = settings.body_patience, settings.least_body_rate
        self._size, self._waited = 0, 0.0
        self.is_complete = False

    async def __call__(self) -> Message:
        """Return the next message of the body, or, after the last, the client's disconnection.

        Raises:
            ApiError: the body is too large, or arrives too slowly.
        """
        if self.is_complete:
            return await self._receive()
        started = time.monotonic()
        try:
            async with asyncio.timeout(min(self._patience, self._patience + self._size / self._rate - self._waited)):
                message = await self._receive()
        except TimeoutError:
            reason = f"The body stalled, or arrived at less than {self._rate:,} bytes per second."
            raise ApiError(408, "too_slow", reason, {"Connection": "close"}) from None
        self._waited += time.monotonic() - started
        self._size += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        if self._size > self._limit:
            raise ApiError(413, "too_large", f"The body is larger than the limit of {self._limit:,} bytes.")
        return message

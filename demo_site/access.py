"""Access to operations that write: they require the token, which the server's own pages receive from it."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from .errors import ApiError, documented
from .settings import Settings, is_loopback

__all__ = ["SettingsOf", "WithToken", "session_routes"]


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


SettingsOf = Annotated[Settings, Depends(_settings)]
"""The settings of the server, for the arguments of an operation."""

_bearer = HTTPBearer(auto_error=False, description="The token that `optirs-web demo` prints.")


def _require_token(
    settings: SettingsOf, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> None:
    # Compared as bytes in constant time: text would have to be ASCII.
    if credentials is None or not secrets.compare_digest(credentials.credentials.encode(), settings.token.encode()):
        message = "Send the token that `optirs-web demo` printed: `Authorization: Bearer TOKEN`."
        raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


WithToken = Depends(_require_token)
"""A dependency that refuses with 401 before the body is read."""


class Session(BaseModel):
    """The token that a page needs to write."""

    token: str


session_routes = APIRouter(prefix="/api", tags=["session"])


@session_routes.get("/session", responses=documented())
def session(request: Request, settings: SettingsOf) -> Session:
    """Give this server's own pages the token, on the machine that runs the server.

    The browser sets Sec-Fetch-Site, and no page can. From another machine the token has to be typed.
    """
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise ApiError(403, "not_same_origin", "Only this server's own pages may read the token.")
    if request.client is None or not is_loopback(request.client.host):
        message = "This server runs on another machine: enter the token that `optirs-web demo` printed there."
        raise ApiError(403, "not_local", message)
    return Session(token=settings.token)

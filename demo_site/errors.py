"""Errors of the server: as JSON for programs, as a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from .addresses import root_from, route_path
from .rendering import Renderer

__all__ = ["ApiError", "ErrorBody", "documented", "error_response", "install_handlers"]


_LONGEST = 500


class ErrorDetail(BaseModel):
    """An error code for programs and a sentence for people."""

    code: str
    message: str


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorDetail


class ApiError(HTTPException):
    """An error response: its status, a code for programs, and a sentence that says what to do."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


def error_response(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as JSON. A message may quote the client, so it is truncated, and escaped where not UTF-8."""
    message = message[:_LONGEST].encode("utf-8", "backslashreplace").decode()
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


_MEANINGS = {
    400: "The request cannot be read",
    401: "Missing or wrong token",
    403: "Refused for pages of other sites",
    404: "Not found",
    408: "The client stopped sending",
    409: "A quota is exceeded",
    413: "The body is too large",
    415: "Unsupported content type",
    421: "The Host header names another site",
    422: "Invalid content",
    429: "Too many requests; Retry-After gives the delay",
    503: "The server is busy; Retry-After gives the delay",
    507: "The server's disk is full",
}
_EVERYWHERE = (403, 421, 429)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an operation for the OpenAPI description, with those that every operation has."""
    return {
        status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in sorted({*statuses, *_EVERYWHERE})
    }


def install_handlers(app: FastAPI, renderer: Renderer, operations: Sequence[APIRoute]) -> None:
    """Install the handlers that turn the errors of an application into responses."""

    def methods_of(path: str) -> str:
        """Return the header Allow; the framework lists the methods of the path's first operation only."""
        methods = {
            method for operation in operations if operation.path_regex.match(path) for method in operation.methods or ()
        }
        return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, status = route_path(request.scope), error.status_code
        message = error.detail if isinstance(error, ApiError) or status != 404 else f"There is nothing at {path}."
        headers = dict(error.headers or {})
        if status == 405 and path.startswith("/api/"):
            headers["Allow"] = methods_of(path)
        if not path.startswith("/api/") and "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(renderer.error(status, message, root_from(request.scope)), status, headers)
        code = error.code if isinstance(error, ApiError) else HTTPStatus(status).name.lower()
        return error_response(status, code, message, headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()]
        return error_response(422, "invalid_request", "; ".join(problems[:5]))

    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(RequestValidationError, on_invalid)

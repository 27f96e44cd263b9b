"""The API of benchmark results, which pages and programs post."""

from __future__ import annotations

import json
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from .access import WithToken
from .errors import ApiError, documented
from .runs import StoreOf, disk

__all__ = ["bench_routes"]


class BenchResult(BaseModel):
    """A posted result, with its number and the time."""

    id: int
    created: str
    result: dict[str, Any]


_TYPE = "application/json"

bench_routes = APIRouter(prefix="/api/bench", tags=["bench"])


@bench_routes.post(
    "",
    status_code=201,
    response_model=BenchResult,
    responses=documented(401, 408, 413, 415, 422, 507),
    dependencies=[WithToken],
    openapi_extra={"requestBody": {"required": True, "content": {_TYPE: {"schema": {"type": "object"}}}}},
)
async def post_result(request: Request, store: StoreOf) -> Response:
    """Save a result: any JSON object. Above the limit the oldest are deleted."""
    # FastAPI would read a declared body before it asks for the token.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise ApiError(415, "not_json", f"Send the result as {_TYPE}.")
    text = _checked(await request.body())
    with disk():
        number, created = await to_thread.run_sync(store.add_result, text)
    return _json(_object(number, created, text), 201)


def _checked(body: bytes) -> str:
    """Return the JSON object of a body as ASCII text.

    Raises:
        ApiError: the body is not a JSON object.
    """
    try:
        result = json.loads(body)
        text = json.dumps(result, allow_nan=False)
    except (ValueError, RecursionError):
        message = "The body is not JSON in UTF-8, contains a non-finite number, or is nested too deeply."
        raise ApiError(422, "invalid_request", message) from None
    if not isinstance(result, dict):
        raise ApiError(422, "invalid_request", "The result must be a JSON object.")
    return text


@bench_routes.get("", response_model=list[BenchResult], responses=documented())
def list_results(store: StoreOf) -> Response:
    """All saved results, newest first."""
    return _json(f"[{', '.join(_object(*result) for result in store.results())}]")


def _object(number: int, created: str, result: str) -> str:
    """Return a `BenchResult` as JSON; its result is inserted as it was saved, in ASCII."""
    return f'{{"id": {number}, "created": "{created}", "result": {result}}}'


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")

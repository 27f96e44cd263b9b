"""Benchmark results that pages and programs post."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from .access import WithToken
from .errors import ApiError, documented
from .runs import StoreOf

__all__ = ["bench_routes"]


class BenchResult(BaseModel):
    """A result as it was posted, with its number and when it came."""

    id: int
    created: str
    result: dict[str, Any]


bench_routes = APIRouter(prefix="/api/bench", tags=["bench"])


@bench_routes.post(
    "",
    status_code=201,
    response_model=BenchResult,
    responses=documented(400, 401, 413, 422),
    dependencies=[WithToken],
)
def post_result(result: dict[str, Any], store: StoreOf) -> Response:
    """Keep a result: any JSON object. The oldest ones make room."""
    try:
        text = json.dumps(result, allow_nan=False)
    except (ValueError, RecursionError):
        raise ApiError(422, "invalid_request", "Numbers are finite, and objects are not nested so deeply.") from None
    number, created = store.add_result(text)
    return _json(_object(number, created, text), 201)


@bench_routes.get("", response_model=list[BenchResult], responses=documented())
def list_results(store: StoreOf) -> Response:
    """All results that are kept, the newest first."""
    return _json(f"[{', '.join(_object(*one) for one in store.results())}]")


def _object(number: int, created: str, result: str) -> str:
    """A `BenchResult`; its result is sent as it was kept, in ASCII."""
    return f'{{"id": {number}, "created": "{created}", "result": {result}}}'


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")

"""The API of runs and their checkpoints: one safetensors file per name, exchanged by pages and native programs."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any, BinaryIO

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

import optirs_web as ow

from ..checkpoints import checkpoint_notes
from .access import SettingsOf, WithToken
from .errors import ApiError, documented
from .store import Run, Store, StoreFullError, Summary, Upload

__all__ = ["StoreOf", "disk", "run_routes"]

_TYPE = "application/octet-stream"
_BLOCK = 1 << 20
_SENT = 256 << 10
_MAX_HEADER = 4 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_INDEX_FULL = {"SQLITE_FULL", "SQLITE_IOERR_WRITE"}
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

RunName = Annotated[str, Path(pattern=_NAME, description="Letters, digits, `.`, `_` and `-`; at most 64.")]


class RunInfo(BaseModel):
    """A run. `step`, `epoch` and `optimizer` come from its checkpoint; null where it has none."""

    name: str
    size: int
    sha256: str
    created: str
    updated: str
    step: int | None
    epoch: int | None
    optimizer: str | None


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


StoreOf = Annotated[Store, Depends(_store)]
"""The store of the server, for the arguments of an operation."""

run_routes = APIRouter(prefix="/api/runs", tags=["runs"])


def _info(run: Run) -> RunInfo:
    return RunInfo(**run._asdict())


def _no_such_run(name: str) -> ApiError:
    return ApiError(404, "no_such_run", f"There is no run '{name}'.")


@run_routes.get("", responses=documented())
def list_runs(store: StoreOf) -> list[RunInfo]:
    """All runs, most recently written first."""
    return [_info(run) for run in store.runs()]


@run_routes.get("/{name}", responses=documented(404, 422))
def get_run(name: RunName, store: StoreOf) -> RunInfo:
    """One run."""
    run = store.run(name)
    if run is None:
        raise _no_such_run(name)
    return _info(run)


@run_routes.delete("/{name}", status_code=204, responses=documented(401, 404, 422, 507), dependencies=[WithToken])
def delete_run(name: RunName, store: StoreOf) -> None:
    """Delete a run and its checkpoint."""
    with disk():
        is_deleted = store.delete(name)
    if not is_deleted:
        raise _no_such_run(name)


_BYTES = {"content": {_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


class _OpenFile(StreamingResponse):
    """Sends an open file and closes it, also after errors. Ranges are not served, since no client here needs them."""

    def __init__(self, file: BinaryIO, size: int, headers: Mapping[str, str]) -> None:
        blocks = iter(partial(file.read, _SENT), b"")
        super().__init__(blocks, headers={**headers, "Content-Length": str(size)}, media_type=_TYPE)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file and close it; for HEAD it is not read."""
        if scope.get("state", {}).get("is_head"):
            self.body_iterator = iterate_in_threadpool(())
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


@run_routes.get(
    "/{name}/checkpoint",
    response_class=Response,
    responses={
        200: {"description": "A safetensors file", **_BYTES},
        304: {"description": "The client has this file"},
        **documented(404, 422),
    },
)
def get_checkpoint(name: RunName, request: Request, store: StoreOf) -> Response:
    """The checkpoint of a run; its entity tag is the SHA-256 of the file."""
    opened = store.open(name)
    if opened is None:
        raise _no_such_run(name)
    run, file = opened
    etag = f'"{run.sha256}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    header = request.headers.get("if-none-match", "")
    if etag in (tag.strip().removeprefix("W/") for tag in header.split(",")):
        file.close()
        return Response(status_code=304, headers=headers)
    return _OpenFile(file, run.size, headers)


@run_routes.put(
    "/{name}/checkpoint",
    dependencies=[WithToken],
    response_model=RunInfo,
    responses={
        201: {"model": RunInfo, "description": "A new run"},
        **documented(400, 401, 408, 409, 413, 415, 422, 507),
    },
    openapi_extra={"requestBody": {"required": True, **_BYTES}},
)
async def put_checkpoint(
    name: RunName, request: Request, response: Response, store: StoreOf, settings: SettingsOf
) -> RunInfo:
    """Replace the checkpoint of a run atomically, or create the run.

    The body is a safetensors file of `ow.save_checkpoint` or `ow.dump_checkpoint`.
    """
    kind = request.headers.get("content-type", _TYPE).partition(";")[0].strip().lower()
    if kind != _TYPE or "content-encoding" in request.headers:
        raise ApiError(415, "not_binary", f"Send the file unencoded, as {_TYPE}.")
    _check_length(request, settings.max_checkpoint)
    async with _upload_slot(request):
        with disk():
            upload = await to_thread.run_sync(store.begin)
            try:
                await _receive(request, upload)
                summary = await to_thread.run_sync(_summary, upload)
                run, is_new = await to_thread.run_sync(store.keep, name, upload, summary)
            finally:
                upload.discard()
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = f'"{run.sha256}"'
    return _info(run)


def _check_length(request: Request, limit: int) -> None:
    """Refuse a body whose Content-Length is too large; a missing or wrong one is checked while the body is received."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise ApiError(413, "too_large", f"The checkpoint is larger than the limit of {limit:,} bytes.")


@asynccontextmanager
async def _upload_slot(request: Request) -> AsyncIterator[None]:
    """Hold an upload slot in the block; requests do not wait for one, since slow clients could keep them for long."""
    slots: asyncio.Semaphore = request.app.state.upload_slots
    if slots.locked():
        message = "Too many checkpoints are being received; try again in a moment."
        raise ApiError(429, "too_many_uploads", message, {"Retry-After": "2"})
    async with slots:
        yield


@contextmanager
def disk() -> Iterator[None]:
    """Turn errors of the disk and the quotas in the block into responses.

    Raises:
        ApiError: 409 for a quota, 507 for a full disk.
    """
    try:
        yield
    except StoreFullError as error:
        raise ApiError(409, "quota_exceeded", f"{error}.") from error
    except (OSError, sqlite3.OperationalError) as error:
        if getattr(error, "errno", None) in _FULL or getattr(error, "sqlite_errorname", "") in _INDEX_FULL:
            raise ApiError(507, "disk_full", "The server's disk is full; nothing was changed.") from error
        raise


async def _receive(request: Request, upload: Upload) -> None:
    """Write the body to the upload, block by block.

    Raises:
        ClientDisconnect: the client went away.
        ApiError: the body is too large, or stalled.
    """
    block = bytearray()
    async for chunk in request.stream():  # ends with an empty one
        block += chunk
        if block and (not chunk or len(block) >= _BLOCK):
            await to_thread.run_sync(upload.write, bytes(block))
            block.clear()


def _summary(upload: Upload) -> Summary:
    """Return the step, the epoch and the optimizer that a complete upload names.

    Raises:
        ApiError: it is no checkpoint of optirs-web.
    """
    upload.finish()
    content = upload.path.read_bytes()
    invalid = partial(ApiError, 422, "not_a_checkpoint")
    header = int.from_bytes(content[:8], "little")
    if _MAX_HEADER < header < upload.size:
        # JSON takes many times its length in memory.
        raise invalid(f"The file's header has {header:,} bytes; the limit is {_MAX_HEADER:,}.")
    try:
        notes = checkpoint_notes(content)
    except ow.errors.CheckpointError as error:
        raise invalid(f"{error}.") from None
    # A file may hold anything here; values of other types are left out.
    history = notes.extra.get("history")  # of the digits run: one entry for each epoch
    epoch = notes.extra.get("epoch", len(history) if isinstance(history, list) else None)
    return Summary(_count(notes.extra.get("step")), _count(epoch), _class_name(notes.optimizer))


def _class_name(value: str) -> str | None:
    return value if value.isascii() and value.isidentifier() and len(value) <= 64 else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_count else None

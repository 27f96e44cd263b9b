"""Responses for files and content that change only when they are built: entity tags, gzip, no path traversal."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .errors import ApiError

__all__ = ["Content", "OpenFile", "prepare_file", "respond", "send_file"]

# Not Python's table, which depends on the operating system's registry.
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".ts": "text/plain",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".wgsl": "text/plain",
    ".whl": "application/zip",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
_MINIMUM_TO_PACK = 1024
_BLOCK = 256 << 10
_packing = Lock()


def _packs(media_type: str) -> bool:
    """Return True for text and code, and False for what is compressed already."""
    return media_type.startswith("text/") or media_type in ("application/json", "application/wasm", "image/svg+xml")


class OpenFile(StreamingResponse):
    """Sends an open file and closes it, also after errors. Ranges are not served, since no client here needs them."""

    def __init__(self, file: BinaryIO, size: int, media_type: str, headers: Mapping[str, str]) -> None:
        blocks = iter(partial(file.read, _BLOCK), b"")
        super().__init__(blocks, headers={**headers, "Content-Length": str(size)}, media_type=media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file and close it; for HEAD it is not read."""
        if scope.get("state", {}).get("is_head"):
            self.body_iterator = iterate_in_threadpool(())
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


class Content:
    """Bytes with their media type. They are hashed once, and compressed once where that saves space."""

    def __init__(self, body: bytes, media_type: str, *, packs: bool | None = None) -> None:
        self.body = body
        self.media_type = media_type
        self._packs = _packs(media_type) if packs is None else packs

    @cached_property
    def etag(self) -> str:
        """The entity tag; it is weak, since the compressed form has the same tag."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes | None:
        """The body compressed by gzip; None where that saves too little."""
        if not self._packs or len(self.body) < _MINIMUM_TO_PACK:
            return None
        return gzip.compress(self.body, 6, mtime=0)


def _is_current(request: Request, etag: str) -> bool:
    header = request.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return header.strip() == "*" or etag.removeprefix("W/") in tags


def _accepts_gzip(request: Request) -> bool:
    for entry in request.headers.get("accept-encoding", "").split(","):
        coding, _, weight = entry.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def respond(request: Request, content: Content) -> Response:
    """Return the content, or 304 if the client has it. Clients ask each time, since builds keep the addresses."""
    headers = {"ETag": content.etag, "Cache-Control": "no-cache"}
    if content.packed is not None:
        headers["Vary"] = "Accept-Encoding"
    if _is_current(request, content.etag):
        return Response(status_code=304, headers=headers)
    if content.packed is not None and _accepts_gzip(request):
        return Response(content.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=content.media_type)
    return Response(content.body, headers=headers, media_type=content.media_type)


@lru_cache(maxsize=256)
def _read(path: Path, modified: int, size: int) -> Content:
    return Content(path.read_bytes(), _TYPES[path.suffix])


def _packed_file(path: Path, stat: os.stat_result) -> Content:
    with _packing:  # concurrent requests wait and do not compress it again
        content = _read(path, stat.st_mtime_ns, stat.st_size)
        _ = content.packed
    return content


def prepare_file(path: Path) -> None:
    """Compress a file now, so that the first request need not wait; a file that does not exist is ignored."""
    if path.is_file():
        _packed_file(path, path.stat())


def find_file(folder: Path, address: str) -> Path:
    """Return the file at an address within a folder; addresses that lead out of the folder are refused.

    Raises:
        ApiError: there is no such file.
    """
    missing = ApiError(404, "not_found", f"There is no file '{address[:200]}' here.")
    parts = PurePosixPath(address).parts
    # No parent folders, drive letters, streams, device files or hidden files.
    if not parts or any(part.startswith(".") or set(part) & set("\\:\0/") for part in parts):
        raise missing
    path = folder.joinpath(*parts)
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
        if not is_inside or not path.is_file():
            raise missing
    except (OSError, ValueError):  # a name that is too long, for one
        raise missing from None
    return path


def send_file(request: Request, folder: Path, address: str) -> Response:
    """Return a response with a file of the folder: compressible files from memory, others from the disk."""
    path = find_file(folder, address)
    stat = path.stat()
    media_type = _TYPES.get(path.suffix, "application/octet-stream")
    if _packs(media_type):
        return respond(request, _packed_file(path, stat))
    etag = f'W/"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if _is_current(request, etag):
        return Response(status_code=304, headers=headers)
    return OpenFile(path.open("rb"), stat.st_size, media_type, headers)

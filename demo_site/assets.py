"""Responses for files and content that change only when they are built: entity tags, gzip, no path traversal.

Starlette finds the files of a folder, and sends those that are compressed already, also in ranges.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Receive, Scope, Send

from .errors import ApiError

__all__ = ["Content", "Files", "file_content", "respond"]

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
_NO_CACHE = {"Cache-Control": "no-cache"}
_packing = Lock()


def _packs(media_type: str) -> bool:
    """Return True for text and code, and False for what is compressed already."""
    return media_type.startswith("text/") or media_type in ("application/json", "application/wasm", "image/svg+xml")


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
    headers = {"ETag": content.etag, **_NO_CACHE}
    if content.packed is not None:
        headers["Vary"] = "Accept-Encoding"
    if _is_current(request, content.etag):
        return Response(status_code=304, headers=headers)
    if content.packed is not None and _accepts_gzip(request):
        return Response(content.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=content.media_type)
    return Response(content.body, headers=headers, media_type=content.media_type)


@lru_cache(maxsize=256)
def _read(path: Path, modified: int, size: int) -> Content:
    return Content(path.read_bytes(), _media_type(path))


def _media_type(path: Path) -> str:
    return _TYPES.get(path.suffix, "application/octet-stream")


def _is_compressible(path: Path) -> bool:
    return _packs(_media_type(path))


def file_content(path: Path) -> Content:
    """Return the content of a file, hashed and compressed; the file is read again once it has changed."""
    status = path.stat()
    with _packing:  # concurrent requests wait and do not compress it again
        content = _read(path, status.st_mtime_ns, status.st_size)
        _ = content.etag, content.packed
    return content


class Files(StaticFiles):
    """The files of a folder, for a route with a parameter `path`: compressible files from memory, others from the disk.

    Args:
        folder: it may be made later.
        headers: for each response with a file.
    """

    def __init__(self, folder: Path, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.config_checked = True  # until the folder is made, it has no files
        self._headers = {**_NO_CACHE, **(headers or {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. HEAD, for which the application sees GET, reads no file."""
        if scope.get("state", {}).get("is_head"):
            scope = {**scope, "method": "HEAD"}
        await super().__call__(scope, receive, send)

    def get_path(self, scope: Scope) -> str:
        """Return the path of the requested file relative to the folder, as it was sent."""
        return str(scope["path_params"]["path"])

    def lookup_path(self, path: str) -> tuple[str, os.stat_result]:
        """Return a file's full path and status. This runs in a thread, so the file is compressed here.

        Raises:
            ApiError: there is no such file, or it is hidden or outside the folder.
        """
        missing = ApiError(404, "not_found", f"There is no file '{path[:200]}' here.")
        # No parent folders, drive letters, streams, device files or hidden files.
        if any(name.startswith(".") or set(name) & set("\\:\0") for name in path.split("/")):
            raise missing
        full_path, status = super().lookup_path(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise missing
        if _is_compressible(Path(full_path)):
            file_content(Path(full_path))
        return full_path, status

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return the response with a file, or 304 if the client has it."""
        path = Path(full_path)
        if _is_compressible(path):
            response = respond(Request(scope), _read(path, stat_result.st_mtime_ns, stat_result.st_size))
            response.headers.update(self._headers)
            return response
        response = FileResponse(path, status_code, self._headers, _media_type(path), stat_result=stat_result)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response

"""Answers for content that stays the same until someone builds it anew: entity tags, gzip for text, no traversal."""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from .errors import ApiError

__all__ = ["Content", "respond", "send_file"]

# Not Python's table, which the operating system's registry changes.
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


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in ("application/json", "image/svg+xml")


class Content:
    """Bytes with their type. They are hashed once, and packed once where that pays."""

    def __init__(self, body: bytes, media_type: str, *, packs: bool | None = None) -> None:
        self.body = body
        self.media_type = media_type
        self._packs = _is_text(media_type) if packs is None else packs

    @cached_property
    def etag(self) -> str:
        """Weak, since the packed form has the same."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @cached_property
    def packed(self) -> bytes | None:
        """The body with gzip, or None where that saves too little."""
        if not self._packs or len(self.body) < _MINIMUM_TO_PACK:
            return None
        return gzip.compress(self.body, 6, mtime=0)


def _is_current(request: Request, etag: str) -> bool:
    asked = request.headers.get("if-none-match", "")
    known = {one.strip().removeprefix("W/") for one in asked.split(",")}
    return asked.strip() == "*" or etag.removeprefix("W/") in known


def _accepts_gzip(request: Request) -> bool:
    for one in request.headers.get("accept-encoding", "").split(","):
        coding, _, weight = one.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def respond(request: Request, content: Content) -> Response:
    """The content, or 304 where the client has it. Clients ask each time: a build changes it under the same address."""
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


def find_file(folder: Path, address: str) -> Path:
    """The file of that address, which lies in the folder whatever the address says.

    Raises:
        ApiError: there is no such file.
    """
    missing = ApiError(404, "not_found", f"There is no file '{address[:200]}' here.")
    parts = PurePosixPath(address).parts
    # Dots that lead upwards, drive letters, streams, device files and hidden files.
    if not parts or any(one.startswith(".") or set(one) & set("\\:\0/") for one in parts):
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
    """A file of the folder: text from memory, packed; anything else from the disk."""
    path = find_file(folder, address)
    stat = path.stat()
    media_type = _TYPES.get(path.suffix, "application/octet-stream")
    if _is_text(media_type):
        return respond(request, _read(path, stat.st_mtime_ns, stat.st_size))
    etag = f'W/"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if _is_current(request, etag):
        return Response(status_code=304, headers=headers)
    return FileResponse(path, headers=headers, media_type=media_type, stat_result=stat)

"""The library's wheel for the browser, made from what is installed: the page runs the code that serves it."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path

import optirs_web as ow

__all__ = ["library_wheel", "wheel_name"]

_LEFT_OUT = {"cli", "datasets", "demo_site", "training", "__pycache__", "__main__.py"}
_SUFFIXES = {".js", ".py", ".typed", ".wgsl"}
# In an editable install these lie elsewhere.
_MAPPED = ("native_backends", "shaders")


def wheel_name() -> str:
    """The file name, in the form that installers want."""
    return f"optirs_web-{ow.__version__}-py3-none-any.whl"


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir():
            yield from _walk(path, f"{prefix}/{path.name}")
        elif path.suffix in _SUFFIXES:
            yield f"{prefix}/{path.name}", path


def _sources() -> dict[str, Path]:
    """Every file of the library by its name in the wheel."""
    sources: dict[str, Path] = {}
    for package in ("optirs_web", *(f"optirs_web.{name}" for name in _MAPPED)):
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or [] if spec else []:
            sources.update(_walk(Path(folder), package.replace(".", "/")))
    return sources


def library_wheel() -> bytes:
    """The wheel. It is made again when a file has changed, as in an editable install."""
    sources = _sources()
    state = tuple((path, path.stat().st_mtime_ns) for path in sources.values())
    return _build(tuple(sources.items()), state)


@lru_cache(maxsize=1)
def _build(sources: tuple[tuple[str, Path], ...], state: tuple[tuple[Path, int], ...]) -> bytes:
    about = metadata("optirs-web")
    note = f"{wheel_name().removesuffix('-py3-none-any.whl')}.dist-info"
    contents = {name: path.read_bytes() for name, path in sources}
    contents[f"{note}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: optirs-web\nVersion: {about['Version']}\nSummary: {about['Summary']}\n"
    ).encode()
    contents[f"{note}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: optirs-web\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},sha256={_digest(body)},{len(body)}\n" for name, body in contents.items())
    contents[f"{note}/RECORD"] = f"{record}{note}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, body in contents.items():
            # ZipInfo has a fixed date: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()

"""The library's wheel, made from what is installed, so that a page runs the code that serves it.

It holds the files that `make wheel` packs, as they are, and installs natively, in a page, in JupyterLite and in
PyScript. The applications have a wheel of their own, `optirs-web-demo`. The site's own pages load the copy of it that
`make pyodide` compiled, as long as that was made from the same files: their first training step is done sooner.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import zipfile
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import optirs_web as ow

from .source import package_files

__all__ = ["COMPILED", "library_wheel", "page_wheel", "wheel_name"]

COMPILED = Path(__file__).parent.with_name("build") / "pyodide"
"""The folder that `make pyodide` makes in a clone: the wheel, its compiled copy, and Pyodide's lock file."""

_APPLICATIONS = {"benchmarks", "cli", "datasets", "demo_site", "examples", "training", "translations"}
_FOLDERS = ("native_backends", "shaders")
_SUFFIXES = {".js", ".py", ".pyi", ".typed", ".wgsl"}
_METADATA = ("licenses/LICENSE", "METADATA", "WHEEL", "entry_points.txt", "top_level.txt")
_building = threading.Lock()


def wheel_name() -> str:
    """Return the file name of the wheel, in the form that installers want."""
    return f"optirs_web-{ow.__version__}-py3-none-any.whl"


def library_wheel() -> bytes:
    """Return the content of the wheel. It is made again when a file has changed, as in an editable install."""
    files = package_files(*_FOLDERS)
    sources = tuple(
        (name, path, path.stat().st_mtime_ns)
        for name, path in sorted(files.items())
        if path.suffix in _SUFFIXES and name.split("/")[1] not in _APPLICATIONS
    )
    with _building:  # a second request waits for the first one's wheel
        return _build(sources)


@lru_cache(maxsize=1)
def _build(sources: tuple[tuple[str, Path, int], ...]) -> bytes:
    """Return the wheel of files by their names; the times of their changes are a part of the cache's key alone."""
    contents = {name: path.read_bytes() for name, path, _ in sources} | _metadata()
    folder = f"optirs_web-{ow.__version__}.dist-info"
    record = "".join(f"{name},sha256={_digest(body)},{len(body)}\n" for name, body in contents.items())
    contents[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, body in contents.items():
            # ZipInfo has a fixed date: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def page_wheel(pyodide: Path | None) -> bytes:
    """Return the wheel that pages unpack: the compiled copy in `COMPILED`, or `library_wheel` itself.

    The copy is returned if it was made from the files that there are now, by the Python of this distribution: bytecode
    is valid for one version. One that is damaged, or is being made, is not returned.

    Args:
        pyodide: the Pyodide distribution that pages load; None for the one at `PYODIDE_CDN`, whose version is that of
            the npm package in which the copy was made.
    """
    wheel = library_wheel()
    try:
        lock = _lock_file(COMPILED)
        package = lock["packages"]["optirs-web"]
        copy = (COMPILED / str(package["file_name"])).read_bytes()
        is_valid = (
            (COMPILED / wheel_name()).read_bytes() == wheel
            and hashlib.sha256(copy).hexdigest() == package["sha256"]
            and (pyodide is None or _lock_file(pyodide)["info"]["python"] == lock["info"]["python"])
        )
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is no lock file
        return wheel
    return copy if is_valid else wheel


def _lock_file(folder: Path) -> Any:
    """Return the content of a Pyodide distribution's lock file.

    Raises:
        OSError: there is none.
        ValueError: it is no JSON.
    """
    return json.loads((folder / "pyodide-lock.json").read_bytes())


def _metadata() -> dict[str, bytes]:
    """Return the files of the installed package's metadata by their names in the wheel.

    Raises:
        FileNotFoundError: the installation has no such file.
    """
    # A clone has an .egg-info besides, which Python finds too where it was started there; that has no METADATA.
    installed = next(entry for entry in distributions(name="optirs-web") if entry.read_text("METADATA"))
    metadata = {}
    for name in _METADATA:
        text = installed.read_text(name)
        if text is None:
            raise FileNotFoundError(f"the installed optirs-web has no {name}; reinstall it")
        metadata[f"optirs_web-{ow.__version__}.dist-info/{name}"] = text.encode()
    return metadata


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()

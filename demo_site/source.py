"""The address of the source code: the one that the package names, or else an archive of the installed packages."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.metadata import metadata
from pathlib import Path

import optirs_web as ow

__all__ = ["package_files", "source_address", "source_archive", "source_name"]

_FOLDERS = ("shaders", "native_backends", "demo_site", "examples")
_SUFFIXES = {".css", ".html", ".js", ".json", ".md", ".mjs", ".py", ".pyi", ".toml", ".typed", ".wgsl"}
_NOT_SOURCE = {"__pycache__", "node_modules", "static"}
_TIME = (1980, 1, 1, 0, 0, 0)  # the same sources give the same archive


def source_name() -> str:
    """Return the name of the archive."""
    return f"optirs-web-{ow.__version__}.zip"


def source_address() -> str:
    """Return the address of the repository, or that of the archive relative to the site's root."""
    urls = [entry.partition(", ") for entry in metadata("optirs-web").get_all("Project-URL") or []]
    return next((url for label, _, url in urls if label == "Source"), f"source/{source_name()}")


@cache
def source_archive() -> bytes:
    """Return a ZIP archive of the packages' files below `optirs_web/`, also of those in other folders of a clone."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(package_files(*_FOLDERS).items()):
            archive.writestr(zipfile.ZipInfo(name, _TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def package_files(*folders: str) -> dict[str, Path]:
    """Return the source files of `optirs_web` by their names below `optirs_web/`.

    Args:
        folders: sub-packages that lie next to `optirs_web` in a clone, and are wanted from there too.
    """
    folder = Path(__file__).parent
    roots = {"optirs_web": Path(ow.__file__).parent}
    roots |= {f"optirs_web/{name}": folder.with_name(name) for name in folders}
    return {
        f"{name}/{path.relative_to(root).as_posix()}": path
        for name, root in roots.items()
        for path in root.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file() and _NOT_SOURCE.isdisjoint(path.relative_to(root).parts)
    }

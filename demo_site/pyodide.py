"""Pyodide, the Python of the pages: where it is, and which of its files a page loads before it runs anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["PYODIDE_CDN", "file_sizes", "has_packages", "local_pyodide", "needed_files"]

PYODIDE_CDN = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"

_SIZES_AT_CDN = {
    "pyodide.mjs": 17_931,
    "pyodide.asm.mjs": 1_250_344,
    "pyodide.asm.wasm": 9_598_218,
    "python_stdlib.zip": 2_545_637,
    "pyodide-lock.json": 119_077,
}


def local_pyodide() -> Path | None:
    """The distribution that OPTIRS_PYODIDE_DIST names, or the npm package; None where there is neither."""
    npm = Path(__file__).resolve().parent / "frontend" / "node_modules" / "pyodide"
    folder = Path(os.environ.get("OPTIRS_PYODIDE_DIST") or npm)
    return folder if (folder / "pyodide.mjs").is_file() else None


def file_sizes(folder: Path | None) -> dict[str, int]:
    """Bytes of the files that a page loads, by their names, before they are compressed for the way.

    Args:
        folder: the distribution; None for the one at `PYODIDE_CDN`.
    """
    if folder is None:
        return dict(_SIZES_AT_CDN)
    return {name: (folder / name).stat().st_size for name in _SIZES_AT_CDN if (folder / name).is_file()}


def needed_files(folder: Path) -> list[Path]:
    """Return the files of a distribution that pages need: the interpreter and, where it has them, NumPy, micropip."""
    files = [folder / name for name in _SIZES_AT_CDN]
    packages = json.loads((folder / "pyodide-lock.json").read_bytes())["packages"]
    waiting = ["numpy", "micropip"]
    for name in waiting:  # grows by what they depend on
        package = packages.get(name, {"file_name": "", "depends": []})
        files.append(folder / package["file_name"])
        waiting += [dependency for dependency in package["depends"] if dependency not in waiting]
    return [path for path in files if path.is_file()]


def has_packages(folder: Path | None) -> bool:
    """A folder is a full distribution, with the packages that programs import, not the interpreter alone."""
    return folder is not None and any(folder.glob("numpy-*.whl"))

"""The library's wheel for browsers, made from what is installed: a page runs the code that serves it.

It is the library with short sources (`shorten`) in one compressed piece, which `unpack` takes apart: files that are
compressed one by one, as in the wheel for native Python, do not profit from what they have in common.

    python -m optirs_web.demo_site.wheel FOLDER
"""

from __future__ import annotations

import base64
import hashlib
import io
import lzma
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import optirs_web as ow

from .shorten import shorten

__all__ = ["library_wheel", "wheel_name"]

_TAG = "py3-none-pyemscripten_2026_0_wasm32"  # Pyodide 314
# Names of files and folders: the applications, and the device that a browser has in place of wgpu.
_LEFT_OUT = {"cli", "datasets", "demo_site", "training", "__pycache__", "__main__.py", "wgpu.py"}
_SUFFIXES = {".js", ".py", ".wgsl"}
# In an editable install these lie elsewhere.
_MAPPED = ("native_backends", "shaders")
_ENTRY = "optirs_web/__init__.py"
_building = threading.Lock()
# Text of few different bytes: their position says nothing, the byte before much. A page keeps all memory that it ever
# took, and unpacking takes that of the dictionary.
_FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 4, "lp": 0, "pb": 0},
]


def wheel_name() -> str:
    """The file name, in the form that installers want."""
    return f"optirs_web-{ow.__version__}-{_TAG}.whl"


def library_wheel() -> bytes:
    """The wheel. It is made again when a file has changed, as in an editable install."""
    sources = _sources()
    state = tuple((path, path.stat().st_mtime_ns) for path in sources.values())
    with _building:  # whoever asks meanwhile gets this one
        return _build(tuple(sources.items()), state)


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
        folders = spec.submodule_search_locations if spec else None
        for folder in folders or ():
            sources.update(_walk(Path(folder), package.replace(".", "/")))
    return sources


@lru_cache(maxsize=1)  # `state` is a part of the key alone: a changed file makes another wheel
def _build(sources: tuple[tuple[str, Path], ...], state: tuple[tuple[Path, int], ...]) -> bytes:
    # A clone has an .egg-info besides, which Python finds too where it was started there.
    about = next(one for one in distributions(name="optirs-web") if one.read_text("METADATA"))
    note = f"optirs_web-{ow.__version__}.dist-info"
    contents = {
        _ENTRY: Path(__file__).with_name("unpack.py").read_bytes(),
        "optirs_web/library.xz": _pack(dict(sources)),
        **{f"{note}/{name}": _text(about, name) for name in ("METADATA", "licenses/LICENSE")},
        f"{note}/WHEEL": f"Wheel-Version: 1.0\nGenerator: optirs-web\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode(),
    }
    record = "".join(f"{name},sha256={_digest(body)},{len(body)}\n" for name, body in contents.items())
    contents[f"{note}/RECORD"] = f"{record}{note}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, body in contents.items():
            # ZipInfo has a fixed date: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _pack(sources: dict[str, Path]) -> bytes:
    """The archive that `unpack` reads."""
    # Like files side by side: the language first, then the folder. The entry is last, so
    # that an import that was cut off unpacks again.
    names = sorted(sources, key=lambda name: (name == _ENTRY, name.rpartition(".")[2], name))
    public = _public_names()
    texts = [shorten(name, sources[name].read_text("utf-8"), public) for name in names]
    packed = "\0".join(f"{name.removeprefix('optirs_web/')}\n{text}" for name, text in zip(names, texts, strict=True))
    return lzma.compress(packed.encode(), check=lzma.CHECK_CRC32, filters=_FILTERS)


def _public_names() -> set[str]:
    """What users call: the names of the packages, and of the modules that are names of packages."""
    names: set[str] = set()
    packages: list[ModuleType] = [ow]
    while packages:
        package = packages.pop()
        names.update(package.__all__)
        # The data sets are not in this wheel.
        members = [getattr(package, name) for name in package.__all__ if (package, name) != (ow, "datasets")]
        packages += [one for one in members if isinstance(one, ModuleType)]
    return names


def _text(about: Distribution, name: str) -> bytes:
    text = about.read_text(name)
    if text is None:
        raise FileNotFoundError(f"the installed optirs-web has no {name}; install it again")
    return text.encode()


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    wheel = Path(sys.argv[1]) / wheel_name()
    print(f"{wheel}: {wheel.write_bytes(library_wheel()):,} bytes")

"""The library's wheels for browsers, made from what is installed: a page runs the code that serves it.

One is the library with short sources (`shorten`) in one compressed piece, which `unpack` reads: files that are
compressed one by one, as in the wheel for native Python, do not profit from what they have in common. The
other adds what a page does not need before it trains: modules, convolutions, attention, optimizers of second order,
rules of one's own, profiles.

    python -m optirs_web.demo_site.wheel FOLDER
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import lzma
import re
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import optirs_web as ow

from .rename import mentioned
from .shorten import shorten

__all__ = ["library_wheel", "more_wheel", "more_wheel_name", "pack", "wheel_name"]

_TAG = "py3-none-pyemscripten_2026_0_wasm32"  # Pyodide 314
# Names of files and folders: the applications; and what a page with its one adapter does not choose between.
_LEFT_OUT = {"benchmarks", "cli", "datasets", "demo_site", "examples", "training", "translations", "__pycache__"}
_LEFT_OUT |= {"__main__.py", "choosing", "forks.py", "probe.wgsl"}
# How names of files begin of the devices and the languages that a browser has not.
_NATIVE = ("c_", "cuda", "jax", "numba_", "nvrtc", "opencl", "print_c", "wgpu", "xla")
# What is in the second wheel. Nothing of the first imports it before a user asks for it by name.
_MORE = re.compile(
    r"optirs_web/(nn|placing|profiling|tuner|runtime/(failures|recompute|subgroup_matrices|tuner|user_cache)|memory/(reports|timeline))\b"
    r"|optirs_web/native_backends/failed_steps\b"
    r"|optirs_web/(dlpack|interop/(onnx|torch))"
    r"|optirs_web/(checkpointing|custom_operation|derivatives|exhaustion|explained|gradcheck|wgsl/lint)"
    r"|optirs_web/optim/(averaging|custom|diagonal_hessian|fedprox|kfac|layer_factors|lbfgs|line_search)\b"
    r"|optirs_web/optim/(metasgd|newton_cg|projections|reptile)\b"
    r"|optirs_web/ops/(attention|convolution|convolution_products|dropouts|losses|normalization|pooling|statistics|windows)\b"
    r"|optirs_web/(precision|ops/halves|runtime/(half_types|native_halves|packed_kernels)|wgsl/packed_shell)"
    r"|optirs_web/native_backends/numpy_packed"
    r"|optirs_web/(runtime/(concatenation|large_steps|matmul_precision|saving|uses))"
    r"|optirs_web/shaders/(kernels|lib)/(attention|convolution|element_|float16|fold|layer_norm|matrices|unfold|window)"
    r"|optirs_web/shaders/(elementwise/joined|kernels/damped|optimizers/kfac)"
)
_SUFFIXES = {".js", ".py", ".wgsl"}
# In an editable install these lie elsewhere.
_MAPPED = ("native_backends", "shaders")
_ENTRY = b"from .unpack import unpack\nexec(unpack(__name__, __file__))\n"
_ABOUT_MORE = """\
Metadata-Version: 2.4
Name: optirs-web-more
Version: {version}
Summary: The part of optirs-web that a page does not need before it trains: modules, convolutions, attention, profiles
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Dist: optirs-web=={version}
Description-Content-Type: text/markdown

The part of [OptiRS-Web](https://pypi.org/project/optirs-web/) for browsers that a page does not need before it trains.
"""
# Text of few different bytes: their position says nothing, the byte before much. Unpacking takes as much memory as the
# dictionary.
_FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 4, "lp": 0, "pb": 0},
]
_building = threading.Lock()


def wheel_name() -> str:
    """The file name of the library's wheel, in the form that installers want."""
    return f"optirs_web-{ow.__version__}-{_TAG}.whl"


def more_wheel_name() -> str:
    """The file name of the other one."""
    return f"optirs_web_more-{ow.__version__}-{_TAG}.whl"


def library_wheel() -> bytes:
    """The library's wheel. It is made again when a file has changed, as in an editable install."""
    return _wheels()[0]


def more_wheel() -> bytes:
    """The wheel with the rest of the library."""
    return _wheels()[1]


def _wheels() -> tuple[bytes, bytes]:
    sources = _sources()
    state = tuple((path, path.stat().st_mtime_ns) for path in sources.values())
    with _building:  # whoever asks meanwhile gets these
        return _build(tuple(sources.items()), state)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith(_NATIVE):
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


@lru_cache(maxsize=1)  # `state` is a part of the key alone: a changed file makes other wheels
def _build(sources: tuple[tuple[str, Path], ...], state: tuple[tuple[Path, int], ...]) -> tuple[bytes, bytes]:
    # A clone has an .egg-info besides, which Python finds too where it was started there.
    about = next(one for one in distributions(name="optirs-web") if one.read_text("METADATA"))
    notes = {name: _text(about, name) for name in ("METADATA", "licenses/LICENSE")}
    texts = _shortened(dict(sources))
    library = {name.removeprefix("optirs_web/"): text for name, text in texts.items() if not _MORE.match(name)}
    more = {name: text.encode() for name, text in texts.items() if _MORE.match(name)}
    reader = shorten("unpack.py", Path(__file__).with_name("unpack.py").read_text("utf-8"), set(), set())
    packed = {"__init__.py": _ENTRY, "unpack.py": reader.encode(), "library.xz": pack(library)}
    return (
        _wheel("optirs_web", {f"optirs_web/{name}": body for name, body in packed.items()}, notes),
        _wheel("optirs_web_more", more, notes | {"METADATA": _ABOUT_MORE.format(version=ow.__version__).encode()}),
    )


def pack(texts: Mapping[str, str]) -> bytes:
    """The archive that `unpack` reads: the texts behind their names, by zeros, compressed as one."""
    files = "\0".join(f"{name}\n{text}" for name, text in texts.items())
    return lzma.compress(files.encode(), check=lzma.CHECK_CRC32, filters=_FILTERS)


def _wheel(name: str, contents: dict[str, bytes], notes: Mapping[str, bytes]) -> bytes:
    note = f"{name}-{ow.__version__}.dist-info"
    contents = {
        **contents,
        **{f"{note}/{name}": body for name, body in notes.items()},
        f"{note}/WHEEL": f"Wheel-Version: 1.0\nGenerator: optirs-web\nRoot-Is-Purelib: true\nTag: {_TAG}\n".encode(),
    }
    record = "".join(f"{name},sha256={_digest(body)},{len(body)}\n" for name, body in contents.items())
    contents[f"{note}/RECORD"] = f"{record}{note}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, body in contents.items():
            # ZipInfo has a fixed date: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(path), body, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _shortened(sources: dict[str, Path]) -> dict[str, str]:
    """The short text of each file."""
    names = sorted(sources, key=lambda name: (name.rpartition(".")[2], name))  # like files side by side
    texts = {name: sources[name].read_text("utf-8") for name in names}
    public = _public_names()
    kept = set().union(*(mentioned(ast.parse(text)) for name, text in texts.items() if name.endswith(".py")))
    return {name: shorten(name, text, public, kept) for name, text in texts.items()}


def _public_names() -> set[str]:
    """What users call: the names of the packages, and of the modules that are names of packages."""
    names: set[str] = set()
    packages: list[ModuleType] = [ow]
    while packages:
        package = packages.pop()
        names.update(package.__all__)
        # The data sets and the benchmarks are not in this wheel.
        names_here = set(package.__all__) - ({"benchmarks", "datasets"} if package is ow else set())
        members = [getattr(package, name) for name in sorted(names_here)]
        packages += [one for one in members if isinstance(one, ModuleType)]
    return names


def _text(about: Distribution, name: str) -> bytes:
    text = about.read_text(name)
    if text is None:
        raise FileNotFoundError(f"the installed optirs-web has no {name}; reinstall it")
    return text.encode()


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    for name, content in zip((wheel_name(), more_wheel_name()), _wheels(), strict=True):
        wheel = Path(sys.argv[1]) / name
        print(f"{wheel}: {wheel.write_bytes(content):,} bytes")

"""Export the site as static files for any file server: the application's responses, written once.

Pages are NAME.html in one folder, and home is index.html. The API's answers for shaders are in data/shaders; pages keep
a visitor's checkpoints in the browser. The service worker ``isolation.js`` adds the headers that isolate a page, where
the host does not read them from ``_headers``.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import OptirsError
from ..files import lock
from ..translations import TARGETS, is_ours
from .addresses import PAGES
from .compiler import Compiler
from .guard import content_security_policy, security_headers
from .guides import find_guides, guide_html
from .pages import generated_files, program_files, site_facts, why_no_pages
from .pyodide import has_packages, needed_files
from .rendering import Renderer
from .settings import Settings
from .shader_catalog import list_shaders, list_targets, shader
from .shader_kernels import Name, translation

__all__ = ["ExportError", "export_site"]

_LIST = "export.json"  # the names of all files of an export, which identify it
_FILES = {name: "index.html" if address == "./" else f"{address}.html" for name, address in PAGES.items()}


class ExportError(OptirsError):
    """The site cannot be written to the folder, or cannot be exported."""


def export_site(
    folder: Path,
    settings: Settings,
    targets: Collection[str] = tuple(TARGETS),
    report: Callable[[str], None] = lambda step: None,
) -> int:
    """Write the site, replacing an earlier export, and return the number of files.

    Args:
        folder: made when missing. A folder with other files is left unchanged.
        settings: `pyodide` is copied; with None the pages load it from the public CDN.
        targets: the languages in which shaders are shown.
        report: called with the name of each step.

    Raises:
        ExportError: the folder has files that no export wrote, or the pages are not built.
        OSError: a file cannot be written; the earlier export is unchanged.
    """
    reason = why_no_pages(settings)
    if reason:
        raise ExportError(reason)
    folder = folder.resolve()
    _check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in folder.parent.glob(f".{glob.escape(folder.name)}.export-*"):
        with _locked(abandoned) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(abandoned)
    new = folder.with_name(f".{folder.name}.export-{secrets.token_hex(4)}")
    new.mkdir()
    try:
        with _locked(new):
            written = _write_all(new, settings, targets, report)
            _check_replaceable(folder)  # compiling shaders took minutes
            _replace(folder, new)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return written


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder in the block; yields False if another process has locked it, or on Windows."""
    if os.name == "nt":  # which opens no folders
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield lock(descriptor)
    finally:
        os.close(descriptor)


def _check_replaceable(folder: Path) -> None:
    """Check that a folder is missing, empty, or an earlier export without other files."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ExportError(f"{folder} is not a folder")
    if not any(folder.iterdir()):
        return
    try:
        exported = set(json.loads((folder / _LIST).read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportError(f"{folder} is neither empty nor an earlier export; choose another folder") from None
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    others = sorted({path.relative_to(folder).as_posix() for path in files} - exported)
    if others:
        raise ExportError(
            f"{folder} has files not written by an export, such as {others[0]}; move them, or choose another folder"
        )


def _replace(folder: Path, new: Path) -> None:
    if not folder.exists():
        new.rename(folder)
        return
    old = new.with_name(f"{new.name}-old")
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def _write_all(folder: Path, settings: Settings, targets: Collection[str], report: Callable[[str], None]) -> int:
    names = []
    for name, content in _contents(settings, targets, report):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(content)
        names.append(name)
    (folder / _LIST).write_bytes(_json({"files": sorted([*names, _LIST])}))
    return len(names) + 1


def _contents(
    settings: Settings, targets: Collection[str], report: Callable[[str], None]
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield the name of every file of the site, with its bytes or the path to copy."""
    report("pages")
    facts = site_facts(settings) | {"api": False, "pages": {**_FILES, "home": "./"}}
    policy = content_security_policy(
        settings.pyodide is None, in_page=True, has_packages=has_packages(settings.pyodide)
    )
    renderer = Renderer(settings.templates, facts, suffix=".html", policy=policy)
    for name, file in _FILES.items():
        yield file, renderer.page(name).encode()
    guides = find_guides(settings.clone)
    titles = {name: guide.title for name, guide in guides.items()}
    for name, guide in guides.items():
        page = renderer.guide(titles, name, guide_html(guide, guides, ".html")).encode()
        yield f"docs/{name}.html", page
        if name == next(iter(guides)):
            yield "docs/index.html", page
    if "Reference" in facts["links"]:
        for path in sorted(settings.reference.rglob("*")):
            if path.is_file():
                yield f"reference/{path.relative_to(settings.reference).as_posix()}", path
    root = urlsplit(settings.public).path or "./"  # hosts show the page at addresses of any depth
    yield "404.html", renderer.error(404, "There is no such page.", root).encode()
    yield "site.json", _json(facts)
    yield "_headers", _headers_file(settings)
    yield ".nojekyll", b""  # GitHub Pages then takes files as they are
    for path in sorted(settings.static.rglob("*")):
        name = path.relative_to(settings.static).as_posix()
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".map":
            yield ("" if name == "isolation.js" else "static/") + name, path
    for name, path in program_files(settings.programs).items():
        yield f"programs/{name}", path
    for name, make in generated_files(settings).items():
        yield name, make().body
    if settings.pyodide is not None:
        report("Pyodide")
        for path in needed_files(settings.pyodide):
            yield f"pyodide/{path.name}", path
    yield from _shaders(settings, targets, report)


def _shaders(
    settings: Settings, targets: Collection[str], report: Callable[[str], None]
) -> Iterator[tuple[str, bytes]]:
    """Yield the API's answers for the shaders, with their paths. Where a compiler is missing, a note names it."""
    shaders = list_shaders()
    yield "data/shaders/index.json", _json([info.model_dump() for info in shaders])
    yield (
        "data/shaders/targets.json",
        _json([target.model_dump() for target in list_targets() if target.name in targets]),
    )
    compiler = Compiler(settings.compile_patience, 1)
    try:
        for info in shaders:
            report(f"shaders: {info.folder}/{info.name}")
            address = f"{info.folder}/{info.name}"
            described = shader(info.folder, info.name)
            yield f"data/shaders/{address}.json", _json(described.model_dump())
            for variant in described.variants:
                for target in targets:
                    make = translation if is_ours(target) else compiler.translation
                    text = make(Name(info.folder, info.name, variant, target))
                    yield f"data/shaders/{address}/{variant}/{target}.json", _json(text._asdict())
    finally:
        compiler.close()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _headers_file(settings: Settings) -> bytes:
    """Return the headers of the server in the format of Netlify, Cloudflare Pages and others."""
    rows = [f"  {name}: {value}" for name, value in security_headers(settings).items()]
    return "\n".join(["/*", *rows, ""]).encode()

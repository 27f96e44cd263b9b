"""The pages, and what they load from this server: bundles, Pyodide, the library's wheel, programs and data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import TemplateNotFound
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

import optirs_web as ow
from optirs_web.datasets import load_book

from .addresses import PAGES
from .assets import Content, Files, file_content, respond
from .digits import digits_file
from .errors import ApiError
from .guides import find_guides, guide_html
from .library import library_wheel, page_wheel, wheel_name
from .pyodide import PYODIDE_CDN, file_sizes, has_packages
from .rendering import Renderer
from .settings import Settings
from .source import source_address, source_archive, source_name

__all__ = ["generated_files", "page_routes", "prepare", "program_files", "site_facts", "why_no_pages"]

_NOT_BUILT = (
    "The pages are not built. In the clone, install Node.js 20 or newer with npm (https://nodejs.org) and run "
    "`make bundles`, then `pip install . ./demo_site` if the demo was installed that way, and restart."
)
# What the library's wheel lacks, and programs import like their neighbours: files by their folders.
_SHARED = {
    "recipes.py": Path(ow.__file__).with_name("training"),
    "gpt.py": Path(__file__).parent.with_name("examples"),  # in a clone and where the demo is installed
}
_PAGE_WHEEL = "wheel/pages.whl"
"""The address of the wheel that pages unpack. It has no name that an installer takes: see `library.page_wheel`."""
_NO_CACHE = {"Cache-Control": "no-cache"}
# pdoc writes styles and the script of its search into its pages, which hold nothing that visitors have sent.
_REFERENCE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src data:"
)


def site_facts(settings: Settings) -> dict[str, Any]:
    """Facts for every page: where the library, Python and the other pages are, relative to the site's root.

    `sizes` has the bytes of Pyodide's files as a page counts them while they come, that is decompressed.
    """
    return {
        "api": True,
        "version": ow.__version__,
        "wheel": _PAGE_WHEEL,
        "pyodide": "pyodide/" if settings.pyodide else PYODIDE_CDN,
        "packages": "pyodide/" if has_packages(settings.pyodide) else PYODIDE_CDN,
        "sizes": file_sizes(settings.pyodide),
        "transport": "transport.mjs",
        "pages": PAGES,
        "links": _links(settings),
        "public": settings.public,
        "cards": sorted(path.stem for path in (settings.static / "cards").glob("*.png")),
    }


def _links(settings: Settings) -> dict[str, str]:
    """Addresses of what else there is about the library, by the words of the links."""
    links = {}
    if find_guides(settings.clone):
        links["Guides"] = "docs/"
    if (settings.reference / "index.html").is_file():
        links["Reference"] = "reference/optirs_web.html"
    return {**links, "Source": source_address()}


def why_no_pages(settings: Settings) -> str:
    """Why no page can be shown, and what to do; nothing where they can."""
    return "" if (settings.static / "style.css").is_file() else _NOT_BUILT


def prepare(settings: Settings) -> None:
    """Make what takes seconds, before a page asks for it: the wheel, and the interpreter compressed."""
    page_wheel(settings.pyodide)
    if settings.pyodide is not None and (wasm := settings.pyodide / "pyodide.asm.wasm").is_file():
        file_content(wasm)


@lru_cache(maxsize=16)
def _content(body: bytes, media_type: str) -> Content:
    return Content(body, media_type)


def _transport() -> bytes:
    expression = files("optirs_web.browser").joinpath("transport.js").read_text("utf-8")
    return f"export default {expression}".encode()


def generated_files(settings: Settings) -> dict[str, Callable[[], Content]]:
    """Return the functions that make generated files, by the files' addresses relative to the root.

    They are what pages load, the library's wheel for installers, and the source.
    """
    return {
        _PAGE_WHEEL: lambda: _content(page_wheel(settings.pyodide), "application/zip"),
        f"wheel/{wheel_name()}": lambda: _content(library_wheel(), "application/zip"),
        f"source/{source_name()}": lambda: _content(source_archive(), "application/zip"),
        "transport.mjs": lambda: _content(_transport(), "text/javascript"),
        "data/book.txt": lambda: _content(load_book().encode(), "text/plain"),
        "data/digits.bin": lambda: digits_file().content,
        "data/digits.json": lambda: _content(json.dumps(digits_file().note).encode(), "application/json"),
    }


def program_files(programs: Path) -> dict[str, Path]:
    """The Python programs that pages load, by their addresses below ``programs/``."""
    own = {path.relative_to(programs).as_posix(): path for path in sorted(programs.rglob("*.py"))}
    return own | {name: folder / name for name, folder in _SHARED.items()}


class _Programs(Files):
    """The Python programs of a folder; other files that are there are not served."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result]:
        if not path.endswith(".py"):
            raise ApiError(404, "not_found", "There are only Python programs here.")
        return super().lookup_path(path)


class _Site:
    """The handlers. They are no coroutines: files are read in threads."""

    def __init__(self, settings: Settings, renderer: Renderer, facts: Mapping[str, Any]) -> None:
        self._settings = settings
        self._renderer = renderer
        self._facts = dict(facts)
        self._guides = find_guides(settings.clone)

    def page(self, name: str) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            reason = why_no_pages(self._settings)
            if reason:
                raise ApiError(503, "not_built", reason)
            try:
                return HTMLResponse(self._renderer.page(name), headers=_NO_CACHE)
            except TemplateNotFound as error:
                raise ApiError(503, "not_built", f"The template '{error.name}' is missing.") from error

        return page

    def guide(self, request: Request) -> Response:
        name = request.path_params.get("name") or next(iter(self._guides), "")
        if name not in self._guides:
            raise ApiError(404, "not_found", f"There is no guide '{name[:100]}' here.")
        titles = {name: guide.title for name, guide in self._guides.items()}
        html = guide_html(self._guides[name], self._guides)
        return HTMLResponse(self._renderer.guide(titles, name, html), headers=_NO_CACHE)

    def facts(self, request: Request) -> Response:
        return JSONResponse(self._facts, headers=_NO_CACHE)

    def no_pyodide(self, request: Request) -> Response:
        raise ApiError(404, "not_found", "Pyodide is not installed here; `make setup` installs it.")

    def made(self, make: Callable[[], Content]) -> Callable[[Request], Response]:
        return lambda request: respond(request, make())


def page_routes(settings: Settings, renderer: Renderer, facts: Mapping[str, Any]) -> list[BaseRoute]:
    """The routes of all that is not the API."""
    site = _Site(settings, renderer, facts)
    made = generated_files(settings)
    made |= {f"programs/{name}": partial(file_content, folder / name) for name, folder in _SHARED.items()}
    return [
        *(Route(f"/{address.removeprefix('./')}", site.page(name)) for name, address in PAGES.items()),
        Route("/docs/{name}", site.guide),
        Route("/docs/", site.guide, name="guides"),
        Route("/reference/{path:path}", Files(settings.reference, {"Content-Security-Policy": _REFERENCE_POLICY})),
        Route("/site.json", site.facts),
        *(Route(f"/{address}", site.made(make)) for address, make in made.items()),
        Route("/static/{path:path}", Files(settings.static)),
        Route("/programs/{path:path}", _Programs(settings.programs)),
        Route("/pyodide/{path:path}", Files(settings.pyodide) if settings.pyodide else site.no_pyodide),
    ]

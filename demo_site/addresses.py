"""Addresses that are valid under any prefix: a proxy's folder, a mounted application, a static export.

All pages are one level below the site's root, and their links to each other and to files are relative. Only an error
page can be deeper.
"""

from __future__ import annotations

from starlette.types import Scope

__all__ = ["PAGES", "root_from", "route_path"]

PAGES = {
    "home": "./",
    "digits": "digits",
    "gpt": "gpt",
    "race": "race",
    "playground": "playground",
    "shaders": "shaders",
    "bench": "bench",
    "compare": "compare",
    "check": "check",
    "checkpoints": "checkpoints",
}
"""Addresses of the pages by their names, relative to the root."""


def route_path(scope: Scope) -> str:
    """Return the path of a request below the prefix of the application."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(f"{prefix}/") else path


def root_from(scope: Scope) -> str:
    """Return the site's root relative to the address of a request: ``./`` for a page, ``../../`` two levels deeper.

    Slashes count as they were sent: for a browser ``%2F`` is not a slash.
    """
    raw = scope.get("raw_path") or str(scope["path"]).encode()
    path = route_path({**scope, "path": raw.decode("latin-1"), "root_path": scope.get("root_path", "")})
    return "../" * (path.count("/") - 1) or "./"

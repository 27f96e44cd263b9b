"""`Renderer`: renders pages, guides and errors from the templates."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, TemplateNotFound
from markupsafe import Markup

from .comparisons import comparisons

__all__ = ["Renderer"]

_BARE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<h1>{title}</h1>
<p>{message}</p>
</html>
"""


class Renderer:
    """Renders pages.

    Args:
        folder: the templates.
        site: facts of the site for every page, with addresses relative to its root.
        suffix: the suffix of the addresses of guides.
        policy: the Content-Security-Policy that pages state themselves, where no server sends the header.
    """

    def __init__(self, folder: Path, site: Mapping[str, Any], *, suffix: str = "", policy: str = "") -> None:
        self._templates = Environment(loader=FileSystemLoader(folder), autoescape=True)
        self._templates.globals.update(site=dict(site), suffix=suffix, policy=policy, comparisons=comparisons())

    def page(self, name: str) -> str:
        """Return the HTML of a page.

        Raises:
            TemplateNotFound: the page has no template.
        """
        return self._templates.get_template(f"{name}.html").render(page=name, root="./")

    def guide(self, names: Mapping[str, str], name: str, content: str) -> str:
        """Return the HTML of a guide: `names` are the titles of all guides, which are in one folder; `content` is HTML.

        Raises:
            TemplateNotFound: there is no template for guides.
        """
        template = self._templates.get_template("guide.html")
        return template.render(page="", root="../", guides=names, guide=name, content=Markup(content))

    def error(self, status: int, message: str, root: str) -> str:
        """Return the HTML of an error, at an address from which `root` leads to the site's root.

        Where the templates are missing it has no layout.
        """
        title = HTTPStatus(status).phrase
        try:
            template = self._templates.get_template("error.html")
            return template.render(page="", root=root, title=title, message=message)
        except TemplateNotFound:
            return _BARE.format(title=escape(title), message=escape(message))

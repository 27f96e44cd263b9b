"""The guides of a clone as pages: its README, CONTRIBUTING and docs/, from Markdown to HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Guide", "find_guides", "guide_html"]

_FIRST = ("README.md", "CONTRIBUTING.md", "docs/setup.md")
"""Those that are listed before the others, in this order."""


class Guide(NamedTuple):
    """A guide: its file, and its first heading."""

    path: Path
    title: str


def find_guides(clone: Path) -> dict[str, Guide]:
    """The guides of a clone by the names in their addresses; none where it is no clone."""
    if not (clone / "docs").is_dir():
        return {}
    first = [path for name in _FIRST if (path := clone / name).is_file()]
    others = (path for path in sorted((clone / "docs").glob("*.md")) if path not in first and path.name != "package.md")
    paths = [*first, *others]  # package.md is the README of the wheel
    return {path.stem.lower().replace("_", "-"): Guide(path, _title(path)) for path in paths}


def _title(path: Path) -> str:
    match = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return match[1].replace("`", "") if match else path.stem


def guide_html(guide: Guide, guides: Mapping[str, Guide], suffix: str = "") -> str:
    """The guide as HTML, without HTML of its own. Links between guides hold; to other files they become their text.

    Args:
        guide: one of them.
        guides: all of them by their names.
        suffix: what their addresses end with.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(guide.path.read_text("utf-8"))
    _name_headings(tokens)
    addresses = {other.path.resolve(): name + suffix for name, other in guides.items()}
    for token in tokens:
        _follow_links(token.children or [], guide.path.parent, addresses)
    html: str = parser.renderer.render(tokens, parser.options, {})
    return html


def _name_headings(tokens: Sequence[Token]) -> None:
    """Give headings the ids to which links in Markdown lead, as hosts of repositories make them."""
    seen: Counter[str] = Counter()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            slug = re.sub(r"[^\w\- ]", "", inline.content.lower()).replace(" ", "-")
            opening.attrSet("id", f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1


def _follow_links(tokens: Sequence[Token], folder: Path, addresses: Mapping[Path, str]) -> None:
    for opening, closing in _links(tokens):
        href = urlsplit(str(opening.attrGet("href")))
        if href.scheme or not href.path:
            continue
        name = addresses.get((folder / href.path).resolve())
        if name is None:
            opening.tag = closing.tag = "span"
            opening.attrs.clear()
        else:
            opening.attrSet("href", name + (f"#{href.fragment}" if href.fragment else ""))


def _links(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """The opening and the closing token of each link; links hold no links."""
    opening = None
    for token in tokens:
        if token.type == "link_open":
            opening = token
        elif token.type == "link_close" and opening is not None:
            yield opening, token

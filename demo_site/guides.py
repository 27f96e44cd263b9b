"""Convert the guides of a clone, its README, CONTRIBUTING and docs/, from Markdown to HTML pages."""

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
"""The guides that are listed before the others, in this order."""


class Guide(NamedTuple):
    """A guide: its file, and its first heading."""

    path: Path
    title: str


def find_guides(clone: Path) -> dict[str, Guide]:
    """Return the guides of a clone by the names in their addresses; {} if the folder is not a clone."""
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
    """Return a guide as HTML; HTML in its Markdown is escaped, and links to files other than guides become text.

    Args:
        guide: the guide to convert.
        guides: all guides by their names.
        suffix: the suffix of their addresses.
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
    """Set the ids of headings to those that links in Markdown use, as hosts of repositories derive them."""
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
    """Yield the opening and the closing token of each link; links are not nested."""
    opening = None
    for token in tokens:
        if token.type == "link_open":
            opening = token
        elif token.type == "link_close" and opening is not None:
            yield opening, token

"""Every page leads to the guides, to the source, and to the reference where it is built."""

import io
import re
import zipfile
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from optirs_web.demo_site.addresses import PAGES
from optirs_web.demo_site.guides import find_guides, guide_html

CLONE = Path(__file__).parents[2]
GUIDES = find_guides(CLONE)


def footer_links(client, address):
    """The links at the foot of a page, by their words, with whole addresses."""
    _, _, footer = client.get(address).text.partition('<nav class="colophon-links"')
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', footer.partition("</nav>")[0])
    return {title: urljoin(f"http://localhost{address}", href) for href, title in links}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_leads_to_the_guides_and_to_the_source(client, name):
    links = footer_links(client, f"/{PAGES[name].removeprefix('./')}")
    assert {"Guides", "Source"} <= set(links)
    assert all(client.get(link).status_code == 200 for link in links.values())


def test_the_source_is_that_of_all_packages(client):
    archive = zipfile.ZipFile(io.BytesIO(client.get(footer_links(client, "/")["Source"]).content))
    for name, path in {
        "optirs_web/tensors.py": "optirs_web/tensors.py",
        "optirs_web/demo_site/source.py": "demo_site/source.py",
        "optirs_web/shaders/optimizers/lion.wgsl": "shaders/optimizers/lion.wgsl",
        "optirs_web/examples/gpt.py": "examples/gpt.py",
    }.items():
        assert archive.read(name) == (CLONE / path).read_bytes()
    assert not [name for name in archive.namelist() if "node_modules" in name or "__pycache__" in name]


@pytest.mark.parametrize("name", GUIDES)
def test_the_links_of_a_guide_lead_to_guides_and_to_headings_in_them(name):
    html = guide_html(GUIDES[name], GUIDES)
    assert html.startswith('<h1 id="')
    for link in map(urlsplit, re.findall(r'href="([^"]+)"', html)):
        if not link.scheme:
            assert not link.fragment or f'id="{link.fragment}"' in guide_html(GUIDES[link.path or name], GUIDES), link


def test_the_first_guide_is_the_readme(client):
    assert client.get("/docs/").text == client.get("/docs/readme").text
    assert "<h1" in client.get("/docs/").text


def test_html_in_a_guide_is_text(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a_b.md").write_text("# A `b`\n\n<script>1</script> [c](javascript:d) [e](../e.py)\n")
    guides = find_guides(tmp_path)
    assert {name: guide.title for name, guide in guides.items()} == {"a-b": "A b"}
    html = guide_html(guides["a-b"], guides)
    assert "<script>" not in html
    assert "href" not in html
    assert "<span>e</span>" in html


def test_where_there_is_no_clone_there_are_no_guides(make_client, tmp_path):
    client = make_client(clone=tmp_path)
    assert list(footer_links(client, "/")) == ["Source"]
    assert client.get("/docs/").status_code == client.get("/docs/readme").status_code == 404


def test_the_reference_is_linked_and_served_where_it_is_built(make_client, tmp_path):
    reference = tmp_path / "reference"
    reference.mkdir()
    for name in ("index.html", "optirs_web.html"):
        (reference / name).write_text("<style>p { color: red }</style>")
    client = make_client(reference=reference)
    response = client.get(footer_links(client, "/digits")["Reference"])
    assert response.text.startswith("<style>")
    assert "style-src 'self' 'unsafe-inline'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"

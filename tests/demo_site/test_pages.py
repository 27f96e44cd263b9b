"""The demo's pages, and the files that they load."""

import gzip
import json
import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from demo_servers import error_code, files_of, upload
from requirements import missing

from optirs_web.datasets import digits, load_book
from optirs_web.demo_site import assets
from optirs_web.demo_site.addresses import PAGES
from optirs_web.demo_site.library import library_wheel, page_wheel, wheel_name
from optirs_web.demo_site.pyodide import PYODIDE_CDN, file_sizes, local_pyodide


@pytest.mark.parametrize("address", PAGES.values())
def test_a_page_is_html_that_knows_the_site(client, address):
    response = client.get(address)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    _, _, rest = response.text.partition('<script type="application/json" id="site">')
    assert json.loads(rest.partition("</script>")[0]) == client.get("/site.json").json()


@pytest.mark.parametrize("prefix", ["", "/a/prefix"])
@pytest.mark.parametrize("address", [*PAGES.values(), "nothing", "static/nothing/here", "nothing%2fhere", "a/x/"])
def test_what_a_page_links_to_is_there_whatever_the_prefix(make_client, tmp_path, address, prefix):
    client = make_client(prefix=prefix)
    for name in (*PAGES, "shell", "theme"):
        (tmp_path / "static" / f"{name}.js").write_text("1")
    response = client.get(f"/{address}", headers={"Accept": "text/html"})
    facts = client.get("/site.json").json()
    links = [link for link in re.findall(r'\b(?:href|src)="([^"#][^"]*)"', response.text) if ":" not in link]
    if response.status_code == 200:
        links += [facts["wheel"], facts["transport"], *facts["pages"].values()]
    assert links
    for link in links:
        assert client.get(response.url.join(link)).status_code == 200, link


def test_pyodide_comes_from_the_cdn_only_where_it_is_not_installed(make_client, tmp_path):
    with_cdn = make_client(pyodide=None).get("/site.json")
    assert with_cdn.json()["pyodide"] == PYODIDE_CDN
    assert PYODIDE_CDN in with_cdn.headers["content-security-policy"]


def test_an_installed_pyodide_is_served(make_client, tmp_path):
    (tmp_path / "pyodide").mkdir()
    (tmp_path / "pyodide" / "pyodide.asm.wasm").write_bytes(b"\0asm")
    client = make_client(pyodide=tmp_path / "pyodide")
    site = client.get("/site.json")
    assert site.json()["pyodide"] == "pyodide/"
    policy = dict(part.split(" ", 1) for part in site.headers["content-security-policy"].split("; "))
    assert "https:" not in policy.pop("script-src")
    assert (
        site.json()["packages"] == PYODIDE_CDN
    )  # the interpreter alone: a program that imports NumPy has it from there
    assert policy.pop("connect-src") == f"'self' {PYODIDE_CDN}"
    assert "https:" not in str(policy)
    assert client.get("/pyodide/pyodide.asm.wasm").headers["content-type"] == "application/wasm"


def test_nothing_comes_from_elsewhere_where_all_of_pyodide_is_installed(make_client, tmp_path):
    for name in ("pyodide.mjs", "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl"):
        (tmp_path / name).write_bytes(b"")
    site = make_client(pyodide=tmp_path).get("/site.json")
    assert site.json()["packages"] == "pyodide/"
    assert "https:" not in site.headers["content-security-policy"]


@pytest.mark.parametrize("missing", ["static", "templates"])
def test_without_its_parts_a_page_says_what_is_missing(make_client, tmp_path, missing):
    client = make_client(**{missing: tmp_path / "nowhere"})
    response = client.get("/", headers={"Accept": "text/html"})
    assert response.status_code == 503
    assert response.headers["content-type"].startswith("text/html")
    assert ("make bundles" if missing == "static" else "home.html") in response.text


@pytest.mark.parametrize(
    "address", ["/", "/nothing", "/static/style.css", "/api/runs", "/api/nothing", "/api/session", "/site.json"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "TRACE"])
def test_every_answer_is_guarded(client, address, method):
    headers = client.request(method, address).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'")
    assert "'unsafe-inline'" not in policy
    assert "'unsafe-eval'" not in policy
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["x-content-type-options"] == "nosniff"


def test_an_unforeseen_error_is_json_and_guarded_too(make_client, tmp_path):
    client = make_client()
    upload(client)
    (tmp_path / "data" / files_of(tmp_path / "data")[0]).unlink()
    response = client.get("/api/runs/run/checkpoint")
    assert (response.status_code, error_code(response)) == (500, "internal_error")
    assert "content-security-policy" in response.headers


@pytest.mark.parametrize("address", ["/static/style.css", "/data/digits.bin", "/transport.mjs", "/static/module.wasm"])
def test_what_has_not_changed_is_not_sent_again(client, address):
    first = client.get(address)
    assert first.status_code == 200
    again = client.get(address, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


def test_what_has_changed_is_sent_anew(client, tmp_path):
    old = client.get("/static/style.css").headers["etag"]
    (tmp_path / "static" / "style.css").write_text("p { color: green }")
    response = client.get("/static/style.css", headers={"If-None-Match": old})
    assert (response.status_code, response.text) == (200, "p { color: green }")


@pytest.mark.parametrize(
    ("address", "accepts", "is_packed"),
    [
        ("/static/style.css", "gzip", True),
        ("/static/style.css", "br, gzip;q=0.5", True),
        ("/static/style.css", "gzip;q=0", False),
        ("/static/style.css", "identity", False),
        ("/static/small.js", "gzip", False),
        ("/static/module.wasm", "gzip", True),
        ("/data/digits.bin", "gzip", True),
    ],
)
def test_text_and_code_are_packed_for_those_who_accept_it(client, address, accepts, is_packed):
    plain = client.get(address).content
    with client.stream("GET", address, headers={"Accept-Encoding": accepts}) as response:
        raw = b"".join(response.iter_raw())
    assert (response.headers.get("content-encoding") == "gzip") == is_packed
    assert (gzip.decompress(raw) if is_packed else raw) == plain
    assert int(response.headers["content-length"]) == len(raw)
    assert ("accept-encoding" in response.headers.get("vary", "").lower()) == (address != "/static/small.js")


def test_a_file_is_compressed_once_however_many_ask_for_it_at_a_time(client, monkeypatch):
    compressed = []

    def compress(body, *level, **options):
        compressed.append(len(body))
        time.sleep(0.05)  # the others come meanwhile
        return zlib.compress(body, wbits=31)

    monkeypatch.setattr(assets.gzip, "compress", compress)
    with ThreadPoolExecutor(4) as pool:
        sizes = pool.map(lambda _: len(client.get("/static/module.wasm").content), range(8))
    assert set(sizes) == {5000}
    assert compressed == [5000]


def test_a_part_of_a_file_that_is_not_compressed_is_served(client, tmp_path):
    (tmp_path / "static" / "archive.zip").write_bytes(bytes(range(250)) * 20)
    tag = client.get("/static/archive.zip").headers["etag"]
    response = client.get("/static/archive.zip", headers={"Range": "bytes=4990-", "If-Range": tag})
    assert (response.status_code, response.content) == (206, bytes(range(240, 250)))
    assert response.headers["content-range"] == "bytes 4990-4999/5000"
    assert response.headers["cache-control"] == "no-cache"
    changed = client.get("/static/archive.zip", headers={"Range": "bytes=4990-", "If-Range": '"other"'})
    assert (changed.status_code, len(changed.content)) == (200, 5000)


def test_thousands_of_parts_of_a_file_are_not_served(client, tmp_path):
    (tmp_path / "static" / "archive.zip").write_bytes(bytes(5000))
    many = "bytes=" + ",".join(f"{place}-{place}" for place in range(0, 4000, 2))
    for address in ("/static/archive.zip", "/static/module.wasm"):
        response = client.get(address, headers={"Range": many})
        assert (response.status_code, len(response.content)) == (200, 5000)


def test_pages_know_how_much_of_pyodide_comes(make_client, tmp_path):
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for number, name in enumerate(["pyodide.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "README.md"]):
        (folder / name).write_bytes(bytes(2000 + number))
    client = make_client(pyodide=folder)
    sizes = client.get("/site.json").json()["sizes"]
    assert sizes == {"pyodide.mjs": 2000, "pyodide.asm.wasm": 2001, "python_stdlib.zip": 2002}
    for name, size in sizes.items():
        assert len(client.get(f"/pyodide/{name}", headers={"Accept-Encoding": "gzip"}).content) == size


def test_the_sizes_at_the_cdn_are_those_of_the_same_version_from_npm():
    npm = Path(__file__).parents[2] / "demo_site" / "frontend" / "node_modules" / "pyodide"
    if not npm.is_dir():
        missing("webgpu", f"Pyodide is not in {npm}: make setup")
    assert f"/v{json.loads((npm / 'package.json').read_text())['version']}/" in PYODIDE_CDN
    assert file_sizes(None) == file_sizes(npm)


@pytest.mark.parametrize(
    "address", ["/", "/static/module.wasm", "/static/archive.zip", "/api/runs", "/data/digits.bin", "/api/nothing"]
)
def test_head_is_get_without_a_body(client, tmp_path, address):
    (tmp_path / "static" / "archive.zip").write_bytes(bytes(5000))
    head, get = client.head(address), client.get(address)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert dict(head.headers) == dict(get.headers)


@pytest.mark.parametrize(
    "path",
    ["../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "..%5csecret.js", "link.js", ".hidden.js", "%00", "a%00b.js",
     "", ".", "C:/secret.js", "static:x", "x" * 5000, "/etc/passwd", "%2fetc%2fpasswd", "nothing.js"],
)  # fmt: skip
@pytest.mark.parametrize("root", ["/static/", "/programs/", "/pyodide/", "/programs/examples/"])
def test_no_address_leads_out_of_its_folder(make_client, tmp_path, root, path):
    client = make_client(pyodide=tmp_path / "static", programs=tmp_path / "static")
    response = client.get(root + path)
    assert (response.status_code, error_code(response)) == (404, "not_found")


def test_only_programs_are_served_as_programs(make_client, tmp_path):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "one.py").write_text("print()")
    client = make_client(programs=tmp_path)
    assert client.get("/programs/examples/one.py").text == "print()"
    assert client.get("/programs/secret.js").status_code == 404


def test_the_model_of_the_examples_and_its_book_are_served(client):
    program = client.get("/programs/gpt.py")
    assert program.text == (Path(__file__).parents[2] / "examples" / "gpt.py").read_text("utf-8")
    assert program.headers["content-type"].startswith("text/x-python")
    assert client.get("/data/book.txt").text == load_book()


def test_the_digits_are_those_of_the_library(client):
    note = client.get("/data/digits.json").json()
    content = client.get("/data/digits.bin").content
    n, pixels = note["n"], note["pixels"]
    assert len(content) == n * (pixels + 2) * 4
    images = np.frombuffer(content, "<f4", n * pixels).reshape(n, pixels)
    labels, folds = np.frombuffer(content, "<i4", offset=n * pixels * 4).reshape(2, n)
    for fold in range(note["folds"]):
        data = digits.load_digits(fold)
        np.testing.assert_array_equal(images[folds == fold], data.test_images)
        np.testing.assert_array_equal(labels[folds != fold], data.train_labels)


def test_the_wheel_is_the_librarys(client):
    address = client.get("/site.json").json()["wheel"]
    assert client.get(address).content == page_wheel(local_pyodide())
    assert client.get(f"wheel/{wheel_name()}").content == library_wheel()
    assert client.get(address).headers["etag"] == client.get(address).headers["etag"]


def test_the_transport_is_a_module_of_the_library_s_script(client):
    response = client.get("/transport.mjs")
    assert response.text.startswith("export default ")
    assert response.headers["content-type"].startswith("text/javascript")

"""`optirs-web demo --export`: the site as files, in place of an earlier export and of nothing else."""

import json
import re
from dataclasses import replace
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from click.testing import CliRunner

from optirs_web.cli.commands import cli
from optirs_web.demo_site import export
from optirs_web.demo_site.addresses import PAGES
from optirs_web.demo_site.export import ExportError, export_site
from optirs_web.demo_site.guides import find_guides
from optirs_web.demo_site.pyodide import PYODIDE_CDN
from optirs_web.demo_site.settings import Settings
from optirs_web.demo_site.shader_catalog import list_shaders, shader


@pytest.fixture
def settings(tmp_path):
    """Settings of a site whose bundles are small, with a reference of one page, without Pyodide."""
    static = tmp_path / "static"
    static.mkdir()
    for name in (*PAGES, "theme", "shell", "isolate", "isolation"):
        (static / f"{name}.js").write_text("1")
    (static / "style.css").write_text("p { color: red }")
    (static / "style.css.map").write_text("{}")
    reference = tmp_path / "reference"  # not the clone's, whose scripts hold text that looks like links
    reference.mkdir()
    (reference / "index.html").write_text('<a href="optirs_web.html">optirs_web</a>')
    (reference / "optirs_web.html").write_text('<a href="index.html">index</a>')
    return Settings(data=tmp_path, static=static, reference=reference, pyodide=None)


@pytest.fixture
def without_shaders(monkeypatch):
    """Exports that take no time."""
    monkeypatch.setattr(export, "list_shaders", list)


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_address_of_every_page_is_a_file_beside_it(tmp_path, settings, without_shaders):
    count = export_site(tmp_path / "site", settings)
    files = files_in(tmp_path / "site")
    assert len(files) == count
    pages = [name for name in files if name.endswith(".html")]
    assert "reference/optirs_web.html" in pages
    assert {f"{name}.html" for name in find_guides(settings.clone)} <= {name.removeprefix("docs/") for name in pages}
    for page in pages:
        links = re.findall(r'\b(?:href|src)="([^"#][^"]*)"', files[page].decode())
        for link in (link for link in links if ":" not in link):
            target = urlsplit(urljoin(f"/{page}", unquote(link))).path.removeprefix("/")
            target += "index.html" if target.endswith("/") or not target else ""
            assert not link.startswith("/")
            assert target in files, (page, link)


def test_the_facts_name_files(tmp_path, settings, without_shaders):
    (tmp_path / "pyodide").mkdir()
    lock = {"packages": {"numpy": {"file_name": "numpy.whl", "depends": ["blas"]}}}
    lock["packages"]["blas"] = {"file_name": "blas.zip", "depends": []}
    lock["packages"]["scipy"] = {"file_name": "scipy.whl", "depends": []}
    for name in ("pyodide.mjs", "pyodide.asm.wasm", "numpy.whl", "blas.zip", "scipy.whl"):
        (tmp_path / "pyodide" / name).write_text(name)
    (tmp_path / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock))
    export_site(tmp_path / "site", replace(settings, pyodide=tmp_path / "pyodide"))
    files = files_in(tmp_path / "site")
    facts = json.loads(files["site.json"])
    assert {facts["wheel"], facts["transport"]} <= set(files)
    assert facts["api"] is False
    assert facts["pages"]["digits"] == "digits.html"
    copied = {name for name in files if name.startswith(facts["pyodide"])}
    assert {name.removeprefix("pyodide/") for name in copied} == {
        *("pyodide.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "numpy.whl", "blas.zip")
    }


def test_pyodide_may_come_from_its_cdn(tmp_path, settings, without_shaders):
    export_site(tmp_path / "site", settings)
    files = files_in(tmp_path / "site")
    assert json.loads(files["site.json"])["pyodide"] == PYODIDE_CDN
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', files["digits.html"].decode())
    assert PYODIDE_CDN in policy
    assert "frame-ancestors" not in policy  # browsers complain of it in a page
    assert b"Cross-Origin-Embedder-Policy: require-corp" in files["_headers"]


def test_every_shader_has_its_texts(tmp_path, settings):
    export_site(tmp_path / "site", settings, targets=("wgsl",))
    data = tmp_path / "site" / "data" / "shaders"
    listed = json.loads((data / "index.json").read_bytes())
    assert [entry["name"] for entry in listed] == [info.name for info in list_shaders()]
    assert [target["name"] for target in json.loads((data / "targets.json").read_bytes())] == ["wgsl"]
    for entry in listed:
        about = json.loads((data / entry["folder"] / f"{entry['name']}.json").read_bytes())
        assert about == shader(entry["folder"], entry["name"]).model_dump()
        for variant in about["variants"]:
            text = json.loads((data / entry["folder"] / entry["name"] / variant / "wgsl.json").read_bytes())
            assert text["text"] or text["note"]


def test_an_earlier_export_is_replaced_as_a_whole(tmp_path, settings, without_shaders):
    folder = tmp_path / "site"
    folder.mkdir()  # an empty one will do
    (settings.static / "old.js").write_text("1")
    export_site(folder, settings)
    (settings.static / "old.js").unlink()
    (tmp_path / ".site.export-0123").mkdir()  # what one that was killed has left
    export_site(folder, settings)
    assert "static/old.js" not in files_in(folder)
    assert list(tmp_path.glob(".site*")) == []


def test_two_exports_at_once_leave_each_other_alone(tmp_path, settings, without_shaders):
    folder = tmp_path / "site"

    def report(step):
        """In the middle of an export, another one comes and ends."""
        if step == "Pyodide":
            written.append(export_site(folder, settings))

    written = []
    (tmp_path / "pyodide").mkdir()
    for name in ("pyodide.mjs", "pyodide.asm.wasm"):
        (tmp_path / "pyodide" / name).write_text(name)
    (tmp_path / "pyodide" / "pyodide-lock.json").write_text('{"packages": {}}')
    export_site(folder, replace(settings, pyodide=tmp_path / "pyodide"), report=report)
    assert len(written) == 1
    assert set(json.loads((folder / "export.json").read_bytes())["files"]) == set(files_in(folder))
    assert list(tmp_path.glob(".site*")) == []


def test_a_name_is_no_pattern_for_what_is_removed(tmp_path, settings, without_shaders):
    others = tmp_path / ".my site.export-01234567"
    others.mkdir()
    export_site(tmp_path / "*", settings)
    assert others.is_dir()


def test_the_page_for_a_missing_address_is_right_at_any_depth(tmp_path, settings, without_shaders):
    export_site(tmp_path / "site", replace(settings, public="https://example.org/demo/"))
    page = (tmp_path / "site" / "404.html").read_text()
    links = re.findall(r'\b(?:href|src)="([^"#][^"]*)"', page)
    assert all(link.startswith("/demo/") or ":" in link for link in links), links


@pytest.mark.parametrize(("is_export", "is_link"), [(False, False), (True, False), (True, True)])
def test_what_no_export_wrote_is_not_lost(tmp_path, settings, without_shaders, is_export, is_link):
    folder = tmp_path / "site"
    if is_export:
        export_site(folder, settings)
    folder.mkdir(exist_ok=True)
    if is_link:
        (folder / "CNAME").symlink_to(tmp_path)
    else:
        (folder / "CNAME").write_text("example.org")
    before = files_in(folder)
    with pytest.raises(ExportError, match="CNAME" if is_export else "nor an earlier export"):
        export_site(folder, settings)
    assert files_in(folder) == before
    assert (folder / "CNAME").exists()


@pytest.mark.parametrize("list_of_files", ["", "[]", '{"files": 5}', '{"files": [["x"]]}'])
def test_a_damaged_list_of_files_makes_no_export(tmp_path, settings, list_of_files):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "export.json").write_text(list_of_files)
    with pytest.raises(ExportError, match="nor an earlier export"):
        export_site(tmp_path / "site", settings)


def test_one_that_fails_leaves_the_earlier_one(tmp_path, settings, without_shaders, monkeypatch):
    folder = tmp_path / "site"
    export_site(folder, settings)
    before = files_in(folder)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        export_site(folder, settings)
    assert files_in(folder) == before
    assert list(tmp_path.glob(".site*")) == []


def test_pages_that_are_not_built_are_no_site(tmp_path, settings):
    with pytest.raises(ExportError, match="make bundles"):
        export_site(tmp_path / "site", replace(settings, static=tmp_path / "nowhere"))
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export", "file"], "file is not a folder"),
        (["--export", "full"], "nor an earlier export"),
        (["--export", "/proc/site"], "cannot write to /proc/site"),
        (["--pyodide", "cdn"], "--pyodide is for --export"),
    ],
)
def test_what_cannot_be_exported_is_an_error_of_one_line(tmp_path, monkeypatch, settings, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    monkeypatch.setattr("optirs_web.demo_site.export.why_no_pages", lambda _: "")
    result = CliRunner().invoke(cli, ["demo", *arguments])
    assert result.exit_code != 0
    assert message in result.stderr
    assert "Traceback" not in result.output

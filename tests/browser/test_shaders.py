"""The shaders: every kernel is there, as written and as it runs."""

import re
from importlib.resources import files

import pytest
from click.testing import CliRunner
from demo_servers import running_server
from playwright.sync_api import expect
from requirements import missing

from optirs_web.cli.commands import cli
from optirs_web.translations import TARGETS, missing_compiler


@pytest.fixture
def shaders(page, site):
    """The page with a shader shown."""
    page.goto(f"{site}/shaders?right=none")
    expect(page.locator("#shader")).to_have_attribute("aria-busy", "false")
    return page


def source(folder, name):
    return files("optirs_web.shaders").joinpath(folder, f"{name}.wgsl").read_text("utf-8")


def test_every_shader_shows_its_source(shaders):
    root = files("optirs_web.shaders")
    folders = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith("_")]
    written = {
        (folder.name, file.name) for folder in folders for file in folder.iterdir() if file.name.endswith(".wgsl")
    }
    links = shaders.locator("#list a")
    assert links.count() == len(written)
    seen = set()
    for link in links.all():
        link.click()
        name = link.inner_text()
        expect(shaders.locator("#name")).to_have_text(name)
        expect(shaders.locator("#left-origin")).to_contain_text(f"/{name}.wgsl")
        folder = shaders.locator("#left-origin").inner_text().split("/")[1]
        assert shaders.locator("#left-code").text_content() == source(folder, name)
        seen.add((folder, f"{name}.wgsl"))
    assert seen == written


NEEDS = {"ptx": "nvrtc", "spirv": "naga", "msl": "naga", "hlsl": "naga", "stablehlo": "xla"}


@pytest.mark.needs("nvrtc", "xla")
@pytest.mark.parametrize("name", ["adam", "adam/advance", "matmul", "relu"])
def test_a_side_shows_what_the_command_line_prints_for_each_target(page, site, name):
    page.goto(f"{site}/shaders?right=none#{name}")
    absent = {target: missing_compiler(target) for target in TARGETS}
    for target in TARGETS:
        page.locator("#left-target").select_option(target)
        expect(page.locator("#left-origin")).to_contain_text(f"--target {target}")
        expect(page.locator("#left")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#left-note")).not_to_have_text("Compiling on the server…")
        if absent[target]:
            continue
        printed = CliRunner().invoke(cli, page.locator("#left-origin").inner_text().split()[1:])
        if printed.exit_code == 0:
            assert page.locator("#left-code").text_content() == printed.stdout.rstrip("\n")
        else:
            assert (name, target) in [("matmul", target) for target in ("numpy", "numba", "jax", "stablehlo")]
            assert page.locator("#left-note").inner_text()[1:].rstrip(".") in printed.stderr  # it begins with a capital
            expect(page.locator("#left-code")).to_be_hidden()
    for target, message in absent.items():
        if message:
            missing(NEEDS[target], message)


def test_a_compiler_that_is_absent_is_named_with_how_to_install_it(page, tmp_path, monkeypatch, fits):
    names = ("wasmtime", "cuda.bindings", "jax")
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names}))\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with running_server(tmp_path / "demo") as (_, url):
        for target, install in [("msl", "'optirs-web[naga]'"), ("ptx", "'optirs-web[cuda]'"), ("stablehlo", "'jax>=")]:
            page.goto(f"{url}/shaders?right={target}#adam")
            expect(page.locator("#right-note")).to_contain_text(f"pip install {install}")
            expect(page.locator("#right-target option:checked")).to_contain_text("not installed")
            expect(page.locator("#right-code")).to_be_hidden()
            expect(page.locator("#left-code")).to_contain_text("fn advance(")
            expect(page.locator("#missing")).to_contain_text(f"pip install {install}")
        fits(page, "shaders-absent")


def test_what_a_visitor_chooses_is_in_the_address_and_stays(page, site):
    page.goto(f"{site}/shaders#adam")
    expect(page.locator("#left-target")).to_have_value("source")
    expect(page.locator("#right-target")).to_have_value("cuda")
    page.get_by_label("First language", exact=True).locator("select").select_option("OpenCL C")
    page.get_by_label("Second language", exact=True).locator("select").select_option("Python for Numba")
    expect(page).to_have_url(f"{site}/shaders?left=opencl&right=numba#adam")
    expect(page.locator("#left-code")).to_contain_text("__kernel")
    page.reload()
    expect(page.locator("#left-code")).to_contain_text("__kernel")
    expect(page.locator("#right-code")).to_contain_text("prange")
    page.get_by_role("link", name="matmul", exact=True).click()
    expect(page).to_have_url(f"{site}/shaders?left=opencl&right=numba#matmul")
    expect(page.locator("#left-code")).to_contain_text("__kernel")
    expect(page.locator("#right-note")).to_have_text(
        "'matmul' has no Numba text: it is written by hand there, with calls of NumPy."
    )
    page.goto(f"{site}/shaders?left=none&right=nothing#relu")  # which are no languages
    expect(page.locator("#left-target")).to_have_value("source")
    expect(page.locator("#right-target")).to_have_value("cuda")


def test_a_language_is_chosen_by_the_keyboard_and_said(shaders):
    select = shaders.locator("#left-target")
    select.focus()
    select.press("ArrowDown")
    expect(select).to_have_value("wgsl")
    expect(shaders.locator("#left-code")).to_contain_text("@compute")
    expect(shaders.get_by_role("status").filter(has_text="WGSL, complete of update")).to_have_count(1)
    assert shaders.locator("#left-code span[class^=tok-]").count() > 10
    select.press("Tab")
    expect(shaders.locator("#left-copy")).to_be_focused()


def test_a_text_that_comes_late_does_not_replace_another(page, site):
    held = []
    page.route("**/api/shaders/optimizers/adam/update/opencl", lambda route: held.append(route))
    page.goto(f"{site}/shaders?left=opencl#adam")
    expect(page.locator("#left-note")).to_have_text("Compiling on the server…")
    page.locator("#left-target").select_option("jax")
    expect(page.locator("#left-code")).to_contain_text("jax.numpy")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/adam/update/opencl")):
        held[0].continue_()
    expect(page.locator("#shader")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#left-code")).to_contain_text("jax.numpy")


@pytest.mark.parametrize("name", ["adam", "lion", "muon", "reptile"])
def test_an_optimizer_has_its_formula(page, site, name):
    page.goto(f"{site}/shaders#{name}")
    expect(page.locator("#formula")).to_contain_text(re.compile(r"^param = param ", re.MULTILINE))


def test_a_busy_server_is_asked_again(shaders):
    page = shaders
    busy = {"error": {"code": "busy", "message": "The server is compiling for other clients."}}
    page.route("**/adam/update/opencl", lambda route: route.fulfill(status=503, json=busy), times=1)
    page.clock.install(time=0)
    page.clock.pause_at(60)  # so that the answer is there for as long as it takes to see it
    page.locator("#left-target").select_option("opencl")
    expect(page.locator("#left-note")).to_have_text(busy["error"]["message"])
    page.clock.run_for(1000)
    expect(page.locator("#left-code")).to_contain_text("__kernel")
    expect(page.locator("#left-note")).to_be_hidden()
    assert len(page.complaints) == 1  # Chromium's, of the status
    page.complaints.clear()


def test_without_the_server_what_is_shown_stays(shaders):
    shaders.context.set_offline(True)
    shaders.get_by_role("link", name="lion", exact=True).click()
    expect(shaders.locator(".toast")).to_have_text(
        re.compile("^“lion” could not be loaded. The server cannot be reached")
    )
    expect(shaders.locator("#shader")).to_have_attribute("aria-busy", "false")
    expect(shaders.locator("#name")).to_have_text("adam")
    expect(shaders).to_have_url(re.compile("#adam$"))
    shaders.context.set_offline(False)
    shaders.get_by_role("link", name="lion", exact=True).click()
    expect(shaders.locator("#name")).to_have_text("lion")
    shaders.complaints.clear()  # the request that failed


def test_two_languages_stand_side_by_side_and_on_a_phone_one_above_the_other(page, site, fits):
    page.goto(f"{site}/shaders?left=wgsl&right=numpy#adam")
    expect(page.locator("#right-code")).to_contain_text("def ")
    fits(page, "shaders-side-by-side")
    left, right = (page.locator(selector).bounding_box() for selector in ("#left", "#right"))
    assert left["y"] + left["height"] <= right["y"]
    page.set_viewport_size({"width": 1440, "height": 900})
    left, right = (page.locator(selector).bounding_box() for selector in ("#left", "#right"))
    assert left["x"] + left["width"] <= right["x"]
    assert left["y"] == right["y"]
    page.locator("#right-target").select_option("None")
    expect(page.locator("#right-code")).to_be_hidden()
    assert page.locator("#left").bounding_box()["width"] > 1.5 * left["width"]


def test_the_filter_finds_flags_and_says_how_many(shaders):
    shaders.get_by_label("Filter").fill("nesterov")
    expect(shaders.locator("#list a")).to_have_text(["lars", "muon", "nadam", "sgd"])
    expect(shaders.locator("#list-count")).to_have_text(re.compile(r"^4 of \d+ shaders$"))
    shaders.get_by_label("Filter").fill("nothing at all")
    expect(shaders.locator("#list a")).to_have_count(0)

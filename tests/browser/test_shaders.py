"""The shaders: every kernel is there, as written and as it runs."""

import re
from importlib.resources import files

import pytest
from playwright.sync_api import expect


@pytest.fixture
def shaders(page, site):
    """The page with a shader shown."""
    page.goto(f"{site}/shaders")
    expect(page.locator("#shader")).to_have_attribute("aria-busy", "false")
    return page


def source(folder, name):
    return files("optirs_web.shaders").joinpath(folder, f"{name}.wgsl").read_text("utf-8")


def test_every_shader_shows_its_source(shaders):
    root = files("optirs_web.shaders")
    folders = [one for one in root.iterdir() if one.is_dir() and not one.name.startswith("_")]
    written = {(folder.name, one.name) for folder in folders for one in folder.iterdir() if one.name.endswith(".wgsl")}
    links = shaders.locator("#list a")
    assert links.count() == len(written)
    seen = set()
    for link in links.all():
        link.click()
        name = link.inner_text()
        expect(shaders.locator("#name")).to_have_text(name)
        expect(shaders.locator("#file")).to_contain_text(f"/{name}.wgsl")
        folder = shaders.locator("#file").inner_text().split("/")[1]
        assert shaders.locator("#code").inner_text().rstrip("\n") == source(folder, name).rstrip("\n")
        seen.add((folder, f"{name}.wgsl"))
    assert seen == written


@pytest.mark.parametrize(
    ("hash_", "tab", "language", "expected"),
    [
        ("adam", "As written", "wgsl", "fn advance("),
        ("adam", "WGSL that runs", "wgsl", "@compute"),
        ("adam/advance", "WGSL that runs", "wgsl", "@compute"),
        ("adam", "Python for NumPy", "numpy", "def "),
        ("matmul", "WGSL that runs", "wgsl", "workgroupBarrier"),
        ("matmul", "OpenCL C", "opencl", "__kernel"),
        ("adam", "CUDA C++", "cuda", "__global__"),
    ],
)
def test_a_link_opens_a_shader_and_a_tab_its_translation(page, site, hash_, tab, language, expected):
    page.goto(f"{site}/shaders#{hash_}")
    page.get_by_role("tab", name=tab).click()
    expect(page.locator("#code")).to_contain_text(expected)
    assert page.locator("#code span[class^=tok-]").count() > 10


@pytest.mark.parametrize("name", ["adam", "lion", "muon", "reptile"])
def test_an_optimizer_has_its_formula(page, site, name):
    page.goto(f"{site}/shaders#{name}")
    expect(page.locator("#formula")).to_contain_text(re.compile(r"^param = param ", re.MULTILINE))


def test_a_cooperative_kernel_has_no_numpy_text(page, site):
    page.goto(f"{site}/shaders#matmul")
    expect(page.get_by_role("tab")).to_have_text(["As written", "WGSL that runs", "OpenCL C", "CUDA C++"])


def test_tabs_follow_the_arrow_keys(shaders, screenshot):
    shaders.get_by_role("tab", name="As written").press("ArrowRight")
    expect(shaders.get_by_role("tab", name="WGSL that runs")).to_be_focused()
    expect(shaders.get_by_role("tab", name="WGSL that runs")).to_have_attribute("aria-selected", "true")
    screenshot(shaders, "shaders")
    shaders.keyboard.press("End")
    shaders.keyboard.press("ArrowRight")
    expect(shaders.get_by_role("tab", name="As written")).to_be_focused()


def test_two_languages_stand_side_by_side(page, site, fits):
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{site}/shaders#adam")
    expect(page.locator("#panel-beside")).to_be_hidden()
    page.get_by_label("Beside it", exact=True).select_option("Beside it: Python for NumPy")
    expect(page.locator("#code")).to_contain_text("fn advance(")
    expect(page.locator("#code-beside")).to_contain_text("def ")
    left, right = (page.locator(one).bounding_box() for one in ("#panel", "#panel-beside"))
    assert left["x"] + left["width"] <= right["x"]
    assert left["y"] == right["y"]
    fits(page, "shaders-side-by-side")
    page.get_by_role("tab", name="Python for NumPy").click()
    expect(page.locator("#panel-beside")).to_be_hidden()  # it is not beside itself
    page.get_by_role("tab", name="WGSL that runs").click()
    expect(page.locator("#code-beside")).to_contain_text("def ")
    page.goto(f"{site}/shaders#matmul")
    expect(page.locator("#code")).to_contain_text("workgroupBarrier")
    expect(page.locator("#panel-beside")).to_be_hidden()


def test_the_filter_finds_flags_and_says_how_many(shaders):
    shaders.get_by_label("Filter").fill("nesterov")
    expect(shaders.locator("#list a")).to_have_text(["lars", "muon", "nadam", "sgd"])
    expect(shaders.locator("#count")).to_have_text(re.compile(r"^4 of \d+ shaders$"))
    shaders.get_by_label("Filter").fill("nothing at all")
    expect(shaders.locator("#list a")).to_have_count(0)

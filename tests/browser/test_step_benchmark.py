"""The benchmark of products and training steps in the browser: `benchmarks/browser/steps.py`."""

import json
import statistics
import subprocess
import sys

import pytest
from chromium import ROOT, chromium_path
from requirements import missing

from optirs_web.benchmarks.suite import Report
from optirs_web.demo_site.library import library_wheel, wheel_name

FOLDER = ROOT / "benchmarks/browser"
CASES = ["mlp-64-128-10", "gpt", "resnet18-16"]
pytestmark = pytest.mark.needs("webgpu", "jax-js")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The figures of a small perceptron and of the miniatures of a GPT and a ResNet, and what was printed."""
    if chromium_path() is None:
        missing("webgpu", "no Chromium: sh scripts/setup_browser.sh")
    if not (FOLDER / "node_modules/.package-lock.json").is_file():
        missing("jax-js", f"npm ci in {FOLDER}")
    folder = tmp_path_factory.mktemp("steps")
    (folder / wheel_name()).write_bytes(library_wheel())
    places = ["--wheel", folder / wheel_name(), "--chromium", chromium_path(), "--json", folder / "figures.json"]
    places += ["--report", folder / "report.json"]
    sides = ["--side", "jax-js", "--side", "TF.js"]  # borch would be downloaded
    command = [sys.executable, FOLDER / "steps.py", *CASES, "--small", "--rounds", "1", "--markdown", *sides, *places]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    report = Report.read(folder / "report.json")
    return json.loads((folder / "figures.json").read_text("utf-8")), run.stdout, report


@pytest.mark.parametrize("case", CASES)
def test_every_library_computes_the_same_losses(measured, case):
    figures, *_ = measured
    sides = figures["cases"][case]["sides"]
    assert list(sides) == ["ours", "jax-js", "TF.js"]
    ours = sides["ours"]["values"]
    assert ours == sorted(ours, reverse=True)  # it learns
    for side in sides.values():
        assert side["values"] == pytest.approx(ours, rel=1e-4)
        assert side["difference"] <= figures["tolerances"][case]


def test_every_round_is_kept_and_the_ratios_are_of_them(measured):
    figures, *_ = measured
    case = figures["cases"]["mlp-64-128-10"]
    ours = case["sides"]["ours"]["milliseconds"]
    for side in case["sides"].values():
        assert len(side["milliseconds"]) == len(side["cpu"]) == case["rounds"] >= 1
        ratios = [mine / other for mine, other in zip(ours, side["milliseconds"], strict=True)]
        assert side["ratio"] == pytest.approx(statistics.median(ratios))


def test_the_report_has_the_ratios_of_every_rival(measured):
    figures, _, report = measured
    assert [result.case for result in report.results] == [f"page/{case}" for case in CASES]
    for result, case in zip(report.results, CASES, strict=True):
        for rival in ("jax-js", "TF.js"):
            expected = figures["cases"][case]["sides"][rival]["ratio"]
            assert result.ratio(rival).median == pytest.approx(expected, rel=1e-4)


def test_the_table_names_every_rival_whether_it_is_faster_or_not(measured):
    figures, printed, _ = measured
    assert "| case | ours, ms | ours / jax-js | ours / TF.js | rounds |" in printed
    libraries = ", ".join(f"{name} {version}" for name, version in figures["libraries"].items())
    assert f"Chromium {figures['chromium']}, {figures['adapter']}, {libraries}, {figures['date']}\n" in printed


def test_an_unknown_case_is_refused_by_name():
    command = [sys.executable, FOLDER / "steps.py", "lstm"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "there is no case 'lstm': product-128" in run.stderr

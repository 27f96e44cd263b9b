"""The benchmark suite: what it measures, what it says of it, and that the documentation is what was measured."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import optirs_web as ow
from optirs_web.benchmarks import starting, timing
from optirs_web.benchmarks.cases import CASES, GROUPS
from optirs_web.benchmarks.counting import counts_of, peak_of
from optirs_web.benchmarks.denominators import COPY, PRODUCT
from optirs_web.benchmarks.libraries import NotOffered, rival
from optirs_web.benchmarks.libraries.ours import Ours
from optirs_web.benchmarks.report import amount_text, grown, markdown, ratio_text
from optirs_web.benchmarks.results import Result
from optirs_web.benchmarks.starting import stage_seconds
from optirs_web.benchmarks.suite import Report
from optirs_web.cli import bench as bench_command
from optirs_web.cli.commands import cli

ROOT = Path(__file__).parent.parent
PNG = b"\x89PNG\r\n\x1a\n"
REPORTS = sorted((ROOT / "optirs_web/benchmarks/reports").glob("*.json"))


def result(**changes):
    facts = {"case": "products/128", "device": "cpu", "times": {"ours": [1.0, 2.0, 3.0], "torch": [2.0, 2.0, 2.0]}}
    return Result.from_json({**facts, **changes})


def report(*results):
    devices = {"cpu": {"description": "a processor", "kind": "cpu", "rates": {}}}
    machine = {"processor": "P", "cores": 2, "system": "S", "versions": {"python": "3"}, "settings": {}}
    return Report("2026-01-01", "optirs-web bench", machine, devices, list(results))


def bench(*arguments):
    return CliRunner().invoke(cli, ["bench", *map(str, arguments)])


# Times.


def side(seconds_of_each):
    inputs = iter(seconds_of_each)
    return timing.Side(lambda: next(inputs), own_clock=True)


def test_sides_alternate_and_each_round_has_one_time_of_each():
    times = timing.race({"ours": side([9, *[1.0] * 4]), "torch": side([9, *[2.0] * 4])}, 3)
    assert times == {"ours": [1.0] * 3, "torch": [2.0] * 3}


def test_rounds_are_added_while_a_ratio_spreads_and_no_more_than_three_times_as_many():
    unsteady = [9.0, *[0.3, 0.6] * 10]
    assert len(timing.race({"ours": side(unsteady), "torch": side([0.3] * 21)}, 3)["ours"]) == 9
    settled = [9.0, 0.3, 0.3, 0.6, 0.3, *[0.3] * 9]
    assert 3 < len(timing.race({"ours": side(settled), "torch": side([0.3] * 21)}, 3)["ours"]) < 9


def test_a_ratio_is_of_the_same_round_and_a_share_of_the_denominator():
    one = result(times={"ours": [1.0, 4.0], "torch": [2.0, 8.0], COPY: [0.5, 2.0]}, nbytes=10.0, amounts={COPY: 20.0})
    assert one.ratio("torch") == (0.5, 0.0)
    assert one.share() == (0.25, 0.0)  # 10 bytes in a second, of 40
    assert one.rivals == ["torch"]


# Counts.


def test_counts_are_those_of_one_call(device):
    x = ow.ones((64, 32), device=device)
    call = lambda: x @ x.T  # noqa: E731
    call()
    counts = counts_of(device, call)
    assert (counts["dispatches"], counts["submits"], counts["bytes_up"], counts["bytes_down"]) == (1, 1, 0, 0)
    assert peak_of(device, call) >= 4 * 64 * 64
    assert counts_of(device, lambda: x.numpy())["bytes_down"] == 4 * 64 * 32


# Cases.


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.compares and case.operations < 1e8])
def test_ours_and_numpy_compute_the_same(name, open_device):
    cpu = open_device("cpu")
    ours, numpy = Ours(cpu), rival("numpy", cpu)
    expected = numpy.values(CASES[name].make(numpy)())
    assert np.abs(ours.values(CASES[name].make(ours)()) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["attention/causal-gradients", "reduce/cross-entropy-gradients"])
def test_ours_and_torch_compute_the_same(name, torch, open_device):
    cpu = open_device("cpu")
    ours, theirs = (CASES[name].make(library)() for library in (Ours(cpu), rival("torch", cpu)))
    for tensor, other in zip(ours if isinstance(ours, tuple) else [ours], theirs, strict=True):
        np.testing.assert_allclose(tensor.numpy(), other.numpy(), atol=1e-5)


@pytest.mark.needs("torch")
def test_the_peak_of_torch_is_what_its_storages_take(torch):
    from optirs_web.benchmarks.libraries.torch_memory import Live

    with Live() as live:
        x = torch.ones(1000)
        y = x + 1.0
        del x
        y = y * 2.0
        del y
    assert live.peak == 8000


def test_what_a_rival_does_not_offer_is_noted():
    with pytest.raises(NotOffered, match="no gradients"):
        CASES["attention/full-gradients"].make(rival("numpy", ow.device("cpu")))
    measured = ow.benchmarks.Benchmark("attention/full-gradients", "cpu", ["numpy"], rounds=2).run()
    assert "numpy" in measured.notes
    assert PRODUCT in measured.times


def fail(*_, **__):
    raise MemoryError("no room")


def test_a_rival_that_fails_is_noted(monkeypatch):
    numpy = type(rival("numpy", ow.device("cpu")))
    for method in ("gradients", "peak_memory"):  # one makes the call that is timed, one measures
        monkeypatch.setattr(numpy, method, fail)
    for case in ("attention/full-gradients", "memory/mlp"):
        measured = ow.benchmarks.Benchmark(case, "cpu", ["numpy"], rounds=2).run()
        assert measured.notes == {"numpy": "failed with MemoryError: no room"}
        assert measured.rivals == []


def test_a_rival_whose_process_fails_is_noted(monkeypatch):
    monkeypatch.setitem(starting._STAGES, "numpy", ("import no_such_package", "", ""))
    measured = ow.benchmarks.Benchmark("startup/import", "cpu", ["numpy"], rounds=2).run()
    assert "No module named 'no_such_package'" in measured.notes["numpy"]
    assert measured.rivals == []


def test_an_unknown_rival_and_too_few_rounds_are_refused():
    with pytest.raises(ValueError, match="there is no library json; there are torch, jax"):
        ow.benchmarks.Benchmark("products/128", "cpu", ["json"])
    with pytest.raises(ValueError, match="rounds must be at least 1, not 0"):
        ow.benchmarks.Benchmark("products/128", "cpu", rounds=0)


def test_a_function_is_compared_with_functions():
    x = ow.ones((8, 8), device="cpu")
    measured = ow.benchmarks.Benchmark(lambda: x + 1.0, "cpu", {"nothing": lambda: None}, rounds=2).run()
    assert measured.ratio("nothing").median > 1
    with pytest.raises(ValueError, match="a function is compared with functions"):
        ow.benchmarks.Benchmark(lambda: x, "cpu", ["torch"])
    with pytest.raises(ValueError, match="no case 'products/7'"):
        ow.benchmarks.Benchmark("products/7", "cpu")


def test_the_library_does_not_load_the_suite():
    program = "import sys, optirs_web as ow; ow.ones((2,), device='cpu'); print('optirs_web.benchmarks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


# The command.


def test_bench_prints_writes_draws_and_compares(tmp_path):
    file, picture = tmp_path / "report.json", tmp_path / "plot.png"
    arguments = "--case", "products/128", "--device", "cpu", "--against", "numpy", "--rounds", 2
    done = bench("products", *arguments, "--json", file, "--plot", picture)
    assert done.exit_code == 0, done.output
    assert "share of numpy's" in done.output
    assert picture.read_bytes().startswith(PNG)
    read = Report.read(file)
    assert [read_result.case for read_result in read.results] == ["products/128"]
    assert read.devices["cpu"]["rates"][PRODUCT]["rate"] > 0
    assert read.results[0].counts["dispatches"] == 1

    facts = json.loads(file.read_text())
    facts["results"][0]["counts"]["dispatches"] = 0
    file.write_text(json.dumps(facts))
    done = bench("products", *arguments, "--compare", file, "--check")
    assert done.exit_code == 1
    assert "products/128 on cpu: 1 dispatches, 0 before" in done.output


@pytest.mark.parametrize(("arguments", "said"), [
    (["product"], "there is no group product; there are steps, products,"),
    (["--against", "tensorflow"], "no library tensorflow"),
    (["--case", "products/7"], "no case products/7"),
    (["--check"], "--check compares counts with those of --compare"),
    (["--compare", __file__], "--compare"),
    (["--json", "/no/such/report.json"], "--json: there is no folder /no/such"),
    (["--plot", "/no/such/plot.png"], "--plot: there is no folder /no/such"),
    (["--plot", "/proc/plot.png"], "--plot: /proc: "),
    (["attention", "--case", "products/128"], "products/128 is not of attention"),
])  # fmt: skip
def test_bench_says_what_is_wrong_before_it_measures(arguments, said, monkeypatch):
    monkeypatch.setattr(bench_command, "run", None)
    done = bench(*arguments)
    assert done.exit_code == 2
    assert said in done.output


def test_bench_draws_nothing_without_matplotlib_and_says_so_before_it_measures(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_command, "run", None)
    monkeypatch.setattr(bench_command, "find_spec", lambda name: None)
    done = bench("--plot", tmp_path / "plot.png")
    assert done.exit_code == 2
    assert "pip install 'optirs-web[train]'" in done.output


@pytest.mark.parametrize("file", [["--json", "a.json"], ["--json=a.json"]])
def test_a_report_says_what_was_run_and_not_where_it_was_written(monkeypatch, file):
    monkeypatch.setattr(sys, "argv", ["optirs-web", "bench", "train", *file, "--rounds", "3"])
    assert bench_command._command() == "optirs-web bench train --rounds 3"


@pytest.mark.needs("torch")
def test_torch_on_the_processor_copies_nothing_down(torch):
    with pytest.raises(NotOffered, match="without a copy"):
        CASES["transfer/down-4-KiB"].make(rival("torch", ow.device("cpu")))


def test_a_start_is_measured_without_the_settings_of_the_suite(monkeypatch):
    monkeypatch.setenv("OPTIRS_CPU", "numba")
    [seconds] = stage_seconds(["import os; assert 'OPTIRS_CPU' not in os.environ"])
    assert seconds >= 0


# What is said of it.


def test_a_losing_row_and_its_spread_are_shown():
    text = markdown(report(result(times={"ours": [3.0, 4.0, 5.0], "torch": [1.0, 1.0, 1.0]})))
    assert "| products/128 | 4.00 s |  | 4.00 ±12% |" in text


@pytest.mark.parametrize(
    ("ours", "text"),
    [(0.0031, "0.0031"), (0.0499, "0.050"), (0.0949, "0.095"), (0.0996, "0.10"), (0.414, "0.41"), (12.0, "12.00")],
)
def test_a_small_ratio_has_two_significant_digits(ours, text):
    measured = result(times={"ours": [ours] * 3, "torch": [1.0] * 3})
    assert ratio_text(measured.ratio("torch")) == text


def test_each_published_table_has_a_heading_and_a_command_of_its_own():
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    for lines in (re.findall("^## .*", page, re.MULTILINE), re.findall("^    .*", page, re.MULTILINE)):
        assert len(lines) >= len(REPORTS)
        assert len(set(lines)) == len(lines)


def test_counts_that_grew_are_told():
    now, before = result(counts={"dispatches": 3, "submits": 1}), result(counts={"dispatches": 2, "submits": 1})
    assert grown([now], [before]) == ["products/128 on cpu: 3 dispatches, 2 before"]
    assert grown([before], [now]) == []


@pytest.mark.parametrize(("value", "text"), [(0.0123, "12.3 ms"), (999.0, "999 s"), (1e-9, "0.00 µs")])
def test_numbers_have_three_digits_and_a_prefix(value, text):
    assert amount_text(value, "s") == text


def test_the_page_of_benchmarks_is_what_its_reports_give():
    script = runpy.run_path(str(ROOT / "scripts/make_benchmarks.py"))
    assert script["PAGE"].read_text("utf-8") == script["page"]()


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_committed_reports_are_of_cases_that_there_are(path):
    of_pages = (ROOT / "benchmarks/browser/steps.py").read_text("utf-8")
    for result_ in Report.read(path).results:
        group, _, name = result_.case.partition("/")
        assert f'"{name}": ' in of_pages if group == "page" else result_.case in CASES
    assert {case.group for case in CASES.values()} == set(GROUPS)

"""`optirs-web parity`: the ulps that it counts, the table that it prints, and when it fails."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import optirs_web as ow
from optirs_web.cli import parity as parity_module
from optirs_web.cli.commands import cli
from optirs_web.cli.parity_rows import rows

F32 = np.float32
MAX = np.finfo(F32).max
NAMES = ["exp", "divide", "f32_to_i32", "less_f32", "eye", "sum", "AdamW", "SparseAdam", "SOAP"]


def run(*arguments):
    return CliRunner().invoke(cli, ["parity", *arguments])


@pytest.mark.parametrize(
    ("got", "wanted", "operand", "ulps"),
    [
        (F32(1), np.float64(1), 1, 0),
        (np.nextafter(F32(1), F32(2)), np.float64(1), 1, 1),
        (np.nextafter(F32(1), F32(2)), np.float64(1), 1024, 2**-10),
        (F32(0.1), np.float64(F32(0.1)) + 2.0**-29, 0, 0.25),
        (F32(np.nan), np.float64(np.nan), 1, 0),
        (F32(np.nan), np.float64(1), 1, math.inf),
        (F32(1), np.float64(np.inf), 1, math.inf),
        (F32(np.inf), np.float64(MAX), 1, 1),
        (F32(np.inf), np.float64(1e300), 1, 0),
        (F32(0), np.float64(1e-39), 0, 0),
        (np.int32(3), np.int32(3), 1, 0),
        (np.int32(3), np.int32(4), 1, math.inf),
        (np.bool_(True), np.bool_(False), 1, math.inf),
    ],
)
def test_ulps_are_those_of_the_largest_operand(got, wanted, operand, ulps):
    actual = parity_module.ulps(np.array([got]), np.array([wanted]), [np.array([operand], F32)])
    assert actual >= 2**23 if math.isinf(ulps) else actual == ulps


def test_devices_are_compared_with_float64_or_with_the_first(open_device):
    open_device("vulkan")
    result = run(*NAMES, "--device", "cpu", "--device", "vulkan", "--json")
    assert result.exit_code == 0
    actual = {row["name"]: row for row in json.loads(result.stdout)["rows"]}
    assert set(actual) == set(NAMES)
    for entry in actual.values():
        assert set(entry["ulps"]) == {"cpu", "vulkan"}
        assert (entry["above"], entry["failed"]) == (False, {})
    assert 0.1 < actual["exp"]["ulps"]["vulkan"] < 2
    assert actual["exp"]["reference"] == actual["sum"]["reference"] == "float64"
    assert actual["AdamW"]["reference"] == "cpu"
    assert actual["SOAP"]["ulps"]["vulkan"] < 4
    assert actual["f32_to_i32"]["ulps"] == actual["less_f32"]["ulps"] == {"cpu": 0, "vulkan": 0}


def test_what_is_above_the_bound_is_marked_and_fails(monkeypatch):
    assert run("exp", "negate", "--device", "cpu").exit_code == 0
    monkeypatch.setattr(parity_module, "BOUND", 0.1)
    result = run("EXP", "negate", "--device", "cpu")  # case does not matter
    assert result.exit_code == 1
    lines = {line.split()[2]: line for line in result.output.splitlines() if line.startswith("map function")}
    assert "above the bound" in lines["exp"]
    assert "above the bound" not in lines["negate"]
    assert "2 map functions, 1 of them above 0.1 ulps" in result.output


def test_a_map_function_that_a_device_cannot_compute_fails(monkeypatch):
    def refuse(*_, **__):
        raise ow.errors.UnsupportedError("no such built-in here")

    monkeypatch.setattr(
        parity_module, "rows", lambda: [row._replace(compute=refuse) for row in rows() if row.name == "exp"]
    )
    result = run("--device", "cpu")
    assert result.exit_code == 1
    assert "exp on cpu: no such built-in here" in result.output


def test_a_table_of_markdown():
    lines = run("exp", "sum", "--device", "cpu", "--markdown").output.splitlines()
    assert lines[0] == "| kind | name | compared with | cpu |  |"
    assert [line.split("|")[2].strip() for line in lines] == ["name", "---", "exp", "sum"]


def test_the_names_of_the_rows_are_listed():
    listed = run("--list").output
    assert listed.startswith("map functions:\n  abs\n")
    assert all(f"\n{kind}s:\n" in listed for kind in ("operation", "optimizer"))
    assert [line[2:] for line in listed.splitlines() if line.startswith("  ")] == [row.name for row in rows()]


def test_a_row_that_is_not_there_and_a_device_that_is_not_there():
    result = run("exq", "--device", "cpu")
    assert result.exit_code == 2
    assert "there is no row 'exq' (did you mean 'exp'?); `optirs-web parity --list` lists them" in result.stderr
    result = run("exp", "--device", "vulcan")
    assert result.exit_code == 1
    assert "vulcan" in result.output

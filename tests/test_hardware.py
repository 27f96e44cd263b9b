"""`optirs-web check` and `optirs-web hardware`: the measurements of a new GPU, tried on a software adapter."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import optirs_web as ow
from optirs_web.cli import check, hardware
from optirs_web.cli.commands import cli

BRIEF = ["--device", "vulkan", "--brief", "--part", "parity", "--part", "tuning"]


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def parts_of(file):
    return json.loads(file.read_text())["devices"]["vulkan"]["parts"]


def ps(*arguments):
    return subprocess.run(["ps", *map(str, arguments)], capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_check_says_what_an_adapter_does(open_device, tmp_path, monkeypatch):
    open_device("vulkan")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "check.json"
    done = run("check", "--device", "vulkan", "--json", file)
    assert done.exit_code == 0, done.output
    facts = json.loads(file.read_text())
    device = facts["devices"]["vulkan"]
    assert {"exp", "matmul", "AdamW"} <= device["parity"].keys()
    assert device["bandwidth"] > 0
    assert device["product"]["rate"] > 0
    assert device["limits"]["max_workgroups"] >= 65535
    assert {entry["name"] for entry in facts["adapters"]} >= {"cpu", "vulkan"}
    assert not any("host" in entry for entry in facts["adapters"])  # the machine's name
    assert "share of arithmetic" in done.output
    assert "0x0" not in done.output  # which stands for quads


@pytest.mark.slow
def test_a_run_that_was_killed_continues(open_device, tmp_path):
    open_device("vulkan")
    file = tmp_path / "hardware.json"
    command = [sys.executable, "-m", "optirs_web", "hardware", *BRIEF, "--json", str(file)]
    process = subprocess.Popen(command, start_new_session=True)
    while not file.exists() or not (part := ps("-o", "pid=", "--ppid", process.pid)):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert parts_of(file).keys() == {"parity"}
    while not {*"".join(ps("-o", "stat=", "-p", part[0]))} <= {"Z", "s"}:  # the part that was running ends too
        time.sleep(0.2)
    assert parts_of(file)["parity"]["facts"]["above"] == []

    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "parity on vulkan: done, from before" in done.stdout
    assert parts_of(file)["tuning"]["status"] == "done"
    assert "| vulkan: not yet | 2 of 2 rows | not yet |" in done.stdout


def test_a_part_that_fails_or_hangs_stops_no_other(tmp_path, monkeypatch):
    file = tmp_path / "hardware.json"
    monkeypatch.setitem(hardware.PARTS, "parity", hardware.PARTS["parity"]._replace(limit=0.01))
    done = run("hardware", "--device", "dx12", "--part", "parity", "--part", "tuning", "--brief", "--json", file)
    assert done.exit_code == 0, done.output
    parts = json.loads(file.read_text())["devices"]["dx12"]["parts"]
    assert parts["parity"]["status"] == "timed out"
    assert parts["tuning"]["status"] == "failed"
    assert "dx12" in parts["tuning"]["error"]


@pytest.mark.parametrize("content", ["{}", "not JSON"])
def test_a_file_of_something_else_is_not_overwritten(tmp_path, content):
    file = tmp_path / "hardware.json"
    file.write_text(content)
    done = run("hardware", "--json", file, "--device", "cpu")
    assert done.exit_code == 2
    assert "was not written by this version" in done.output
    assert file.read_text() == content


@pytest.mark.parametrize("command", ["check", "hardware"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(command):
    done = run(command, "--device", "cpu", "--json", "/no/such/report.json")
    assert done.exit_code == 2
    assert "there is no folder /no/such" in done.output


def test_a_device_that_does_not_exist_is_refused_before_another_is_checked(monkeypatch):
    monkeypatch.setattr(check, "checked", None)
    done = run("check", "--device", "cpu", "--device", "gpu")
    assert done.exit_code == 1
    assert "there is no device 'gpu'" in done.output


@pytest.mark.parametrize("command", ["check", "hardware"])
def test_without_a_gpu_nothing_is_measured(command, monkeypatch, tmp_path):
    monkeypatch.setattr(ow, "devices", list)
    done = run(command, "--json", tmp_path / "report.json")
    assert done.exit_code == 1
    assert "there is no hardware GPU here" in done.output


def test_the_table_names_a_device_whose_check_failed_and_the_kernels_of_one_that_was_checked(tmp_path):
    product = {"rate": 1e12, "of_arithmetic": 0.5}
    tile = [{"kernel": "matmul", "chosen": [0] * 5}, {"kernel": "matmul", "chosen": [64, 64, 4, 4, 16]}]
    check = {"description": "a GPU", "bandwidth": 1e9, "product": product, "tile": tile}
    devices = {
        "metal": {"parts": {"check": {"status": "failed", "seconds": 1, "error": ""}}},
        "vulkan": {"parts": {"check": {"status": "done", "seconds": 1, "facts": check}}},
    }
    file = tmp_path / "hardware.json"
    file.write_text(json.dumps({"format": hardware.FORMAT, "devices": devices}))
    done = run("hardware", "--markdown", "--json", file)
    assert "| metal: failed | not yet | not yet | failed |" in done.output
    assert "| vulkan: a GPU | not yet | not yet | 1.00 GB/s | 1.00 TFLOP/s | 50% | quads, 64x64x4x4x16 |" in done.output


def test_a_suite_that_ends_early_is_noted_with_what_it_measured(monkeypatch):
    def crash(*arguments, **_):
        Path(arguments[arguments.index("--json") + 1]).write_text('{"results": [], "notes": {}}')
        return subprocess.CompletedProcess(arguments, -11, "", "the driver's last words")

    monkeypatch.setattr(hardware, "_command", crash)
    facts = hardware.PARTS["suite"].run("vulkan", True)
    assert facts["notes"] == {"optirs-web bench": "exit status -11: the driver's last words"}


def test_the_parts_take_forty_minutes():
    assert sum(part.limit for part in hardware.PARTS.values()) <= 40 * 60

"""The folder where choices are kept: who uses it, who may write to it, and what it may hold."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import run_python
from tuner_problems import TILE, keep, names_of, random

import optirs_web as ow
from optirs_web.runtime.tuner import folder
from optirs_web.runtime.tuner.choices import Choices
from optirs_web.runtime.tuner.folder import folder_of_user

MESA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # where the driver keeps what it compiled


def run_tuned(program, cache, **environment):
    """A program in a process of its own, with this cache folder."""
    inputs = {"XDG_CACHE_HOME": cache, "MESA_SHADER_CACHE_DIR": MESA, "OPTIRS_TUNE": None, **environment}
    return run_python(program, **inputs)


PRODUCT = """
import json, sys
import optirs_web as ow
a, b = ow.ones((64, 64), device="vulkan"), ow.ones((64, 256), device="vulkan")
kernels = []
device = ow.device("vulkan")
step = ow.compile(lambda: a @ b, device=device)
assert step().tolist() == (a @ b).tolist() == [[64.0] * 256] * 64
for command in device.backend.parts(step.program.recorded):
    kernels.append(command[1].kernel.constants)
print(json.dumps(kernels))
print("optirs_web.runtime.tuner.candidates" in sys.modules)
"""


def test_a_choice_is_used_by_the_next_process(vulkan, cache):
    keep(vulkan)
    used, loaded = run_tuned(PRODUCT, cache)
    assert json.loads(used) == [TILE.constants()]
    assert loaded == "True"
    used, loaded = run_tuned(PRODUCT, cache, OPTIRS_TUNE=0)
    assert json.loads(used) == [{"QUADS": True, "B_STAGING": 0}]
    assert loaded == "False"


def test_where_nothing_was_searched_nothing_is_loaded(open_device, cache):
    open_device("vulkan")
    used, loaded = run_tuned(PRODUCT, cache)
    assert json.loads(used) == [{"QUADS": True, "B_STAGING": 0}]
    assert loaded == "False"
    assert names_of(cache) == []


DAMAGED = {
    "empty": "",
    "cut off": '{"format": 1, "dev',
    "no object": "[1, 2]",
    "no JSON": "\x00\x01",
    "brackets in brackets": "[" * 100_000,
    "another format": {"format": 99},
    "another device": {"device": "a graphics card"},
    "other kernels": {"sources": "0"},
    "an unknown kernel": {"kernel": "convolution"},
    "no candidate": {"choice": {**TILE.constants(), "DEPTH": 1}},
    "no numbers": {"choice": 3},
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_file_is_ignored_with_a_warning_and_written_again(vulkan, cache, what):
    keep(vulkan)
    (path,) = cache.glob("optirs-web/tuned/*/*")
    damage = DAMAGED[what]
    path.write_text(damage if isinstance(damage, str) else json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.warns(UserWarning, match="is not a tuned choice for this device, and is ignored"):
        Choices(vulkan.backend).attach()
    assert vulkan.backend.tuned.found == {}
    keep(vulkan)
    Choices(vulkan.backend).attach()
    assert list(vulkan.backend.tuned.found.values()) == [TILE]


WRITING = """
import json, sys
import optirs_web as ow
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.tuner.candidates import TUNABLE
from optirs_web.runtime.tuner.folder import Folder
from optirs_web.runtime.tuner.records import Record, key_of, parse_record, record_text

info, own = AdapterInfo("vulkan", 0, "a device"), sys.argv[1]
kept = Folder(key_of(info))
for number in range(150):
    for shape_class in ("shared", f"of {own}"):
        record = Record(TUNABLE["matmul"], shape_class, TUNABLE["matmul"].candidates[number % 7])
        kept.save(record.name, record_text(record, info, {}))
    for text in kept.load().values():
        parse_record(text, info)
print(len(kept.load()))
"""


def test_two_processes_may_write_at_once(cache):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WRITING)]
    both = [subprocess.Popen([*command, one], env=environment, stderr=subprocess.PIPE) for one in "ab"]
    for one in both:
        _, complaint = one.communicate(timeout=120)
        assert one.returncode == 0, complaint.decode()
    assert names_of(cache) == ["matmul_of_a.json", "matmul_of_b.json", "matmul_shared.json"]


def test_a_cache_that_cannot_be_written_is_a_warning(vulkan, cache, monkeypatch):
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    x = ow.tensor(random(30, 5), device=vulkan)
    with pytest.warns(UserWarning, match="cannot be saved for other processes"):
        report = ow.tune(lambda: x.sum(axis=1), device=vulkan)
    assert report.works[0].seconds


def test_a_setting_that_means_nothing_is_refused(cache, monkeypatch):
    monkeypatch.setenv("OPTIRS_TUNE", "yes")
    with pytest.raises(ValueError, match="OPTIRS_TUNE must be 0 or 1, not 'yes'"):
        folder.uses_choices()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "/home/one/.cache"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/one/.cache"),
        ("linux", {"HOME": "~"}, os.devnull),
        ("darwin", {}, "/home/one/Library/Caches"),
        ("win32", {"LOCALAPPDATA": "local"}, "local"),
        ("win32", {}, "/home/one/AppData/Local"),
    ],
)
def test_the_cache_lies_where_the_platform_wants_it(monkeypatch, platform, variables, expected):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/one")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert folder_of_user() == f"{expected}/optirs-web/tuned"

"""Choices that are kept: who uses them, and what is none."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import run_python
from tuner_problems import TILE, keep, names_of, random

import optirs_web as ow
from optirs_web.runtime import kept
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.tuner import switch
from optirs_web.runtime.tuner.choices import Choices
from optirs_web.runtime.tuner.switch import subject_of

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
    "no object": [1, 2],
    "no kernels": {"kernels": None},
    "an unknown kernel": "convolution 8 of 8",
    "no shape": "matmul",
    "no candidate": {"choice": {**TILE.constants(), "DEPTH": 1}},
    "no numbers": {"choice": 3},
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_choice_that_is_none_is_ignored_with_a_warning_and_found_again(vulkan, cache, what):
    keep(vulkan)
    ((name, figure),) = kept.load(subject_of(vulkan.info)).items()
    match DAMAGED[what]:
        case str(other):
            damaged = {other: figure}
        case dict(parts):
            damaged = {name: {**figure, **parts}}
        case whole:
            damaged = {name: whole}
    kept.store(subject_of(vulkan.info), damaged)
    with pytest.warns(UserWarning, match=r"in .*measured\.json is not a tuned choice, and is ignored"):
        Choices(vulkan.backend).attach()
    assert list(vulkan.backend.tuned.searched.values()) == ([TILE] if name not in damaged else [])


def test_a_choice_that_was_measured_for_other_kernels_is_not_used(vulkan, cache):
    keep(vulkan)
    ((name, figure),) = kept.load(subject_of(vulkan.info)).items()
    kept.store(subject_of(vulkan.info), {name: {**figure, "kernels": "0"}})
    Choices(vulkan.backend).attach()
    assert vulkan.backend.tuned.searched == {}
    keep(vulkan)
    Choices(vulkan.backend).attach()
    assert list(vulkan.backend.tuned.searched.values()) == [TILE]


def test_choices_of_another_device_are_not_used(vulkan, cache):
    keep(SimpleNamespace(info=AdapterInfo("vulkan", 0, "another (driver 1)")))
    assert not switch.uses_choices(vulkan.info)
    assert switch.uses_choices(AdapterInfo("vulkan", 0, "another (driver 1)"))
    assert not switch.uses_choices(AdapterInfo("vulkan", 0, "another (driver 2)"))


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
        switch.uses_choices(AdapterInfo("vulkan", 0, ""))

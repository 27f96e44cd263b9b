"""The tuner: every candidate computes the same; a search is kept and used; nothing happens unless it is asked for."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.launches import Launch
from optirs_web.runtime.tuner import folder
from optirs_web.runtime.tuner.candidates import TUNABLE, tunable_of
from optirs_web.runtime.tuner.choices import Choices
from optirs_web.runtime.tuner.folder import Folder, folder_of_user
from optirs_web.runtime.tuner.records import Record, key_of, parse_record, record_text
from optirs_web.runtime.tuner.shipped import SHIPPED, shipped_for

GUARANTEED = (256, 16384)  # WebGPU's limits: invocations of a workgroup, bytes that they share
CANDIDATES = [(name, choice) for name, one in TUNABLE.items() for choice in one.candidates[1:]]
MESA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # where the driver keeps what it compiled


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a tuner about which nobody has said anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OPTIRS_TUNE", raising=False)
    monkeypatch.setattr(folder, "_asked", [])
    return tmp_path


@pytest.fixture
def vulkan(open_device, cache):
    """A device that is left as it was."""
    device = open_device("vulkan")
    yield device
    device.backend.tuned = None


def run_tuned(program, cache, **environment):
    """A program in a process of its own, with this cache folder."""
    given = {"XDG_CACHE_HOME": cache, "MESA_SHADER_CACHE_DIR": MESA, "OPTIRS_TUNE": None, **environment}
    return run_python(program, **given)


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def products(device):
    a, b = ow.tensor(random(70, 37), device=device), ow.tensor(random(37, 45), device=device)
    square = ow.tensor(random(3, 37, 37), device=device)
    return [a @ b, b.T @ a.T, square @ b]


def sums(device):
    x = ow.tensor(random(3, 300, 5), device=device)
    return [x.sum(), x.sum(axis=1), x.sum(axis=2)]


def maps(device):
    x = ow.tensor(random(70, 45), device=device)
    return [x * x, x.T.exp(), x + x.sum(axis=0)]


def updates(device):
    w = ow.Parameter(random(70, 45), device=device)
    b = ow.Parameter(random(3), device=device)
    optimizer = ow.optim.AdamW([w, b], lr=0.1)
    optimizer.step(grads=[w.detach() * 0.5, b.detach() * 0.5])
    return [w.detach(), b.detach(), optimizer.state[w]["exp_avg"]]


COMPUTE = {"matmul": products, "sum": sums, "map": maps, "update": updates}


def force(device, name, choice):
    """Give each launch that is tuned as `name` this candidate; a list of those that got it."""
    ran = []

    def tuned(launch):
        if tunable_of(launch.kernel) is not TUNABLE[name]:
            return launch
        made = TUNABLE[name].tuned(launch, choice, device.capabilities)
        if made is not launch:
            ran.append(made)
        return made

    device.backend.tuned = tuned
    return ran


@pytest.mark.parametrize(("name", "choice"), CANDIDATES)
def test_every_candidate_computes_what_the_default_computes(vulkan, name, choice):
    expected = [one.numpy() for one in COMPUTE[name](vulkan)]
    ran = force(vulkan, name, choice)
    results = [one.numpy() for one in COMPUTE[name](vulkan)]
    assert ran
    for one, other in zip(results, expected, strict=True):
        if name == "sum":
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "choice"), [("matmul", (16, 16)), ("matmul", (4, 4)), ("sum", (256,)), ("map", (64, 16))]
)
def test_kernels_that_are_fused_are_tuned_too(vulkan, name, choice):
    a, b = ow.tensor(random(300, 37), device=vulkan), ow.tensor(random(37, 290), device=vulkan)
    chain = {
        "matmul": lambda: (a @ b + 1.0).relu(),
        "sum": lambda: (a * a).sum(axis=1) * 2.0,
        "map": lambda: (a * 2.0 + 1.0).tanh(),
    }[name]
    expected = ow.compile(chain, device=vulkan)().numpy()
    ran = force(vulkan, name, choice)
    step = ow.compile(chain, device=vulkan)
    np.testing.assert_allclose(step().numpy(), expected, rtol=1e-5, atol=1e-5)
    assert [one.kernel.name for one in ran] == [{"matmul": "matmul+add+relu"}.get(name, ran[0].kernel.name)]
    assert "+" in ran[0].kernel.name


def test_products_of_an_optimizer_are_tuned_too(vulkan):
    def muon():
        w = ow.Parameter(random(40, 50), device=vulkan)
        ow.optim.Muon([w], lr=0.1).step(grads=[w.detach() * 0.5])
        return w.numpy()

    expected = muon()
    ran = force(vulkan, "matmul", (16, 16))
    np.testing.assert_array_equal(muon(), expected)
    assert {one.kernel.name for one in ran} == {"batched_matmul"}


@pytest.mark.parametrize("name", TUNABLE)
def test_the_default_needs_no_more_than_every_device_has(name):
    tunable = TUNABLE[name]
    needed = tunable.needs(tunable.default)
    assert all(one <= most for one, most in zip(needed, GUARANTEED, strict=True))


def product_of(device, rows, inner, columns):
    """The launch of a product."""
    sizes = 4 * rows * inner, 4 * inner * columns, 4 * rows * columns
    views = tuple(ow.zeros((one // 4,), device=device).view for one in sizes)
    parameters = (rows, columns, inner, inner, 1, columns, 1, 0, 0, 0, 1, 0, 0, 0, 0)
    return Launch(cooperative("matmul"), views, (-(-columns // 32), -(-rows // 32), 1), parameters)


def test_what_a_device_does_not_allow_is_no_candidate(vulkan):
    launch, tunable = product_of(vulkan, 64, 64, 64), TUNABLE["matmul"]

    def allowed(**limits):
        capabilities = replace(vulkan.capabilities, **limits)
        return [one for one in tunable.candidates if tunable.allows(launch, one, capabilities)]

    assert allowed() == list(tunable.candidates)  # llvmpipe: 1024 invocations, 32 KiB
    assert allowed(max_invocations=256) == [one for one in tunable.candidates if one != (32, 8)]
    assert allowed(max_invocations=64) == [(8, 8), (4, 4), (8, 4), (8, 16)]
    assert allowed(max_workgroup_bytes=2048) == [(8, 8), (4, 4), (8, 4)]
    assert allowed(max_workgroups=3) == [one for one in tunable.candidates if one != (4, 4)]  # 16 rows: 4 tiles
    assert allowed(max_invocations=0) == []
    small = replace(vulkan.capabilities, max_invocations=64)
    assert tunable.tuned(launch, (16, 16), small) is launch


def test_shapes_of_a_class_share_a_choice(vulkan):
    def shape_class(*shape):
        return TUNABLE["matmul"].shape_class(product_of(vulkan, *shape))

    assert shape_class(64, 64, 10) == shape_class(33, 50, 16) == "64x64x16 nn"
    assert shape_class(65, 64, 10) != shape_class(64, 64, 10)


def names_of(cache):
    return sorted(one.name for one in cache.glob("optirs-web/tuned/*/*"))


def test_a_search_is_kept_and_not_repeated(vulkan, cache):
    a, b = ow.tensor(random(64, 64), device=vulkan), ow.tensor(random(64, 256), device=vulkan)
    report = ow.tune(lambda: a @ b, device=vulkan)
    (work,) = report.works
    assert (work.kernel, work.device, work.shape_class) == ("matmul", "vulkan", "64x64x256 nn")
    assert set(work.seconds) == set(TUNABLE["matmul"].candidates)
    assert min(work.seconds.values()) > 0
    assert work.chosen in work.seconds
    assert work.gain >= 1.05 or work.chosen == work.default
    assert "64x64x256 nn" in str(report)
    assert "64x64x256 nn" in report.plain()

    assert names_of(cache) == ["matmul_64x64x256_nn.json"]
    (path,) = cache.glob("optirs-web/tuned/*/*")
    record = parse_record(path.read_text("utf-8"), vulkan.info)
    assert record == Record(TUNABLE["matmul"], work.shape_class, work.chosen)

    vulkan.backend.tuned = None
    pipelines = vulkan.stats.pipelines
    (again,) = ow.tune(lambda: a @ b, device=vulkan).works
    assert not again.seconds
    assert again.chosen == work.chosen
    assert vulkan.stats.pipelines == pipelines
    (repeated,) = ow.tune(lambda: a @ b, device=vulkan, again=True).works
    assert set(repeated.seconds) == set(work.seconds)


def keep(device, shape_class="64x64x256 nn", choice=(16, 16)):
    """Save a choice as a search does, whatever is fastest here."""
    record = Record(TUNABLE["matmul"], shape_class, choice)
    Folder(key_of(device.info)).save(record.name, record_text(record, device.info, {choice: 1e-3}))


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
    assert json.loads(used) == [{"SIDE": 16, "DEPTH": 16}]
    assert loaded == "True"
    used, loaded = run_tuned(PRODUCT, cache, OPTIRS_TUNE=0)
    assert json.loads(used) == [{}]
    assert loaded == "False"


def test_where_nothing_was_searched_nothing_is_loaded(open_device, cache):
    open_device("vulkan")
    used, loaded = run_tuned(PRODUCT, cache)
    assert json.loads(used) == [{}]
    assert loaded == "False"
    assert names_of(cache) == []


def test_a_compiled_step_gets_what_is_chosen_later(vulkan, cache):
    a, b = ow.tensor(random(64, 64), device=vulkan), ow.tensor(random(64, 256), device=vulkan)
    step = ow.compile(lambda: a @ b, device=vulkan)
    expected = step().numpy()

    def constants():
        return [work.kernel.constants for _, work in vulkan.backend.parts(step.program.recorded)]

    assert constants() == [{}]
    keep(vulkan)
    ow.tuning(True)
    assert constants() == [{"SIDE": 16, "DEPTH": 16}]
    np.testing.assert_array_equal(step().numpy(), expected)
    ow.tuning(False)
    assert constants() == [{}]
    np.testing.assert_array_equal(step().numpy(), expected)


def test_what_a_compiled_step_replays_is_searched(vulkan, cache):
    w = ow.Parameter(random(64, 16), device=vulkan)
    optimizer = ow.optim.SGD([w], lr=0.1)
    x = ow.tensor(random(64, 64), device=vulkan)

    def train_step():
        optimizer.zero_grad()
        loss = (x @ w).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=vulkan)
    step()
    before = w.numpy()
    works = {one.kernel for one in ow.tune(step, device=vulkan).works}
    assert works == {"matmul", "sum", "map", "update"} or works == {"matmul", "sum", "update"}
    gradient = np.broadcast_to(x.numpy().sum(axis=0)[:, None], w.shape)
    np.testing.assert_allclose(w.numpy(), before - 0.1 * gradient, rtol=1e-5, atol=1e-5)  # one step, as called


DAMAGED = {
    "empty": "",
    "cut off": '{"format": 1, "dev',
    "no object": "[1, 2]",
    "no JSON": "\x00\x01",
    "another format": {"format": 99},
    "another device": {"device": "a graphics card"},
    "other kernels": {"sources": "0"},
    "an unknown kernel": {"kernel": "convolution"},
    "no candidate": {"choice": {"SIDE": 1000, "DEPTH": 1}},
    "no numbers": {"choice": 3},
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_file_is_ignored_with_a_warning_and_written_again(vulkan, cache, what):
    keep(vulkan)
    (path,) = cache.glob("optirs-web/tuned/*/*")
    damage = DAMAGED[what]
    path.write_text(damage if isinstance(damage, str) else json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.warns(UserWarning, match="is no tuned choice for this device, and is ignored"):
        Choices(vulkan.backend).attach()
    assert vulkan.backend.tuned.found == {}
    keep(vulkan)
    Choices(vulkan.backend).attach()
    assert list(vulkan.backend.tuned.found.values()) == [(16, 16)]


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
    with pytest.warns(UserWarning, match="cannot be kept for other processes"):
        report = ow.tune(lambda: x.sum(axis=1), device=vulkan)
    assert report.works[0].seconds


@pytest.mark.parametrize("how", ["environment", "call"])
def test_switched_off_it_searches_nothing(vulkan, cache, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("OPTIRS_TUNE", "0")
    else:
        ow.tuning(False)
    x = ow.tensor(random(30, 6), device=vulkan)
    x.sum(axis=1).numpy()
    before, calls = vulkan.stats.copy(), []
    report = ow.tune(lambda: calls.append(x.sum(axis=1)), device=vulkan)
    vulkan.synchronize()
    spent = vulkan.stats - before
    assert (spent.dispatches, spent.pipelines, len(calls)) == (1, 0, 1)  # the step's own
    assert report.works == []
    assert "switched off" in str(report)
    assert names_of(cache) == []


def test_on_cpu_there_is_nothing_to_tune(open_device, cache):
    x = ow.tensor(random(30, 7), device=open_device("cpu"))
    before = x.device.stats.copy()
    report = ow.tune(lambda: x.sum(axis=1), device="cpu")
    assert (x.device.stats - before).dispatches == 1
    assert report.works == []
    assert "library calls take their place" in report.title


def test_the_twin_is_awaited(vulkan, cache):
    x = ow.tensor(random(30, 8), device=vulkan)

    async def step():
        return await x.sum(axis=1).numpy_async()

    report = asyncio.run(ow.tune_async(step, device=vulkan))
    assert [one.shape_class for one in report.works] == ["64 of 8"]
    assert names_of(cache) == ["sum_64_of_8.json"]
    asyncio.run(ow.tuning_async(False))
    assert vulkan.backend.tuned is None


def test_nothing_is_tuned_while_a_step_is_recorded(vulkan):
    x = ow.tensor(random(4), device=vulkan)
    with pytest.raises(UnsupportedError, match="tune the compiled step"):
        ow.compile(lambda: ow.tune(lambda: x + 1.0), device=vulkan)()


def test_a_setting_that_means_nothing_is_refused(cache, monkeypatch):
    monkeypatch.setenv("OPTIRS_TUNE", "yes")
    with pytest.raises(ValueError, match="OPTIRS_TUNE is 0 or 1, not 'yes'"):
        folder.uses_choices()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache"),
        ("linux", {"XDG_CACHE_HOME": "elsewhere"}, "elsewhere"),
        ("darwin", {}, "home/Library/Caches"),
        ("win32", {"LOCALAPPDATA": "local"}, "local"),
        ("win32", {}, "home/AppData/Local"),
    ],
)
def test_the_cache_lies_where_the_platform_wants_it(monkeypatch, platform, variables, expected):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert folder_of_user() == f"{expected}/optirs-web/tuned"


def test_what_is_shipped_can_be_chosen_and_is_used_when_asked_for(vulkan):
    for kernels in SHIPPED.values():
        for name, choices in kernels.items():
            assert set(choices.values()) <= set(TUNABLE[name].candidates[1:])
    Choices(vulkan.backend).attach()
    assert vulkan.backend.tuned.shipped == {}
    vulkan.backend.tuned = None
    ow.tuning(True)
    assert vulkan.backend.tuned.shipped == shipped_for(vulkan.info)
    assert any("llvmpipe" in part for part in SHIPPED)

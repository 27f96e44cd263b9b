"""`tune` and `tuning`: a search is kept and used, and nothing happens unless it is asked for."""

import asyncio

import numpy as np
import pytest
from tuner_problems import TILE, keep, names_of, random

import optirs_web as ow
from optirs_web.errors import UnsupportedError
from optirs_web.runtime import kept
from optirs_web.runtime.tuner.candidates import TUNABLE
from optirs_web.runtime.tuner.records import Record, parse_record
from optirs_web.runtime.tuner.switch import subject_of


def test_a_search_is_kept_and_not_repeated(vulkan, cache):
    a, b = ow.tensor(random(64, 64), device=vulkan), ow.tensor(random(64, 256), device=vulkan)
    report = ow.tune(lambda: a @ b, device=vulkan)
    (work,) = report.works
    assert (work.kernel, work.device, work.shape_class) == ("matmul", "vulkan", "64x64x256 nn")
    without_matrices = {candidate for candidate in TUNABLE["matmul"].candidates if candidate[2] or not any(candidate)}
    assert set(work.seconds) == without_matrices
    assert min(work.seconds.values()) > 0
    assert work.chosen in work.seconds
    assert work.gain >= 1.05 or work.chosen == work.default
    assert "64x64x256 nn" in str(report)
    assert "64x64x256 nn" in report.plain()

    assert names_of(cache) == ["matmul 64x64x256 nn"]
    ((name, figure),) = kept.load(subject_of(vulkan.info)).items()
    assert parse_record(name, figure) == Record(TUNABLE["matmul"], work.shape_class, work.chosen)

    vulkan.backend.tuned = None
    pipelines = vulkan.stats.pipelines
    (again,) = ow.tune(lambda: a @ b, device=vulkan).works
    assert not again.seconds
    assert again.chosen == work.chosen
    assert vulkan.stats.pipelines == pipelines
    (repeated,) = ow.tune(lambda: a @ b, device=vulkan, again=True).works
    assert set(repeated.seconds) == set(work.seconds)


def test_a_compiled_step_gets_what_is_chosen_later(vulkan, cache):
    a, b = ow.tensor(random(64, 64), device=vulkan), ow.tensor(random(64, 256), device=vulkan)
    step = ow.compile(lambda: a @ b, device=vulkan)
    expected = step().numpy()

    def constants():
        return [work.kernel.constants for _, work in vulkan.backend.parts(step.program.recorded)]

    assert constants() == [{"QUADS": True, "B_STAGING": 0}]
    keep(vulkan)
    ow.tuning(True)
    assert constants() == [TILE.constants()]
    np.testing.assert_allclose(step().numpy(), expected, rtol=1e-5, atol=1e-5)
    ow.tuning(False)
    assert constants() == [{"QUADS": True, "B_STAGING": 0}]
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
    works = {work.kernel for work in ow.tune(step, device=vulkan).works}
    assert works == {"matmul", "sum", "map", "update"} or works == {"matmul", "sum", "update"}
    gradient = np.broadcast_to(x.numpy().sum(axis=0)[:, None], w.shape)
    np.testing.assert_allclose(w.numpy(), before - 0.1 * gradient, rtol=1e-5, atol=1e-5)  # one step, as called


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
    assert [work.shape_class for work in report.works] == ["64 of 8"]
    assert names_of(cache) == ["sum 64 of 8"]
    asyncio.run(ow.tuning_async(False))
    assert vulkan.backend.tuned is None


def test_nothing_is_tuned_while_a_step_is_recorded(vulkan):
    x = ow.tensor(random(4), device=vulkan)
    with pytest.raises(UnsupportedError, match="tune the compiled step"):
        ow.compile(lambda: ow.tune(lambda: x + 1.0), device=vulkan)()

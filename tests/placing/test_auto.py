"""The choice of the policy "auto" by what a machine was measured to take, what it tells, and the cache of the rates."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from placement_problems import FAST, SLOW, counted, known, matrix, rates

import optirs_web as ow
from optirs_web.errors import ShapeError
from optirs_web.placing import cache, choice
from optirs_web.runtime.backend import AdapterInfo

# The choice.


def test_auto_takes_the_faster_device_for_each_operation(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, gpu_product=SLOW)
    x = matrix()
    with ow.placement("auto"):
        y = x @ x
        z = y.exp()
        assert [tensor.device.name for tensor in (y, z, z @ x)] == ["cpu", "vulkan", "cpu"]


def test_auto_leaves_operands_where_moving_them_costs_more(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=10 * SLOW)
    with ow.placement("auto"):
        assert matrix().exp().device.name == "cpu"
        assert matrix("vulkan").exp().device.name == "vulkan"


def test_operands_that_were_carried_before_count_no_transfer(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=10 * SLOW)
    w = matrix()
    with ow.placement("gpu"):
        w.exp()
    with ow.placement("auto"):
        y, counts = counted(gpu, lambda: w.exp())
    assert (y.device.name, counts) == ("vulkan", (0, 0))


@pytest.mark.parametrize(
    ("options", "ratio", "where"),
    [
        ({}, 1.4, "cpu"),  # the default is 1.5
        ({}, 1.6, "vulkan"),
        ({"threshold": 1}, 1.4, "vulkan"),
        ({"threshold": 4}, 3.9, "cpu"),
        ({"threshold": 4}, 4.1, "vulkan"),
        ({"threshold": math.inf}, 1e6, "cpu"),
    ],
)
def test_operands_leave_their_device_where_the_other_is_faster_by_the_threshold(cpu, gpu, options, ratio, where):
    known(cpu, gpu, cpu_heavy=ratio * FAST, transfer=1e-9)
    with ow.placement("auto", **options):
        assert matrix().exp().device.name == where
        assert matrix("vulkan").exp().device.name == "vulkan"


@pytest.mark.parametrize("threshold", [0.9, 0, -1, math.nan])
def test_a_threshold_below_1_is_refused(threshold):
    with pytest.raises(ValueError, match=r"threshold of a placement must be 1 or more, not"):
        ow.placement("auto", threshold=threshold)


def test_an_error_is_that_of_the_operation(cpu, gpu):
    known(cpu, gpu)
    with ow.placement("auto"), pytest.raises(ShapeError, match="3 columns meet 2 rows"):
        ow.ones((2, 3), device="cpu") @ ow.ones((2, 3), device="cpu")


def test_what_is_predicted_draws_no_random_numbers(cpu, gpu):
    known(cpu, gpu)
    x = ow.ones((64,), device="cpu")

    def draws():
        ow.manual_seed(3)
        return ow.nn.functional.dropout(x, 0.5).tolist() + ow.rand((4,), device="cpu").tolist()

    plain = draws()
    with ow.placement("auto"):
        assert draws() == plain


def test_work_that_recurs_is_not_timed_and_runs_on_one_device(cpu, gpu):
    known(cpu, gpu)  # as fast on both
    with ow.placement("auto"):
        places = {matrix().exp().tanh().device.name for _ in range(40)}
        assert places == {"cpu"}


# What would run where.


def test_would_run_tells_the_times_on_both_devices_and_runs_nothing(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=2e-3)
    x, w = matrix(), ow.Parameter(matrix())
    before = [device.stats.copy() for device in (cpu, gpu)]
    with ow.placement("auto"):
        light = ow.placement.would_run(ow.ops.exp, x)
        with_gradient = ow.placement.would_run(lambda: w @ w)
    spent = [device.stats - earlier for device, earlier in zip((cpu, gpu), before, strict=True)]
    assert [(stats.dispatches, stats.bytes_up, stats.bytes_down) for stats in spent] == [(0, 0, 0)] * 2
    assert light.device is gpu
    assert light.seconds == pytest.approx({"cpu": SLOW, "vulkan": FAST + 2e-3})
    assert light.transfers == pytest.approx({"cpu": 0, "vulkan": 2e-3})
    assert with_gradient.device is cpu
    assert with_gradient.seconds == pytest.approx({"cpu": 3 * FAST, "vulkan": 3 * FAST + 8e-3})  # w twice, and back


@pytest.mark.parametrize(
    ("policy", "where"), [("gpu", "vulkan"), ("cpu", "cpu"), ("minimize_transfers", "cpu"), (None, "cpu")]
)
def test_would_run_tells_the_device_of_policies_that_compare_no_times(policy, where):
    x = matrix()
    with ow.placement(policy):
        assert [*ow.placement.would_run(ow.Tensor.exp, x)[1:]] == [{}, {}]
        assert ow.placement.would_run(x.exp).device.name == x.exp().device.name == where


def test_would_run_says_where_views_stay_and_what_has_nothing_to_place(cpu, gpu):
    with ow.placement("gpu"):
        assert ow.placement.would_run(ow.ops.reshape, matrix(), (-1,)).device is cpu
        with pytest.raises(ValueError, match=r"<lambda> called no operation over tensors"):
            ow.placement.would_run(lambda: 3)


# The cache.


def test_rates_are_measured_at_first_use_and_kept(own_cache, cpu, gpu):
    with ow.placement("auto"):
        matrix() @ matrix()
    file = own_cache / "optirs-web" / "measured.json"
    written = file.read_text()
    of_cpu, of_gpu = json.loads(written)
    assert f"NumPy {np.__version__}" in of_cpu
    assert gpu.info.description in of_gpu
    kept = cache.load(gpu.info)
    assert min(seconds for curve in kept for _, seconds in curve) > 0
    assert sorted(path.name for path in file.parent.iterdir()) == ["measured.json", "measured.json.lock"]
    choice._predictions.clear()
    with ow.placement("auto"):
        matrix() @ matrix()
    assert file.read_text() == written


def test_threads_that_begin_at_once_measure_once(own_cache, cpu, gpu):
    def use(_):
        with ow.placement("auto"):
            return (matrix() @ matrix()).device.name

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(use, range(2)))) == 1
    (predictions,) = choice._predictions.values()
    assert predictions.rates == (cache.load(cpu.info), cache.load(gpu.info))


INFO = AdapterInfo("vulkan", 0, "a card (driver 1)")


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole.replace("light", "other"),
        lambda whole: whole.replace("0.001", "NaN"),
        lambda whole: whole.replace("0.001", "-0.001"),
        lambda whole: whole.replace("0.001", '"0.001"'),
        lambda whole: whole.replace("driver 1", "driver 2"),
    ],
)
def test_rates_that_are_none_or_foreign_are_not_used(own_cache, damage):
    cache.store(INFO, rates())
    file = own_cache / "optirs-web" / "measured.json"
    assert cache.load(INFO) == rates()
    file.write_text(damage(file.read_text()))
    assert cache.load(INFO) is None
    cache.store(INFO, rates(transfer=0.5))
    assert cache.load(INFO) == rates(transfer=0.5)

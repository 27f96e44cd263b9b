"""The choice of the policy "auto" by what a machine was measured to take, and the cache of these figures."""

import json

import numpy as np
import pytest
from placement_problems import SLOW, counted, figures, known, matrix

import optirs_web as ow
from optirs_web.errors import ShapeError
from optirs_web.placing import cache

# The choice.


def test_auto_takes_the_faster_device_for_each_operation(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, gpu_product=SLOW)
    x = matrix()
    with ow.placement("auto"):
        y = x @ x
        z = y.exp()
        assert [one.device.name for one in (y, z, z @ x)] == ["cpu", "vulkan", "cpu"]


def test_auto_leaves_operands_where_moving_them_costs_more(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=10 * SLOW)
    with ow.placement("auto"):
        assert matrix().exp().device.name == "cpu"
        assert matrix("vulkan").exp().device.name == "vulkan"


def test_auto_moves_a_chain_that_has_lost_enough_and_next_time_at_once(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=SLOW)  # to be at home counts twice a transfer

    def chain():
        x = matrix()
        devices = []
        for _ in range(6):
            x = x.exp()
            devices.append(x.device.name)
        return devices

    with ow.placement("auto"):
        first, second = chain(), chain()
    assert first == ["cpu"] * 2 + ["vulkan"] * 4
    assert second == ["vulkan"] * 6


def test_auto_moves_a_weight_that_is_used_again_and_again(cpu, gpu):
    known(cpu, gpu, cpu_heavy=SLOW, transfer=SLOW)
    w = matrix()
    with ow.placement("auto"):
        devices = [w.exp().device.name for _ in range(5)]
        _, counts = counted(gpu, lambda: w.exp())
    assert devices[0] == "cpu"
    assert devices[-1] == "vulkan"
    assert counts == (0, 0)


def test_an_error_is_that_of_the_operation(cpu, gpu):
    known(cpu, gpu)
    with ow.placement("auto"), pytest.raises(ShapeError, match="3 columns meet 2 rows"):
        ow.ones((2, 3), device="cpu") @ ow.ones((2, 3), device="cpu")


def test_what_is_compared_by_measuring_draws_no_random_numbers(cpu, gpu):
    known(cpu, gpu)  # as fast on both
    x = ow.ones((64,), device="cpu")

    def draws():
        ow.manual_seed(3)
        return ow.nn.functional.dropout(x, 0.5).tolist() + ow.rand((4,), device="cpu").tolist()

    plain = draws()
    with ow.placement("auto"):
        assert draws() == plain


# The cache.


def test_figures_are_measured_at_first_use_and_kept(own_cache, cpu, gpu):
    with ow.placement("auto"):
        matrix() @ matrix()
    file = own_cache / "optirs-web" / "placement.json"
    written = file.read_text()
    ((key, kept),) = json.loads(written).items()
    assert {"llvmpipe" in key or gpu.info.description in key, f"NumPy {np.__version__}" in key} == {True}
    assert cache.load(key) == kept
    assert [one.name for one in file.parent.iterdir()] == ["placement.json"]
    with ow.placement("auto"):
        matrix() @ matrix()
    assert file.read_text() == written


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: "",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: "[1, 2]",
        lambda whole: "[" * 100_000,
        lambda whole: whole.replace("cpu.light", "cpu.other"),
        lambda whole: whole.replace("0.001", "NaN"),
        lambda whole: whole.replace("0.001", "-0.001"),
        lambda whole: whole.replace("0.001", '"0.001"'),
        lambda whole: whole.replace('"operations": {}', '"operations": {"add": 1}'),
        lambda whole: whole.replace("KEY", "another machine"),
    ],
)
def test_a_damaged_or_foreign_file_is_not_used(own_cache, damage):
    cache.store("KEY", figures())
    file = own_cache / "optirs-web" / "placement.json"
    assert cache.load("KEY") == figures()
    file.write_text(damage(file.read_text()))
    assert cache.load("KEY") is None
    cache.store("KEY", figures(transfer=0.5))
    assert cache.load("KEY") == figures(transfer=0.5)


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.store("KEY", figures())
    assert cache.load("KEY") is None

"""Rows reduced by subgroups: compared with float64 for any size and numbering, and the adapters that use them."""

import math
import re
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from numerics import by_subgroups
from operation_cases import CASES
from test_operation_derivatives import Call, Found, compare_with_numpy

import optirs_web as ow
from optirs_web.launch import row_constants
from optirs_web.ops import layer_norm
from optirs_web.ops.row_kernels import named_row_kernels
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.runtime.kernels import Kernel
from optirs_web.runtime.subgroups import reduces_by_subgroups
from optirs_web.wgsl import check, parse

ROW_KERNELS = named_row_kernels()
KERNELS = ["cross_entropy", "layer_norm", "layer_norm_grad", "log_softmax", "softmax", "sum"]
OF_ROWS = {"cross_entropy", "layer_norm", "log_softmax", "logsumexp", "mean", "nll_loss", "softmax", "sum", "var"}
CASES_OF_ROWS = [case for case in CASES if OF_ROWS & set(case.operations)]
LENGTHS = [1, 2, 63, 64, 65, 257, 1000, 4099, 10_000]


@pytest.fixture(params=["vulkan", pytest.param("dawn", marks=pytest.mark.needs("dawn"))])
def by_adapter(request):
    """A software adapter that reduces rows by subgroups of eight invocations, and one of four."""
    device = request.getfixturevalue("dawn" if request.param == "dawn" else "open_device")
    device = device if request.param == "dawn" else device("vulkan")
    with by_subgroups(device):
        yield device


def random(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES_OF_ROWS, ids=[case.name for case in CASES_OF_ROWS])
def test_operations_by_subgroups_equal_numpy_in_float64(case, numerics):
    calls = [Call(case, number) for number in range(len(case.variants))]
    results = numerics("operation_by_subgroups", case.name, [call.arguments() for call in calls])
    for call, result in zip(calls, results, strict=True):
        compare_with_numpy(None, call, Found(call, result))


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length_are_reduced_alike(by_adapter, length):
    values, weight, g = random((5, length)), random(length, 1), random((5, length), 2)
    x, scale = (ow.Parameter(values, device=by_adapter) for values in (values, weight))
    exact = values.astype(np.float64)
    shifted = exact - exact.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    with ow.profile(by_adapter) as profile:
        near(x.sum(axis=1), exact.sum(1))
        near(ow.tensor(np.ascontiguousarray(values.T), device=by_adapter).sum(axis=0), exact.sum(1))
        near(x.softmax(), np.exp(log_softmax))
        near(ow.ops.log_softmax(x), log_softmax)
        labels = np.arange(5, dtype=np.int32) % length
        losses = ow.cross_entropy(x, ow.tensor(labels, device=by_adapter), reduction="none", label_smoothing=0.1)
        near(losses, -0.9 * log_softmax[np.arange(5), labels] - 0.1 * log_softmax.mean(1))
        y = layer_norm(x, length, scale, eps=0.1)
        y.backward(g)
    size = 1 / np.sqrt(exact.var(1, keepdims=True) + 0.1)
    normalized, h = (exact - exact.mean(1, keepdims=True)) * size, g * weight.astype(np.float64)
    near(y, normalized * weight)
    near(x.grad, size * (h - h.mean(1, keepdims=True) - normalized * (h * normalized).mean(1, keepdims=True)))
    assert {run.name for run in profile.kernels} >= set(KERNELS)


@pytest.mark.parametrize("length", [3, 300])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(by_adapter, length, value):
    values = random((4, length))
    values[1, 2], values[2] = value, -np.inf
    x = ow.tensor(values, device=by_adapter)
    labels = ow.zeros((4,), device=by_adapter).astype("int32")
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = values.astype(np.float64)
        log_softmax = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    if value != -np.inf:
        log_softmax[1] = np.nan
    log_softmax[2] = np.nan
    near(ow.ops.log_softmax(x), log_softmax)
    near(x.softmax(), np.exp(log_softmax))
    losses = ow.cross_entropy(x, labels, reduction="none").numpy()
    np.testing.assert_allclose(losses[[0, 3]], -log_softmax[[0, 3], 0], rtol=1e-5)
    np.testing.assert_array_equal(np.isfinite(losses), np.isfinite(log_softmax[:, 0]))
    near(x.sum(axis=1), exact.sum(1))


def _made(name, **constants):
    return form_kernel(ROW_KERNELS[name], "adjacent", **constants)


def _launch(kernel, device, values, *parameters):
    x = ow.tensor(values, device=device)
    result = ow.zeros(x.shape, device=device)
    device.dispatch(kernel, [x.view, result.view], 1, parameters)
    return result.numpy()


def _sum_and_log_softmax(made, device, values):
    """Return the results for one row by one workgroup, with the kernels `made` of these names."""
    (length,) = values.shape
    total = _launch(made("sum"), device, values, 1, length, 1, 1)[0]
    return total, _launch(made("log_softmax"), device, values, 1, length, 1, 1)


def _compare(found, values):
    exact = values.astype(np.float64)
    total, log_softmax = found
    np.testing.assert_allclose(total, exact.sum(), rtol=1e-6, atol=1e-6 * np.abs(exact).sum())
    want = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    np.testing.assert_allclose(log_softmax, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("invocations", [1, 2, 3, 4, 7, 8, 20, 31, 32, 63, 64, 65, 100, 128, 250, 256])
def test_workgroups_of_any_size_are_reduced_by_subgroups(by_adapter, invocations):
    values = random(777)
    _compare(
        _sum_and_log_softmax(lambda name: _made(name, SUBGROUPS=True, WORKGROUP=invocations), by_adapter, values),
        values,
    )


EMULATION = """
var<workgroup> of_places: array<vec2<f32>, WORKGROUP>;

// Invocations have places in another order, and the first subgroup lacks some.
fn place_of(lane: u32) -> u32 { return lane * STEPu % WORKGROUP; }
fn subgroup_of(place: u32) -> u32 { return (place + SHIFTu) / SIZEu; }
fn ballot(members: u32) -> vec4<u32> {
    let own = clamp(vec4<i32>(i32(members)) - vec4<i32>(0, 32, 64, 96), vec4<i32>(0), vec4<i32>(32));
    return select((vec4<u32>(1u) << (vec4<u32>(own) % 32u)) - 1u, vec4<u32>(0xffffffffu), own == vec4<i32>(32));
}

fn emulated(value: f32, lane: u32, takes_largest: bool) -> vec4<f32> {
    let own = place_of(lane);
    of_places[own] = vec2<f32>(value, f32(lane));
    workgroupBarrier();
    var members = 0.0;
    var lowest = 0.0;
    var result = 0.0;
    for (var place = 0u; place < WORKGROUP; place++) {
        let other = of_places[place];
        if subgroup_of(place) == subgroup_of(own) {
            lowest = select(lowest, other.y, members == 0.0);
            result = select(combined(result, other.x, takes_largest), other.x, members == 0.0);
            members += 1.0;
        }
    }
    workgroupBarrier();
    return vec4<f32>(result, lowest, members, 0.0);
}
"""


class Emulated(Kernel):
    """A kernel that emulates subgroups in workgroup memory, with any size and order."""

    def __init__(self, name, invocations, **numbers):
        self.name = name
        self.base = _made(name, SUBGROUPS=True, WORKGROUP=invocations)
        self.numbers = numbers

    @cached_property
    def module(self):
        text = self.base.wgsl() + EMULATION
        for function, made in {
            "subgroupMax(value)": "emulated(value, lane, true).x",
            "subgroupAdd(value)": "emulated(value, lane, false).x",
            "subgroupBroadcastFirst(lane)": "u32(emulated(value, lane, false).y)",
            "subgroupBallot(true)": "ballot(u32(emulated(value, lane, false).z))",
        }.items():
            text = text.replace(function, made)
        for name, number in self.numbers.items():
            text = text.replace(name, str(number))
        assert not re.search("subgroup[A-Z]", text)
        module = parse(text, self.name)
        check(module)
        return module


@pytest.mark.parametrize("size", [1, 4, 16, 128])
@pytest.mark.parametrize(
    ("invocations", "step", "shift"),
    [
        (64, 1, 0),
        (100, 1, 0),  # the last subgroup is not full
        (64, 1, 3),  # nor the first
        (256, 37, 0),  # neighbours are apart
        (250, 77, 3),
        (7, 3, 1),
    ],
)
def test_subgroups_may_have_any_size_and_any_invocations(open_device, size, invocations, step, shift):
    assert math.gcd(invocations, step) == 1
    values = random(777)
    actual = _sum_and_log_softmax(
        lambda name: Emulated(name, invocations, SIZE=size, STEP=step, SHIFT=shift), open_device("vulkan"), values
    )
    _compare(actual, values)


def constants(device, length, count=300, inner=1):
    return row_constants(device, length, count, inner)[0]


def test_long_rows_are_reduced_by_subgroups(open_device, monkeypatch):
    device = open_device("vulkan")
    own = device.capabilities
    assert constants(device, 1000) == {"SUBGROUPS": True}
    assert constants(device, 256) == {"ALONE": True}
    assert constants(device, 256, 200) == {}  # rows share a workgroup
    monkeypatch.setattr(device, "capabilities", replace(own, subgroups=False))
    assert constants(device, 1000) == {}


@pytest.mark.parametrize(
    ("description", "software", "features", "does"),
    [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", True, {"subgroups"}, True),
        ("SwiftShader Device (Subzero)", True, {"subgroups"}, False),
        ("NVIDIA GeForce RTX 4090", False, {"subgroups"}, True),
        ("NVIDIA GeForce RTX 4090", False, {"shader-f16"}, False),
    ],
)
def test_adapters_reduce_by_subgroups_where_that_is_faster(description, software, features, does):
    info = AdapterInfo("vulkan", 0, description, software=software, features=frozenset(features))
    assert reduces_by_subgroups(info) == does


@pytest.mark.parametrize("mode", ["False", 1, None])
def test_deterministic_algorithms_are_chosen_by_true_or_false(mode):
    with pytest.raises(TypeError, match="must be True or False"):
        ow.use_deterministic_algorithms(mode)
    assert not ow.are_deterministic_algorithms_enabled()


def test_by_deterministic_algorithms_no_row_is_reduced_by_subgroups(by_adapter):
    assert not ow.are_deterministic_algorithms_enabled()
    assert constants(by_adapter, 1000) == {"SUBGROUPS": True}
    ow.use_deterministic_algorithms(True)
    try:
        assert ow.are_deterministic_algorithms_enabled()
        assert constants(by_adapter, 1000) == {}
    finally:
        ow.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", KERNELS)
def test_a_reduction_by_subgroups_waits_twice_and_one_by_memory_three_times(name):
    by_subgroups, by_memory = (_made(name, SUBGROUPS=one).wgsl() for one in (True, False))
    assert by_subgroups.count("workgroupBarrier()") == 2
    assert by_memory.count("workgroupBarrier()") == 4  # of which one is in a loop that workgroups of 64 do not enter
    assert "partial[" not in by_subgroups
    assert "subgroup" not in by_memory

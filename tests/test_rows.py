"""Rows and columns that share a workgroup: values compared with float64 for any length and number, and the grids."""

from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.ops import layer_norm

LENGTHS = [1, 2, 16, 17, 64, 65, 256, 257, 4099]
"""Either side of where fewer rows share a workgroup."""


def random(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 70, 300])
def test_rows_of_any_length_and_number_are_reduced_alike(device, length, count):
    values = random((count, length))
    exact = values.astype(np.float64)
    shifted = exact - exact.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    x, columns = (ow.tensor(values, device=device) for values in (values, np.ascontiguousarray(values.T)))
    near(x.sum(axis=1), exact.sum(1))
    near(columns.sum(axis=0), exact.sum(1))
    near(x.softmax(), np.exp(log_softmax))
    labels = np.arange(count, dtype=np.int32) % length
    losses = ow.cross_entropy(x, ow.tensor(labels, device=device), reduction="none")
    near(losses, -log_softmax[np.arange(count), labels])
    assert x.argmax(axis=1).tolist() == columns.argmax(axis=0).tolist() == values.argmax(1).tolist()


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((4099, 3, 5), (0, 2)),
        ((5, 4099, 3), (0, 1)),
        ((5, 4099, 3), (1,)),
        ((8193, 1, 6, 1), (0, 3)),
        ((4, 1, 5, 1), (1, 3)),
        ((3, 1, 4, 2), (0, 2)),
        ((2, 3, 4, 5, 6), (0, 2, 4)),
    ],
)
def test_sums_over_groups_of_axes(device, shape, axes):
    values = random(shape)
    exact = values.sum(axes, dtype=np.float64)
    near(ow.tensor(values, device=device).sum(axis=axes), exact)
    strided = ow.tensor(np.ascontiguousarray(np.moveaxis(values, 0, -1)), device=device)
    near(ow.ops.permute(strided, (len(shape) - 1, *range(len(shape) - 1))).sum(axis=axes), exact)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [35, 300])
def test_rows_of_any_length_are_normalized_alike(device, length, count):
    values, weight, g = random((count, length)), random(length, 1), random((count, length), 2)
    x, scale = (ow.Parameter(values, device=device) for values in (values, weight))
    y = layer_norm(x, length, scale, eps=0.1)
    y.backward(g)
    exact, h = values.astype(np.float64), g * weight.astype(np.float64)
    size = 1 / np.sqrt(exact.var(1, keepdims=True) + 0.1)
    normalized = (exact - exact.mean(1, keepdims=True)) * size
    near(y, normalized * weight)
    near(scale.grad, (normalized * g).sum(0))
    near(x.grad, size * (h - h.mean(1, keepdims=True) - normalized * (h * normalized).mean(1, keepdims=True)))


@pytest.mark.parametrize(
    ("shape", "axis", "workgroups"),
    [
        ((1000, 10), 1, 32),  # 32 rows in each
        ((256, 32), 1, 16),
        ((256, 64), 1, 32),
        ((256, 256), 1, 128),
        ((256, 257), 1, 256),
        ((3, 32), 1, 2),  # as many as there are
        ((256, 96), 0, 12),  # 8 columns in each, which lie side by side
        ((4096, 96), 0, 96),
    ],
)
def test_short_rows_share_a_workgroup(open_device, monkeypatch, shape, axis, workgroups):
    vulkan = open_device("vulkan")
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, quads=False))  # as on a GPU
    x = ow.tensor(random(shape), device=vulkan)
    reductions = [lambda: x.sum(axis=axis), lambda: x.argmax(axis=axis)]
    for reduce in [*reductions, *[x.softmax] * axis]:
        with ow.profile(vulkan) as p:
            reduce()
        assert [run.grid for run in p.kernels] == [(workgroups, 1, 1)]


@pytest.mark.parametrize(("shape", "is_alone"), [((256, 256), True), ((255, 256), False), ((256, 257), False)])
def test_a_software_adapter_shares_no_row_where_they_are_short_and_many(open_device, shape, is_alone):
    vulkan = open_device("vulkan")
    step = ow.compile(lambda x: x.softmax(), device=vulkan)
    step(ow.ones(shape, device=vulkan))
    (launch,) = step.program.launches
    assert ("workgroupBarrier" not in launch.kernel.wgsl()) == (is_alone and vulkan.capabilities.quads)


@pytest.mark.parametrize("function", [ow.ops.softmax, ow.ops.log_softmax, lambda x: layer_norm(x, 65)])
def test_a_row_that_is_not_finite_changes_no_other(device, function):
    values = random((300, 65))
    whole = function(ow.tensor(values, device=device)).numpy()
    values[100, 3], values[200, 4] = np.nan, np.inf
    marred = function(ow.tensor(values, device=device)).numpy()
    assert np.isnan(marred[100]).all()
    np.testing.assert_array_equal(np.delete(marred, [100, 200], 0), np.delete(whole, [100, 200], 0))


@pytest.mark.parametrize("length", [5, 300, 5000])
@pytest.mark.parametrize("scale", [1, 1e4, 1e38])
def test_it_does_not_matter_where_the_largest_values_of_a_row_are(device, length, scale):
    rising = np.sort(random((3, length)) * np.float32(scale / 10))
    for values in (rising, rising[:, ::-1].copy(), np.roll(rising, length // 2, 1)):
        exact = values.astype(np.float64)
        shifted = exact - exact.max(1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        x = ow.tensor(values, device=device)
        np.testing.assert_allclose(x.softmax().numpy(), np.exp(log_softmax), rtol=1e-5, atol=1e-30)
        np.testing.assert_allclose(ow.ops.log_softmax(x).numpy(), log_softmax, rtol=1e-5, atol=1e-6 * scale)
        labels = ow.tensor(np.full(3, length // 3, np.int32), device=device)
        losses = ow.cross_entropy(x, labels, reduction="none").numpy()
        np.testing.assert_allclose(losses, -log_softmax[:, length // 3], rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("length", [5, 300, 5000])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_an_outlier_costs_layer_norm_no_digits(open_device, length, place):
    values = random((3, length))
    values[:, place] = 1e5
    exact = values.astype(np.float64)
    want = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    got = layer_norm(ow.tensor(values, device=open_device("vulkan")), length).numpy()
    np.testing.assert_allclose(got, want, atol=1e-6 * np.abs(want).max())

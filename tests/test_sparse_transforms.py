"""Gradients of rows through transforms and a GradScaler: as the same gradients with all their rows."""

import numpy as np
import pytest

import optirs_web as ow

T = ow.optim.transforms
SHAPES = ((30, 7), (25,), (9, 2, 3))

TRANSFORMS = {
    "value": lambda: [T.clip_by_value(0.5)],
    "norm": lambda: [T.clip_by_norm(1.0)],
    "global norm": lambda: [T.clip_by_global_norm(1.0)],
    "block rms": lambda: [T.clip_by_block_rms(0.1)],
    "adaptive": lambda: [T.adaptive_clip(0.1)],
    "centralize": lambda: [T.centralize()],
    "several": lambda: [T.clip_by_global_norm(1.0), T.centralize(), T.clip_by_norm(0.3), T.clip_by_value(0.1)],
    "masked": lambda: [
        T.clip_by_norm(0.4, mask=lambda array: array.ndim == 2),
        T.freeze(lambda array: array.ndim == 3),
    ],
    "none of rows": lambda: [T.add_noise(0.5, mask=lambda array: array.ndim == 1)],
}
KINDS = {"rows": (True, True, True), "both kinds": (True, False, True)}
"""Which of the gradients are of rows."""


def gradients(device, step, bad=None):
    """Return gradients of rows, some of them repeated; `bad` is a value in one row."""
    rng = np.random.default_rng(step)
    result = []
    for shape in SHAPES:
        rows = rng.integers(-1, shape[0], 12).astype(np.int32)
        rows[:2] = 3
        values = rng.standard_normal((12, *shape[1:])).astype(np.float32)
        if bad is not None and shape == SHAPES[0]:
            values[1, 2] = bad
        values[rows < 0] = np.nan
        result.append(ow.SparseRows(rows, values, shape, device=device))
    return result


def params_on(device):
    rng = np.random.default_rng(0)
    return [ow.Parameter(rng.standard_normal(shape).astype(np.float32), device=device) for shape in SHAPES]


def numbers(params):
    return [param.tolist() for param in params]


@pytest.mark.parametrize("are_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("checked", [False, True])
def test_transforms_see_the_rows_of_the_whole_gradient(device, transforms, are_rows, checked):
    if transforms is TRANSFORMS["none of rows"]:
        are_rows = (True, False, True)
    results = []
    for kinds in (are_rows, (False, False, False)):
        params = params_on(device)
        optimizer = ow.optim.SGD(params, lr=0.1, transforms=transforms(), skip_nonfinite=checked)
        for step in range(4):
            grads = gradients(device, step, np.inf if checked and step == 2 else None)
            optimizer.step(
                grads=[grad if is_sparse else grad.to_dense() for grad, is_sparse in zip(grads, kinds, strict=True)]
            )
        assert optimizer.skipped_steps == int(checked)
        results.append(numbers(params))
    assert results[0] == results[1]


@pytest.mark.parametrize("are_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("transforms", [list, TRANSFORMS["global norm"]], ids=["plain", "clipped"])
def test_a_scaler_steps_and_skips_as_with_whole_gradients(device, are_rows, unscaled, transforms):
    results = []
    for kinds in (are_rows, (False, False, False)):
        params = params_on(device)
        optimizer = ow.optim.Adagrad(params, lr=0.1, transforms=transforms())
        scaler = ow.optim.GradScaler(device, init_scale=1024.0, growth_interval=2)
        scales = []
        for step in range(6):
            grads = gradients(device, step, np.nan if step in (1, 2) else None)
            for param, grad, is_sparse in zip(params, grads, kinds, strict=True):
                scaled = ow.SparseRows(grad.indices, scaler.scale(grad.values), grad.shape)
                param.grad = scaled if is_sparse else scaled.to_dense()
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        assert scales == [1024, 512, 256, 256, 512, 512]
        assert [entry["step"] for entry in optimizer.state_dict()["state"].values()] == [4, 4, 4]
        results.append([param.numpy() for param in params])
    for array, other in zip(*results, strict=True):
        np.testing.assert_allclose(array, other, rtol=0, atol=1e-6)


def test_unscaled_rows_are_those_of_the_loss(device):
    param = ow.Parameter(np.ones((4, 2), np.float32), device=device)
    scaler, optimizer = ow.optim.GradScaler(device, init_scale=8.0), ow.optim.SparseAdam([param])
    param.grad = ow.SparseRows([1, -1, 3], [[8.0, 16.0], [np.inf, 1.0], [24.0, 0.0]], (4, 2), device=device)
    scaler.unscale_(optimizer)
    assert param.grad.to_dense().tolist() == [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 8.0
    assert optimizer.state_dict()["state"][0]["step"] == 1


def test_a_recorded_step_over_scaled_rows_reads_nothing_back(device):
    param = ow.Parameter(np.ones((40, 4), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param], lr=0.1, state_dtype="bfloat16", transforms=[T.clip_by_value(1.0)])
    scaler = ow.optim.GradScaler(device, init_scale=4.0, growth_interval=2)

    def train_step(rows, values):
        param.grad = ow.SparseRows(rows, scaler.scale(values), param.shape)
        scaler.step(optimizer)
        scaler.update()

    step = ow.compile(train_step, device=device)
    rng = np.random.default_rng(0)
    scales = []
    for bad in (0.0, 0.0, np.nan, 0.0):
        values = rng.standard_normal((10, 4)).astype(np.float32) + np.float32(bad)
        before = device.stats.copy()
        step(rng.integers(0, 40, 10).astype(np.int32), values)
        cost = device.stats - before
        scales.append(scaler.get_scale())
    assert (cost.replays, cost.bytes_down) == (1, 0)
    assert scales == [4.0, 8.0, 4.0, 4.0]
    assert optimizer.state_dict()["state"][0]["step"] == 3


def test_elementwise_transforms_ask_for_no_whole_gradient(device):
    param = ow.Parameter(np.ones((40, 4), np.float32), device=device)
    optimizer = ow.optim.SparseAdam([param], transforms=[T.clip_by_value(1.0)], skip_nonfinite=True)
    optimizer.step(grads=[ow.SparseRows([3], np.ones((1, 4)), param.shape, device=device)])
    assert param._home.arena._grads is None

"""Map functions over strided tensors, in the loops of software adapters and of GPUs."""

from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops

SHAPES = [(7,), (5, 1), (6, 4), (3, 5, 7), (40, 3, 9), (2, 3, 4, 5), (2, 3, 1, 5, 2), (2, 2, 3, 2, 3, 2)]


@pytest.mark.parametrize("software", [True, False], ids=["adjacent elements", "adjacent invocations"])
def test_strided_maps_equal_numpy(open_device, monkeypatch, software):
    device = open_device("vulkan")
    monkeypatch.setattr(device.backend, "info", replace(device.backend.info, software=software))
    monkeypatch.setattr(device.backend, "_pipelines", {})  # those that are compiled have the loop of this adapter
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        x, y = (rng.standard_normal(shape, np.float32) for _ in range(2))
        column, last_axis_first = y[..., :1], np.ascontiguousarray(np.moveaxis(y, -1, 0))
        on_device = [ow.tensor(values, device=device) for values in (x, column, last_axis_first)]

        def step(x, column, last_axis_first):
            y = ops.permute(last_axis_first, (*range(1, last_axis_first.ndim), 0))
            return y + 0.0, ops.permute(x, tuple(reversed(range(x.ndim)))) * 2.0, (x + column) * y - column

        expected = y, 2 * x.T, (x + column) * y - column
        for result in step(*on_device), ow.compile(step)(*on_device):
            for got, wanted in zip(result, expected, strict=True):
                np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-6, atol=1e-6)
    assert device.backend._pipelines

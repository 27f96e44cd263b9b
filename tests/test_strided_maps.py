"""Map functions over strided tensors, in the loops of software adapters and of GPUs."""

import math
import operator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optirs_web as ow
from optirs_web import ops
from optirs_web.kernel import Take
from optirs_web.native_backends.arrays import numpy_arrays
from optirs_web.native_backends.arrays.tables import Placed
from optirs_web.runtime.mapped import Mapped, Output, StridedView, mapped, relaunched
from optirs_web.runtime.spans import Span

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


# What a map has of a tensor that is placed in a part of it.

DIMS = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@st.composite
def placed_tensors(draw):
    """Return the axes of a map, and a tensor with an axis for each span, of which some go along several axes."""
    dims = draw(DIMS)
    groups = draw(st.integers(1, 2))
    owner = [draw(st.integers(0, groups)) for _ in dims]
    spans, sizes = [], []
    for group in range(groups):
        axes = [axis for axis, own in enumerate(owner) if own == group]
        kind = draw(st.sampled_from(["merged", "windows"]))
        steps, step = [0] * len(dims), 1
        for axis in reversed(axes):
            steps[axis] = step if kind == "merged" else draw(st.integers(1, 3))
            step *= dims[axis]
        spacing = draw(st.integers(1, 3))
        sizes.append(draw(st.integers(1, 6)))
        spans.append((tuple(steps), draw(st.integers(0, 6)), (sizes[-1] - 1) * spacing + 1, spacing))
    strides, rest = [], 1
    for axis, own in enumerate(owner):
        strides.append(rest if own == groups else 0)
        rest *= dims[axis] if own == groups else 1
    tensor = np.arange(1, rest * math.prod(sizes) + 1, dtype=np.float32)
    distances = [rest * math.prod(sizes[number + 1 :]) for number in range(groups)]
    return (
        dims,
        tuple(strides),
        [Span(*span[:3], stride, span[3]) for span, stride in zip(spans, distances, strict=True)],
        tensor,
    )


def elements(dims, strides, spans, tensor, fill):
    """Return the elements one by one."""
    result = np.full(dims, fill, np.float32)
    for at in np.ndindex(dims):
        places = [sum(map(operator.mul, span.steps, at)) - span.start for span in spans]
        if all(0 <= p < span.extent and p % span.spacing == 0 for p, span in zip(places, spans, strict=True)):
            paces = sum(p // span.spacing * span.stride for p, span in zip(places, spans, strict=True))
            result[at] = tensor[sum(map(operator.mul, strides, at)) + paces]
    return result


@settings(max_examples=150)
@given(placed_tensors(), st.data())
def test_placed_elements_are_where_the_definition_says(placed, data):
    dims, strides, spans, tensor = placed
    want = elements(dims, strides, spans, tensor, 0.5)
    arrays = Placed(numpy_arrays, tensor, 0, dims, strides, spans)
    assert np.array_equal(arrays(np.float32(0.5)), want)
    assert np.array_equal(arrays(np.float32(0.5), out=np.empty(dims, np.float32)), want)
    first = data.draw(st.integers(0, dims[0] - 1))
    assert np.array_equal(arrays[first : dims[0]](np.float32(0.5)), want[first:])


@settings(max_examples=60)
@given(placed_tensors())
def test_simpler_spans_and_collapsed_axes_mean_the_same(placed):
    dims, strides, spans, tensor = placed
    cpu = ow.device("cpu")
    source, target = ow.tensor(tensor, device=cpu), ow.zeros(dims, device=cpu)
    view = StridedView(source.view, "f32", 0, strides, None, tuple(spans))
    output = Output(target.view, "f32", "t0")
    launch = relaunched(Mapped(dims, (Take("t0", "x0", fill="s0"),), (view,), (("f32", 0.5),), (output,)), (1, 1, 1))
    cpu.dispatch(launch.kernel, launch.views, 1, launch.parameters)
    assert np.array_equal(target.numpy(), elements(dims, strides, spans, tensor, 0.5))
    again = mapped(launch)
    assert len(again.tensors[0].spans) == len(spans)

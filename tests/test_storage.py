"""shaders/lib/storage.wgsl stores the same bits on every device: NumPy's float16, bfloat16, and the 8-bit map."""

import numpy as np
import pytest
from map_functions import on_each_device
from math_cases import f32_samples

from optirs_web.wgsl import link, package_loader, print_wgsl

TEXT = print_wgsl(link(package_loader()(("lib", "storage"))))


@pytest.fixture(params=["cpu", "vulkan", "webgpu"])
def compute(request):
    """`compute(name, *arguments)`: the function of storage.wgsl over arrays, on each device."""
    return on_each_device(request, TEXT)


@pytest.fixture(scope="module")
def samples():
    return f32_samples(200_000)


def is_subnormal(values):
    return (values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)


def test_float16_is_numpys(compute, samples):
    values = samples[~is_subnormal(samples)]
    with np.errstate(over="ignore"):
        want = values.astype(np.float16)
    got = compute("to_float16", values).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(got, want)


def test_every_float16_comes_back(compute):
    halves = np.arange(1 << 16, dtype=np.uint32)
    got = compute("from_float16", halves)
    np.testing.assert_array_equal(got, halves.astype(np.uint16).view(np.float16).astype(np.float32))


def bfloat16(values):
    """Rounded in float64: the spacing is 2^-8 of the power of two below; ties to even."""
    exponent = np.floor(np.log2(np.abs(values.astype(np.float64))))
    spacing = 2.0 ** (exponent - 7)
    return np.round(values.astype(np.float64) / spacing) * spacing


def test_bfloat16_is_the_nearest(compute, samples):
    values = samples[np.isfinite(samples) & ~is_subnormal(samples) & (samples != 0) & (np.abs(samples) < 3.38e38)]
    got = compute("from_bfloat16", compute("to_bfloat16", values))
    np.testing.assert_array_equal(got, bfloat16(values))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38])
def test_special_values_stay_what_they_are(compute, value):
    values = np.full(64, value, np.float32)
    for name in ("bfloat16", "float16"):
        got = compute(f"from_{name}", compute(f"to_{name}", values))
        np.testing.assert_array_equal(got, np.full(64, np.inf if value == 3.4e38 else value, np.float32))
        assert (np.signbit(got) == np.signbit(values)).all() or np.isnan(value)


def test_stochastic_rounding_is_right_on_average(compute):
    value = np.float32(1 + 3 / 1024)  # three eighths of the way from 1 to 1 + 2^-7
    random = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32)
    got = compute("from_bfloat16", compute("to_bfloat16_stochastic", np.full(random.size, value), random))
    assert set(got.tolist()) == {1.0, 1.0078125}
    assert got.mean() == pytest.approx(value, abs=5e-5)


def test_two_halves_make_the_float32_again(compute, samples):
    special = np.array([0.0, -0.0, np.inf, -np.inf, 3.4028235e38, 1.00390625, 1.01171875, -1.00390625], np.float32)
    values = np.concatenate([special, samples[~np.isnan(samples) & ~is_subnormal(samples)]])
    upper, lower = compute("upper_half", values), compute("lower_half", values)
    assert (upper.view(np.uint32) & 0xFFFF == 0).all()
    assert (lower < 1 << 16).all()
    np.testing.assert_array_equal(compute("join_halves", upper, lower).view(np.uint32), values.view(np.uint32))
    # The upper one is the nearest bfloat16; of two as near that which is farther from zero.
    cut_off = values.view(np.uint32) & 0xFFFF
    is_finite = np.isfinite(values) & (np.abs(values) < 3.38e38) & (values != 0)
    nearest = bfloat16(values[is_finite])
    is_tie = cut_off[is_finite] == 0x8000
    np.testing.assert_array_equal(upper[is_finite][~is_tie], nearest[~is_tie])
    assert is_tie.sum() >= 3
    assert (np.abs(upper) > np.abs(values))[is_finite][is_tie].all()


def test_a_nan_stays_one_in_halves(compute):
    values = np.array([0x7FC00001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(compute("join_halves", compute("upper_half", values), compute("lower_half", values))).all()


def test_what_somebody_else_has_set_is_all_there_is(compute):
    values = np.array([1.2345678, -3.3333333], np.float32)
    np.testing.assert_array_equal(compute("join_halves", values, np.full(2, 0x1234, np.uint32)), values)
    np.testing.assert_array_equal(compute("add_cut_off", values, np.full(2, 0x0012, np.uint32)), values)
    ends = np.array([0.0, -0.0, np.inf, -np.inf], np.float32)
    beyond = np.array([0x8000, 0xFFFF, 0x0001, 0x7FFF], np.uint32)
    joined = compute("join_halves", ends, beyond)
    np.testing.assert_array_equal(joined.view(np.uint32), ends.view(np.uint32))
    np.testing.assert_array_equal(compute("add_cut_off", ends, np.full(4, 0x3F80, np.uint32)), ends)


def test_a_cut_off_is_no_more_than_half_a_spacing(compute):
    rounded = np.repeat(np.array([1.0, -1.0, 1.9921875, 1e30, -(2.0**-100)], np.float32), 2)
    rounded = (rounded.view(np.uint32) & 0xFFFF0000).view(np.float32)
    power = np.exp2(np.floor(np.log2(np.abs(rounded)))).astype(np.float32)
    half, more = power * np.float32(2**-8), power * np.float32(2**-8 * 1.0078125)
    half[::2] *= -1
    np.testing.assert_array_equal(compute("add_cut_off", rounded, half.view(np.uint32) >> 16), rounded + half)
    np.testing.assert_array_equal(compute("add_cut_off", rounded, more.view(np.uint32) >> 16), rounded)


def dynamic_map(signed):
    """The numbers of Dettmers et al. 2022 in order: means of neighbours on a grid over seven decades, 0 and 1."""
    values = [0.0, 1.0]
    for decade in range(7):
        edges = np.linspace(0.1, 1, (1 if signed else 2) * 2**decade + 1)
        means = 10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2
        values += [*means, *(-means if signed else ())]
    return np.array(sorted(values))


@pytest.mark.parametrize("signed", [True, False])
def test_the_map_has_the_numbers_of_the_paper(compute, signed):
    name = "from_dynamic8" if signed else "from_dynamic8_unsigned"
    want = dynamic_map(signed)
    assert want.size == 256
    got = compute(name, np.arange(256, dtype=np.uint32), np.full(256, 2.0, np.float32))
    np.testing.assert_allclose(got, 2 * want, rtol=3e-7)


@pytest.mark.parametrize("signed", [True, False])
def test_a_code_is_that_of_the_nearest_number(compute, signed):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(65_536) * 10.0 ** rng.uniform(-9, 0, 65_536)).astype(np.float32)
    values = values if signed else np.abs(values)
    largest = np.full_like(values, np.abs(values).max())
    codes = compute("to_dynamic8" if signed else "to_dynamic8_unsigned", values, largest)
    numbers, scaled = dynamic_map(signed), values.astype(np.float64) / largest[0]
    distance = np.abs(scaled[:, None] - numbers)
    chosen = distance[np.arange(values.size), codes]
    # Between two numbers that are equally near, rounding decides.
    assert (chosen <= distance.min(axis=1) + 1e-6 * np.abs(scaled)).all()


@pytest.mark.parametrize("name", ["to_dynamic8", "to_dynamic8_unsigned"])
def test_a_block_of_zeros_stays_zero(compute, name):
    zeros = np.zeros(64, np.float32)
    codes = compute(name, zeros, zeros)
    assert (compute(name.replace("to_", "from_"), codes, zeros) == 0).all()

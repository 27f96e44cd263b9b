"""shaders/lib/math.wgsl is as accurate as it says, as printed NumPy, on a WebGPU adapter and in the browser."""

import os
from pathlib import Path

import numpy as np
import pytest
from map_functions import compiled, evaluate, run_in_browser, run_on_gpu
from math_cases import POW_CASE, PREDICATES, UNARY_CASES, f32_samples, pow_samples
from requirements import vulkan_device

SAMPLES = int(os.environ.get("OPTIRS_MATH_SAMPLES", "1000000"))
CHUNK = 1 << 14
TEXT = (Path(__file__).parents[1] / "shaders/lib/math.wgsl").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def library():
    functions, namespace = compiled(TEXT)
    return {function.name: function for function in functions}, namespace


@pytest.fixture(scope="module")
def unary_samples():
    return f32_samples(SAMPLES)


@pytest.fixture(params=["cpu", "vulkan", "webgpu"])
def compute(request, library):
    """`compute(name, *arguments)`: the function of math.wgsl over arrays, on each device."""
    functions, namespace = library

    def on_cpu(name, *arguments):
        parts = []
        for start in range(0, len(arguments[0]), CHUNK):
            leaves = [argument[start : start + CHUNK] for argument in arguments]
            parts.append(evaluate(namespace, functions[name], leaves)[0])
        return np.concatenate(parts)

    def on_vulkan(name, *arguments):
        return run_on_gpu(adapter, TEXT, [functions[name]], list(arguments))[0]

    def in_browser(name, *arguments):
        return run_in_browser(python, TEXT, [functions[name]], list(arguments))[0]

    if request.param == "cpu":
        return on_cpu
    if request.param == "webgpu":
        python = request.getfixturevalue("browser_python")
        return in_browser
    adapter = vulkan_device()
    return on_vulkan


@pytest.mark.parametrize("case", UNARY_CASES, ids=lambda case: case.name)
def test_error_is_within_the_stated_bound(case, compute, unary_samples):
    errors = case.errors(compute(case.name, unary_samples), unary_samples)
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.ulp_bound, f"at {unary_samples[worst]!r}"


def test_error_of_pow_is_within_the_stated_bound(compute):
    base, exponent = pow_samples(SAMPLES)
    errors = POW_CASE.errors(compute(POW_CASE.name, base, exponent), base, exponent)
    worst = int(np.argmax(errors))
    assert errors[worst] <= POW_CASE.ulp_bound, f"at {base[worst]!r}, {exponent[worst]!r}"


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates_are_exact(name, compute, unary_samples):
    assert np.array_equal(compute(name, unary_samples), PREDICATES[name](unary_samples))

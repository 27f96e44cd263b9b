"""shaders/lib/math.wgsl is as accurate as it says, as printed NumPy and JAX, on a WebGPU adapter and in the browser."""

import os
from pathlib import Path

import numpy as np
import pytest
from map_functions import on_each_device
from math_cases import POW_CASE, PREDICATES, UNARY_CASES, f32_samples, pow_samples

from optirs_web.wgsl import link, parse
from optirs_web.wgsl.print_python import compile_python, print_python
from optirs_web.wgsl.python_dialects import NUMPY_IN_DOUBLE

SAMPLES = int(os.environ.get("OPTIRS_MATH_SAMPLES", "1000000"))
TEXT = (Path(__file__).parents[1] / "shaders/lib/math.wgsl").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def unary_samples():
    return f32_samples(SAMPLES)


@pytest.fixture(params=["cpu", "xla", "vulkan", "webgpu"])
def compute(request):
    """`compute(name, *arguments)`: the function of math.wgsl over arrays, on each device."""
    return on_each_device(request, TEXT)


@pytest.mark.parametrize("case", UNARY_CASES, ids=lambda case: case.name)
def test_error_is_within_the_stated_bound(case, compute, unary_samples):
    errors = case.errors(compute(case.name, unary_samples), unary_samples)
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.ulp_bound, f"at {unary_samples[worst]!r}"


@pytest.mark.parametrize(
    "case", [case for case in UNARY_CASES if case.name in NUMPY_IN_DOUBLE.library], ids=lambda case: case.name
)
def test_what_numpy_has_instead_is_rounded_once(case, unary_samples):
    module = link(
        parse(f"import package::lib::math::{case.name};\nfn f(x: f32) -> f32 {{ return {case.name}(x); }}", "f")
    )
    text = print_python(module, NUMPY_IN_DOUBLE)
    assert NUMPY_IN_DOUBLE.library[case.name] in text
    with np.errstate(all="ignore"):
        errors = case.errors(compile_python(text, "f")["f"](unary_samples), unary_samples)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 0.5, f"at {unary_samples[worst]!r}"


def test_error_of_pow_is_within_the_stated_bound(compute):
    base, exponent = pow_samples(SAMPLES)
    errors = POW_CASE.errors(compute(POW_CASE.name, base, exponent), base, exponent)
    worst = int(np.argmax(errors))
    assert errors[worst] <= POW_CASE.ulp_bound, f"at {base[worst]!r}, {exponent[worst]!r}"


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates_are_exact(name, compute, unary_samples):
    assert np.array_equal(compute(name, unary_samples), PREDICATES[name](unary_samples))

"""shaders/lib/error_function.wgsl is as accurate as it says: as printed NumPy, on a WebGPU adapter, in the browser."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
from map_functions import on_each_device
from math_cases import MathCase, f32_samples

from optirs_web.wgsl import link, parse, print_wgsl

SAMPLES = int(os.environ.get("OPTIRS_MATH_SAMPLES", "100000"))
FILE = Path(__file__).parents[1] / "shaders/lib/error_function.wgsl"


def of_each(function):
    """The function of the standard library, over arrays of float64."""
    return lambda x: np.fromiter(map(function, x.tolist()), np.float64, len(x))


CASES = [
    MathCase("precise_erf", of_each(math.erf), 2),
    MathCase("normal_cdf", of_each(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))), 6),
]


@pytest.fixture(params=["cpu", "vulkan", "webgpu"])
def compute(request):
    module = link(parse(FILE.read_text(encoding="utf-8"), FILE.name), roots=[case.name for case in CASES])
    return on_each_device(request, print_wgsl(module))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_is_within_the_stated_bound(case, compute):
    samples = np.concatenate([np.linspace(-14, 14, SAMPLES, dtype=np.float32), f32_samples(SAMPLES)])
    errors = case.errors(compute(case.name, samples), samples)
    worst = int(np.argmax(errors))
    assert errors[worst] <= case.ulp_bound, f"at {samples[worst]!r}"

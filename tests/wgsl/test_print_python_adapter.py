"""Printed NumPy computes what a WebGPU adapter computes."""

from pathlib import Path

import numpy as np
import pytest
from map_functions import compiled, evaluate, parameter_types, run_on_gpu
from printed_cases import CASES, F32
from requirements import vulkan_device

from optirs_web.cli.parity_rows import samples
from optirs_web.wgsl import link, package_loader, parse, print_wgsl
from optirs_web.wgsl.print_python import compile_python, print_python
from optirs_web.wgsl.syntax import Function

SHADERS = Path(__file__).parents[2] / "shaders"
MAP_MODULES = sorted(
    str(path.relative_to(SHADERS))
    for folder in ("elementwise",)  # rules are compared with their sources on every device
    for path in (SHADERS / folder).glob("*.wgsl")
)


@pytest.fixture(scope="module")
def gpu():
    return vulkan_device()


def ulps_apart(a, b):
    """Return the number of floats between two; subnormals count as zero, and NaNs are equal."""

    def ordered(x):
        x = np.where(np.abs(x) < np.float32(2.0**-126), np.float32(0), x)
        bits = x.view(np.int32).astype(np.int64)
        return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

    return np.where(np.isnan(a) & np.isnan(b), 0, np.abs(ordered(a) - ordered(b)))


def assert_agree(got, wanted, leaves, ulps=1):
    got = np.broadcast_to(got, wanted.shape)
    assert got.dtype == wanted.dtype
    distance = ulps_apart(got, wanted) if got.dtype == F32 else (got != wanted).astype(int)
    worst = int(np.argmax(distance))
    assert distance[worst] <= ulps, (
        f"numpy gives {got[worst]!r}, the adapter {wanted[worst]!r}, "
        f"for {[leaf[worst] for leaf in leaves]}, sample {worst}"
    )


# What WGSL leaves open for NaN, and where it allows an adapter less than one ulp of accuracy can give.
FINITE_ONLY = {
    "f32 to i32", "f32 to u32", "to and from bool", "min and max of f32", "of a number and a NaN the number",
    "saturate, fract, step, sign", "early returns", "round is half to even",
}  # fmt: skip
TABLE_ONLY = {
    "f32 remainder has the sign of the dividend", "mix and smoothstep",
    "both sides of a branch run, and only one counts",
    "names that Python keeps for itself",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if name not in TABLE_ONLY])
def test_an_adapter_computes_the_same(name, gpu):
    text, _ = CASES[name]
    functions, namespace = compiled(text)
    random = np.random.default_rng(len(name))
    leaves = [samples(type_, 2048, random) for type_ in parameter_types(functions[-1])]
    if name in FINITE_ONLY:
        leaves = [np.nan_to_num(leaf) if leaf.dtype == F32 else leaf for leaf in leaves]
    expected = run_on_gpu(gpu, text, functions[-1:], leaves)
    for one, other in zip(evaluate(namespace, functions[-1], leaves), expected, strict=True):
        assert_agree(one, other, leaves)


APART = {"elementwise/erf.wgsl": 3}  # a product of two exponentials, each of which may be 1 apart


@pytest.mark.parametrize("path", MAP_MODULES)
def test_an_adapter_computes_the_same_for_every_map_module_of_the_package(path, gpu):
    module = link(parse((SHADERS / path).read_text(), path), package_loader())
    namespace = compile_python(print_python(module), path)
    for function in (d for d in module.declarations if isinstance(d, Function) and d.parameters):
        random = np.random.default_rng(0)
        leaves = [samples(type_, 1024, random) for type_ in parameter_types(function)]
        leaves = [np.nan_to_num(leaf) if leaf.dtype == F32 else leaf for leaf in leaves]
        expected = run_on_gpu(gpu, print_wgsl(module), [function], leaves)
        for one, other in zip(evaluate(namespace, function, leaves), expected, strict=True):
            assert_agree(one, other, leaves, APART.get(path, 1))

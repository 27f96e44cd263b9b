"""Storage in 8 bits against the quantizer that its authors released, bitsandbytes (MIT), in a process of its own."""

import numpy as np
import pytest
from map_functions import on_each_device
from processes import run_with_arrays
from requirements import released
from test_storage import TEXT, dynamic_map

pytestmark = pytest.mark.needs("released")
BLOCK, BLOCKS = 256, 16
KIND = pytest.mark.parametrize("kind", ["signed", "unsigned"])

# On the CPU its quantizer is two programs: a general one, which takes the nearest number as the one for GPUs does, and
# one for float32, which misses it for values close to the middle of two numbers, or to 0 by up to 7 codes.
PROGRAM = """
from bitsandbytes.functional import create_dynamic_map

for kind, signed in (("signed", True), ("unsigned", False)):
    numbers = create_dynamic_map(signed=signed)
    found = {"map": numbers}
    for program, dtype in (("general", torch.float64), ("float32", torch.float32)):
        values = torch.tensor(given[kind], dtype=dtype)
        quantize = torch.ops.bitsandbytes.quantize_blockwise.default
        found[f"codes, {program}"], found["largest"] = quantize(values, numbers, options["block"])
    results.update({f"{kind} {name}": one.numpy() for name, one in found.items()})
"""


@pytest.fixture(params=["cpu", "vulkan", "webgpu"])
def compute(request):
    """`compute(name, *arguments)`: the function of storage.wgsl over arrays, on each device."""
    return on_each_device(request, TEXT)


@pytest.fixture(scope="module")
def values():
    """Sixteen blocks; of both signs, and their squares."""
    normal = np.random.default_rng(0).standard_normal(BLOCK * BLOCKS).astype(np.float32)
    return {"signed": normal, "unsigned": normal * normal}


@pytest.fixture(scope="module")
def theirs(requires, values, tmp_path_factory):
    requires("torch")
    released("bitsandbytes", "bitsandbytes", is_needed=True)
    return run_with_arrays(PROGRAM, {"block": BLOCK}, values, tmp_path_factory.mktemp("released"))


@KIND
def test_the_maps_are_one(theirs, kind):
    np.testing.assert_allclose(theirs[f"{kind} map"], dynamic_map(kind == "signed"), rtol=0, atol=1e-6)


@pytest.fixture
def ours(compute, values):
    """`ours(kind)`: the codes of our map."""

    def quantize(kind):
        name = "to_dynamic8" if kind == "signed" else "to_dynamic8_unsigned"
        return compute(name, values[kind], np.repeat(largest_of(values[kind]), BLOCK)).astype(np.int64)

    return quantize


def largest_of(values):
    return np.abs(values).reshape(BLOCKS, BLOCK).max(axis=1)


@KIND
def test_codes_are_one(theirs, values, ours, kind):
    np.testing.assert_array_equal(theirs[f"{kind} largest"], largest_of(values[kind]))
    np.testing.assert_array_equal(ours(kind), theirs[f"{kind} codes, general"])


@KIND
def test_where_their_program_for_float32_differs_ours_are_nearer(theirs, values, ours, kind):
    codes = theirs[f"{kind} codes, float32"].astype(np.int64)
    scaled = values[kind].astype(np.float64) / np.repeat(largest_of(values[kind]), BLOCK)
    numbers = dynamic_map(kind == "signed")
    differ = ours(kind) != codes
    many, far = (20, 1) if kind == "signed" else (120, 7)
    assert differ.sum() <= many
    assert np.abs(ours(kind) - codes).max() <= far
    # As near as float32 knows the numbers and the quotient.
    farther = np.abs(scaled - numbers[codes]) - np.abs(scaled - numbers[ours(kind)])
    assert (farther[differ] >= -2e-7 * np.abs(scaled)[differ]).all()

"""Storage in 8 bits against the quantizer that its authors released, bitsandbytes (MIT), in a process of its own."""

import numpy as np
import pytest
from map_functions import on_each_device
from processes import run_with_arrays
from requirements import released
from test_storage import TEXT, dynamic_map

BLOCK, BLOCKS = 256, 16
SIGNED = pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])

PROGRAM = """
from bitsandbytes.functional import create_dynamic_map, quantize_blockwise

for kind, signed in (("signed", True), ("unsigned", False)):
    numbers = create_dynamic_map(signed=signed)
    codes, state = quantize_blockwise(torch.tensor(given[kind]), code=numbers, blocksize=options["block"])
    found = {"map": numbers, "codes": codes, "largest": state.absmax}
    results.update({f"{kind} {name}": one.numpy() for name, one in found.items()})
"""


@pytest.fixture(params=["cpu", "vulkan"])
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


@SIGNED
def test_the_maps_are_one(theirs, signed):
    kind = "signed" if signed else "unsigned"
    np.testing.assert_allclose(theirs[f"{kind} map"], dynamic_map(signed), rtol=0, atol=1e-6)


@SIGNED
def test_codes_are_one_but_where_ours_are_nearer(theirs, values, compute, signed):
    """On the CPU theirs takes the farther of two neighbours now and then, for up to 10 or so of 4,096 values.

    Of the squares of those, about 100 become another number than the nearest, up to 7 codes away.
    """
    kind = "signed" if signed else "unsigned"
    largest = np.abs(values[kind]).reshape(BLOCKS, BLOCK).max(axis=1)
    np.testing.assert_array_equal(theirs[f"{kind} largest"], largest)
    name = "to_dynamic8" if signed else "to_dynamic8_unsigned"
    ours = compute(name, values[kind], np.repeat(largest, BLOCK)).astype(np.int64)
    codes = theirs[f"{kind} codes"].reshape(-1).astype(np.int64)
    scaled = values[kind].astype(np.float64) / np.repeat(largest, BLOCK)
    numbers = dynamic_map(signed)
    differ = ours != codes
    many, far = (20, 1) if signed else (120, 7)
    assert differ.sum() <= many
    assert np.abs(ours - codes).max() <= far
    # As near as float32 knows the numbers and the quotient.
    farther = np.abs(scaled - numbers[codes]) - np.abs(scaled - numbers[ours])
    assert (farther[differ] >= -2e-7 * np.abs(scaled)[differ]).all()

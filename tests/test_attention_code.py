"""The machine code of the attention kernels of discrete GPUs: what `benchmarks/attention_code.py` counts in it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from attention_code import KERNELS, OF_DISCRETE, codes_of, is_within_bounds
from product_code import Code


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("tile", "column_tiles"), sorted(OF_DISCRETE))
def test_the_kernels_of_discrete_gpus_multiply_eight_times_for_a_load_and_spill_nothing(name, tile, column_tiles):
    *products, sums = codes_of(name, tile, column_tiles).values()
    assert {code.fma for code in products} == {16 * 4 * tile.own_rows}  # 16 depths with four others
    assert sums.fma == 32 * 4 * tile.own_rows  # of all others that are met at a time, in 32 columns
    for code in (*products, sums):
        assert is_within_bounds(code), code
    if tile.own_rows == 8:
        assert all(code.per_load > 10 for code in products)
        assert sums.per_load == 16


def test_what_is_below_the_figures_is_not_enough():
    enough = Code(instructions=700, fma=512, loads=64, registers=128, spills=0)
    assert is_within_bounds(enough)
    for worse in ({"instructions": 800}, {"loads": 65}, {"spills": 1}):
        assert not is_within_bounds(enough._replace(**worse))

"""The machine code of the product kernel of discrete GPUs: what `benchmarks/product_code.py` counts in it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from product_code import BY_VECTORS, CONVOLUTIONS, DEFAULT, Code, code_of, loops_of

from optirs_web.runtime.products import TILE_CLASSES, by_tiles


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("operands", BY_VECTORS)
def test_the_default_multiplies_eight_times_for_a_load_and_does_little_else(operands):
    code = code_of(by_tiles("matmul", DEFAULT, *BY_VECTORS[operands]))
    assert code.fma == DEFAULT.own_rows * DEFAULT.own_columns * DEFAULT.depth
    assert code.is_within_bounds, code


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("name", "per_load", "share"),
    [*zip(CONVOLUTIONS, (8.0, 8.0, 9.6, 9.6), (0.65, 0.65, 0.77, 0.77), strict=True)],
)
def test_convolutions_multiply_as_often_for_a_load_and_stay_in_registers(name, per_load, share):
    code = code_of(CONVOLUTIONS[name](TILE_CLASSES["intel"].tiles[0]))
    assert (code.per_load, code.spills) == (per_load, 0)
    assert code.share > share  # they also find the pixels


def test_what_is_below_the_figures_is_not_enough():
    enough = Code(instructions=600, fma=512, loads=48, registers=128, spills=0)
    assert enough.is_within_bounds
    for worse in ({"instructions": 700}, {"loads": 65}, {"spills": 1}):
        assert not enough._replace(**worse).is_within_bounds


def test_a_loop_is_what_a_branch_goes_back_over():
    text = """
.L_x_1:
        /*0000*/                   LDS.128 R4, [R8] ;
        /*0010*/                   FFMA R1, R4, R5, R1 ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
        /*0030*/              @!P1 BRA `(.L_x_1) ;
.L_x_2:
        /*0040*/                   EXIT ;
.L_x_3:
        /*0050*/                   BRA `(.L_x_3) ;
"""
    assert loops_of(text) == (["LDS", "FFMA", "BRA", "BRA", "EXIT", "BRA"], [(0, 3)])

"""Random programs compute the same on every target; `make fuzz` tries more of them, see `tests/fuzzing`."""

from dataclasses import replace

import numpy as np
import pytest
from fuzzing import intervals
from fuzzing.choices import Choices, reduced
from fuzzing.search import batches, described, disagreements, programs, smallest
from fuzzing.targets import TARGETS, Program, on_numpy
from map_functions import checked, compiled, evaluate, evaluate_in_jax, run_on_gpu

from optirs_web.wgsl.jax_dialect import JAX
from optirs_web.wgsl.print_python import compile_python, print_python
from optirs_web.wgsl.python_dialects import ATOM, NUMPY

needs = pytest.mark.needs
PROGRAMS, KERNELS = 300, 16
F32 = np.float32


@pytest.fixture(scope="module")
def maps():
    return batches(programs(PROGRAMS, "tests"))


def assert_agreement(batch, targets):
    for program, target in disagreements(batch, targets):
        pytest.fail(f"wrong on {target}:\n{described(smallest(program, target, targets), target, targets)}")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("vulkan", marks=pytest.mark.slow),
        pytest.param("opencl", marks=needs("opencl")),
        pytest.param("quick-xla", marks=needs("xla")),
    ],
)
def test_random_programs_compute_what_numpy_computes(target, maps, open_device):
    open_device(target.removeprefix("quick-"))
    for batch in maps:
        assert_agreement(batch, ["cpu", target])


@needs("g++")
def test_random_kernels_compute_the_same(gpu):
    (batch,) = batches(programs(0, "tests", kernels=KERNELS))
    assert_agreement(batch, ["vulkan", "cuda"])


def test_random_kernels_compute_the_same_on_opencl(gpu, opencl):
    (batch,) = batches(programs(0, "tests", kernels=KERNELS))
    assert_agreement(batch, ["vulkan", "opencl"])


# What WGSL leaves open, found by the search and kept out of its programs: the text, an argument, and the results that
# are right.
ALLOWED = {
    "an integer 0 as a float may be the -0 that the integer was made of, as on llvmpipe": (
        "fn f(x: f32) -> u32 { return bitcast<u32>(f32(i32(x))); }",
        F32(-0.75),
        {0, 0x80000000},
    ),
    "a comparison may take a subnormal number for zero and give it unchanged, as XLA does": (
        "fn f(x: f32) -> u32 { return bitcast<u32>(min(x * x, x)); }",
        F32(1e-40),
        {0, 0x000116C2},
    ),
    "quotients of quotients may overflow by their divisors' product, as by XLA": (
        "fn f(x: f32) -> u32 { return bitcast<u32>(x / x / x); }",
        F32(2.0**-80),
        {0x67800000, 0x7F800000},
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_left_open_is_one_of_what_is_allowed(name, gpu, xla):
    text, argument, allowed = ALLOWED[name]
    functions, namespace = compiled(text)
    leaf = np.full(4, argument)
    in_jax = compile_python(print_python(checked(text), JAX), "test")
    results = [
        evaluate(namespace, functions[0], [leaf]),
        run_on_gpu(gpu, text, functions, [leaf]),
        evaluate_in_jax([in_jax], functions, [[leaf]])[0],
    ]
    assert {int(bits) for (result,) in results for bits in result} <= allowed


# The search itself.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "wrong", "left"),
    [("round", "np.trunc({0} + 0.5)", "round(z)"), ("min f32", "np.minimum({0}, {1})", "min(")],
)
def test_a_wrong_printer_is_found_and_the_program_reduced(row, wrong, left, monkeypatch):
    wrong_dialect = replace(NUMPY, rows={**NUMPY.rows, row: (wrong, ATOM)})

    def broken(batch):
        return on_numpy(batch, wrong_dialect)

    monkeypatch.setitem(TARGETS, "broken", broken)
    targets = ["cpu", "broken"]
    actual = [
        disagreement for batch in batches(programs(30, "tests")) for disagreement in disagreements(batch, targets)
    ]
    assert {target for _, target in actual} == {"broken"}
    program = smallest(actual[0][0], "broken", targets, attempts=120)
    assert left in program.text
    assert program.text.count(";") <= 4
    assert "broken: " in described(program, "broken", targets)


def test_a_seed_and_its_decisions_make_the_same_program():
    for kind in ("exact", "real", "kernel"):
        one = Program.of(kind, "7")
        assert one.text == Program.of(kind, "7").text == Program.of(kind, given=one.choices.taken).text


def test_reduction_leaves_what_matters():
    def numbers(choices):
        return choices.several(lambda: choices.below(1000), 20)

    def attempt(decisions):
        choices = Choices(given=decisions)
        return choices if sum(number >= 77 for number in numbers(choices)) >= 2 else None

    start = Choices(1)
    assert len(numbers(start)) > 5
    left = reduced(start, attempt, attempts=5000)
    assert numbers(Choices(given=left.taken)) == [77, 77]


def test_intervals_hold_what_ieee_computes_and_no_more():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=1000).astype(F32) * 2.0 ** rng.integers(-20, 20, 1000).astype(F32) for _ in "ab")
    x, y = intervals.exactly(a), intervals.exactly(b)
    for actual, value in [
        (intervals.add(x, y), a + b),
        (intervals.divide(x, y), a / b),
        (intervals.fma(x, y, x), a * b + a),
        (intervals.square_root(intervals.absolute(x)), np.sqrt(np.abs(a))),
        (intervals.fract(x), a - np.floor(a)),
    ]:
        assert not intervals.outside(actual, value, may_assume_finite=False).any()
    apart = np.abs(a) * F32(1 + 2.0**-18)
    assert intervals.outside(intervals.absolute(x), apart, may_assume_finite=False).all()


def test_infinities_and_nans_are_allowed_for_and_required():
    edges = np.array([np.nan, np.inf, -np.inf, 3e38, 1e-40, 0.0], F32)
    x = intervals.exactly(edges)
    with np.errstate(all="ignore"):
        doubled, differences = edges * F32(10), edges - edges
    assert not intervals.outside(
        intervals.multiply(x, intervals.exactly(F32(10))), doubled, may_assume_finite=False
    ).any()
    difference = intervals.subtract(x, x)
    assert not intervals.outside(difference, differences, may_assume_finite=False).any()
    zeros = np.zeros(len(edges), F32)
    assert intervals.outside(difference, zeros, may_assume_finite=False).tolist() == [True] * 3 + [False] * 3
    assert not intervals.outside(difference, zeros, may_assume_finite=True).any()
    whole = intervals.absolute(intervals.fract(intervals.exactly(F32([-1, 0, 3]))))
    infinite = intervals.power(whole, intervals.exactly(F32(-1)))
    assert not intervals.outside(infinite, F32([np.inf] * 3), may_assume_finite=False).any()
    flushed = np.where(np.abs(edges) < 1e-38, F32(0), edges)
    assert not intervals.outside(x, flushed, may_assume_finite=False).any()

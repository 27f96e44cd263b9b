"""Printed NumPy computes what WGSL says: hand-written values, and what a WebGPU adapter computes."""

import itertools
import traceback
from pathlib import Path

import numpy as np
import pytest
from map_functions import (
    DTYPES,
    checked,
    compiled,
    evaluate,
    parameter_types,
    result_types,
    run_on_gpu,
)
from requirements import vulkan_device

from optirs_web.errors import UnsupportedError
from optirs_web.wgsl import link, package_loader, parse, print_wgsl
from optirs_web.wgsl.print_python import compile_python, print_python
from optirs_web.wgsl.syntax import Function

SHADERS = Path(__file__).parents[2] / "shaders"
MAP_MODULES = sorted(
    str(path.relative_to(SHADERS))
    for folder in ("elementwise",)  # rules are compared with their sources on every device
    for path in (SHADERS / folder).glob("*.wgsl")
)

F32, I32, U32 = np.float32, np.int32, np.uint32
NAN, INF = np.float32(np.nan), np.float32(np.inf)
MIN, MAX = -(2**31), 2**31 - 1
U32_MAX = 2**32 - 1


# The last function of a text is the one tested. A row: arguments (the leaves of all parameters), results.
CONTROL_FLOW = {
    "early returns": (
        """fn f(x: f32) -> f32 {
            if (x < 0.0) { return -1.0; }
            if (x == 0.0) { return 0.0; }
            return 1.0;
        }""",
        [((-3,), (-1,)), ((0,), (0,)), ((2,), (1,)), ((NAN,), (1,))],
    ),
    "return in one branch, a change in the other": (
        """fn f(x: i32) -> i32 {
            var y = x;
            if (x > 10) { return 100; } else { y += 1; }
            y *= 2;
            return y;
        }""",
        [((11,), (100,)), ((10,), (22,)), ((-1,), (0,))],
    ),
    "nested branches": (
        """fn f(x: i32, y: i32) -> i32 {
            var z = 0;
            if (x > 0) {
                z = 1;
                if (y > 0) { z += 10; if (x == y) { return 7; } } else if (y == 0) { z += 20; }
                z *= 2;
            } else { z = -1; }
            return z;
        }""",
        [((1, 2), (22,)), ((2, 2), (7,)), ((1, 0), (42,)), ((1, -1), (2,)), ((0, 5), (-1,))],
    ),
    "members of nested structs": (
        """struct Inner { a: f32, b: i32 }
        struct Outer { x: f32, inner: Inner, flag: bool }
        fn f(o: Outer, by: i32) -> Outer {
            var changed = o;
            changed.inner.b += by;
            if (o.flag) { changed.inner = Inner(1.5, changed.inner.b * 2); changed.x = -o.x; }
            changed.flag = !changed.flag;
            return changed;
        }""",
        [((2, 3, 4, True, 1), (-2, 1.5, 10, False)), ((2, 3, 4, False, 1), (2, 3, 5, True))],
    ),
    "calls that return structs": (
        """struct Pair { low: i32, high: i32 }
        fn order(a: i32, b: i32) -> Pair {
            if (a < b) { return Pair(a, b); }
            return Pair(b, a);
        }
        fn widen(p: Pair, by: i32) -> Pair { return Pair(p.low - by, p.high + by); }
        fn f(a: i32, b: i32) -> Pair {
            let sorted = order(a, b);
            let wide = widen(sorted, sorted.high - sorted.low);
            return Pair(wide.low, order(wide.high, a).high);
        }""",
        [((1, 4), (-2, 7)), ((4, 1), (-2, 7)), ((5, 5), (5, 5))],
    ),
    "names that shadow others": (
        """fn g(x: i32) -> i32 { return x + 1; }
        fn f(x: i32) -> i32 {
            var y = x;
            { let x = y * 2; y = x; if (y > 4) { let y = 3; return x + y; } }
            for (var x = 0; x < 2; x++) { y += x; }
            let g = g(y);
            return g + x;
        }""",
        [((1,), (5,)), ((3,), (9,))],
    ),
    "a loop": (
        "fn f(x: i32) -> i32 { var s = 0; for (var i = 1; i <= 4; i++) { s = s * x + i; } return s; }",
        [((10,), (1234,)), ((0,), (4,))],
    ),
    "break and continue that depend on data": (
        """fn f(x: i32, y: i32) -> i32 {
            var s = 0;
            for (var i = 0; i < 6; i++) {
                if (i == x) { continue; }
                s += 1;
                if (i == y) { s += 100; break; }
                s += 10;
            }
            return s;
        }""",
        [((9, 9), (66,)), ((2, 9), (55,)), ((9, 2), (123,)), ((0, 0), (55,)), ((1, 2), (112,))],
    ),
    "return out of nested loops": (
        """fn f(x: i32) -> i32 {
            var steps = 0;
            for (var i = 0; i < 3; i++) {
                for (var j = 0; j < 3; j++) {
                    if (j > i) { break; }
                    steps++;
                    if (i * 10 + j == x) { return 1000 + steps; }
                }
                if (x == -i) { continue; }
                steps += 100;
            }
            return steps;
        }""",
        [((99,), (306,)), ((0,), (1001,)), ((11,), (1103,)), ((-1,), (206,)), ((22,), (1206,))],
    ),
    "one way out after another": (
        """fn f(x: i32, y: i32, z: i32) -> i32 {
            var s = 0;
            for (var i = 0; i < 3; i++) {
                if (x > 0) {
                    if (i == y) { break; }
                    if (s == x) { continue; }
                    s += 1;
                }
                if (i == z) { return 100 + s; }
                if (y + z == i) { s += 1000; continue; }
                s += 10;
            }
            return s;
        }""",
        [((0, 1, 1), (110,)), ((1, 1, 1), (11,)), ((1, 2, 1), (112,)), ((11, 5, 5), (11,)), ((0, 4, -3), (1020,)),
         ((1, -1, 1), (1102,)), ((1, 9, -7), (1023,)), ((9, 2, 2), (22,)), ((1, 9, 0), (101,))],
    ),
    "while and loop": (
        """fn f(x: u32) -> u32 {
            var bits = x; var n = 0u; var guard = 0u;
            while (guard < 8u) { guard++; if (bits == 0u) { break; } bits = bits >> 1u; n++; }
            var k = 0u; var i = 0u;
            loop { if (i == n) { k += 50u; continue; } k++; continuing { i++; break if i >= 4u; } }
            return n * 1000u + k;
        }""",
        [((0,), (53,)), ((1,), (1053,)), ((7,), (3053,)), ((255,), (8004,)), ((9999,), (8004,))],
    ),
    "switch": (
        """fn f(x: i32, y: i32) -> i32 {
            var r = 1;
            switch x {
                case 1: { r = 10; }
                case 2, -3: { if (y > 0) { break; } r = 20; }
                default: { r += y; }
                case 4: { return 40; }
            }
            return r + 1;
        }""",
        [((1, 0), (11,)), ((2, 1), (2,)), ((2, 0), (21,)), ((-3, 0), (21,)), ((4, 0), (40,)), ((7, 5), (7,))],
    ),
    "switch within a loop": (
        """fn f(x: u32) -> u32 {
            var r = 0u;
            for (var i = 0u; i < 4u; i++) {
                switch (x >> i) & 3u {
                    case 0u: { continue; }
                    case 1u: { r += 1u; break; }
                    case 2u, default: { r += 10u; }
                }
                r += 100u;
            }
            return r;
        }""",
        [((0,), (0,)), ((1,), (101,)), ((2,), (211,)), ((15,), (431,))],
    ),
    "both sides of a branch run, and only one counts": (
        """fn f(x: f32, n: i32) -> f32 {
            if (n == 0) { return x; }
            return x / f32(10 / n) + sqrt(x);
        }""",
        [((-4, 0), (-4,)), ((4, 5), (4,))],
    ),
    "constants of the module": (
        """const SCALE = 4.0 / 3.0;
        const MASK: u32 = 0xffu << 8u;
        fn f(x: f32, n: u32) -> f32 { const half = 0.5; return x * (SCALE * 0.75) + f32(n & MASK) * half; }""",
        [((2, 0x1234), (2 + 0x1200 / 2,))],
    ),
    "names that Python keeps for itself": (
        "struct in_ { is: i32, lambda: i32 } fn def(np: in_, not: i32) -> i32 { let print = np.is; "
        "let and = print * np.lambda; return and * and + not; }",
        [((2, 3, 4), (40,))],
    ),
    "booleans by branches": (
        """struct R { a: bool, b: bool, c: bool, d: bool }
        fn if_true(a: bool, b: bool) -> bool { if (a) { return true; } return b; }
        fn if_false(a: bool, b: bool) -> bool { if (a) { return false; } return b; }
        fn else_true(a: bool, b: bool) -> bool { if (a) { return b; } return true; }
        fn else_false(a: bool, b: bool) -> bool { if (a) { return b; } return false; }
        fn f(a: bool, b: bool) -> R { return R(if_true(a, b), if_false(a, b), else_true(a, b), else_false(a, b)); }""",
        [((True, True), (True, False, True, True)), ((True, False), (True, False, False, False)),
         ((False, True), (True, True, True, False)), ((False, False), (False, False, True, False))],
    ),
    "one operand for booleans": (
        """fn f(a: bool, b: bool, x: f32) -> bool {
            var r = (a && !b) || x > 1.0;
            if (a == b) { r = !r; }
            return r != (a | (b & true));
        }""",
        [((True, False, 0), (False,)), ((False, False, 0), (True,)), ((True, True, 2), (True,))],
    ),
}  # fmt: skip


def unary(type_, result, expression, *pairs):
    return f"fn f(x: {type_}) -> {result} {{ return {expression}; }}", [((x,), (y,)) for x, y in pairs]


def binary(type_, expression, *triples):
    text = f"fn f(a: {type_}, b: {type_}) -> {type_} {{ return {expression}; }}"
    return text, [((a, b), (c,)) for a, b, c in triples]


ARITHMETIC = {
    "i32 wraps": binary("i32", "a * b + a - b", (MAX, 1, -3), (MIN, 2, MAX - 1), (65536, 65536, 0)),
    "u32 wraps": binary("u32", "a - b * 3u", (0, 1, U32_MAX - 2), (5, U32_MAX, 8)),
    "-MIN is MIN": unary("i32", "i32", "-x", (MIN, MIN), (5, -5)),
    "abs(MIN) is MIN": unary("i32", "i32", "abs(x)", (MIN, MIN), (-5, 5)),
    "i32 division": binary(
        "i32", "a / b", (7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (7, 0, 7), (MIN, 0, MIN),
        (MIN, -1, MIN), (0, 0, 0), (MIN, MIN, 1), (MAX, MIN, 0), (MIN, 2, MIN // 2), (MIN, 3, -715827882),
    ),
    "i32 remainder": binary(
        "i32", "a % b", (7, 2, 1), (-7, 2, -1), (7, -2, 1), (-7, -2, -1), (7, 0, 0), (MIN, -1, 0), (MIN, 3, -2),
    ),
    "u32 division": binary("u32", "a / b", (7, 2, 3), (7, 0, 7), (U32_MAX, 2, MAX), (0, 0, 0)),
    "u32 remainder": binary("u32", "a % b", (7, 2, 1), (7, 0, 0), (U32_MAX, 10, 5)),
    "i32 division by a literal": unary("i32", "i32", "x / -3 + x % 4", (7, 1), (-7, -1), (MIN, 715827882)),
    "shifts count modulo 32": (
        "fn f(x: i32, n: u32) -> i32 { return (x << n) ^ (x >> n); }",
        [((1, 0), (0,)), ((1, 33), (2,)), ((-8, 34), (-32 ^ -2,)), ((1, 31), (MIN,)), ((MIN, 31), (-1,))],
    ),
    "u32 shifts": (
        "fn f(x: u32, n: u32) -> u32 { return (x << n) + (x >> n) + (x << 4u) + (x >> 31u); }",
        [((1, 32), (18,)), ((2**31, 1), (2**30 + 1,)), ((3, 31), (2**31 + 48,))],
    ),
    "bits": (
        "fn f(a: u32, b: i32) -> u32 { return (a & ~u32(b)) | (bitcast<u32>(b) ^ 5u); }",
        [((0xFF, -1), (0xFFFFFFFA,)), ((0xF0, 0), (0xF5,))],
    ),
    "f32 to i32": unary(
        "f32", "i32", "i32(x)", (1.9, 1), (-1.9, -1), (NAN, 0), (INF, 2147483520), (-INF, MIN), (3e9, 2147483520),
        (-3e9, MIN), (2147483520, 2147483520), (1e-40, 0),
    ),
    "f32 to u32": unary(
        "f32", "u32", "u32(x)", (1.9, 1), (-1.9, 0), (NAN, 0), (INF, 4294967040), (-INF, 0), (5e9, 4294967040),
        (4294967040, 4294967040), (3e9, 3000000000),
    ),
    "i32 to f32": unary("i32", "f32", "f32(x)", (16777217, 16777216), (16777219, 16777220), (MAX, 2.0**31)),
    "u32 to f32": unary("u32", "f32", "f32(x)", (U32_MAX, 2.0**32), (2**31 + 128, 2.0**31), (3, 3)),
    "between integers": (
        "struct R { a: u32, b: i32 } fn f(x: i32, y: u32) -> R { return R(u32(x), i32(y)); }",
        [((-1, U32_MAX), (U32_MAX, -1))],
    ),
    "to and from bool": (
        "struct R { a: bool, b: bool, c: f32, d: i32, e: u32 }"
        "fn f(x: f32, y: u32) -> R { let p = bool(x); return R(p, bool(y), f32(p), i32(p), u32(p)); }",
        [((NAN, 2), (True, True, 1, 1, 1)), ((-0.0, 0), (False, False, 0, 0, 0))],
    ),
    "bitcasts": (
        "struct R { a: u32, b: f32, c: i32 }"
        "fn f(x: f32, y: u32) -> R { return R(bitcast<u32>(x), bitcast<f32>(y), bitcast<i32>(y)); }",
        [((1, 0x40490FDB), (0x3F800000, F32(np.pi), 0x40490FDB)), ((-INF, U32_MAX), (0xFF800000, NAN, -1))],
    ),
    "round is half to even": unary("f32", "f32", "round(x)", (0.5, 0), (1.5, 2), (2.5, 2), (-2.5, -2), (2.6, 3)),
    "f32 remainder has the sign of the dividend": binary(
        "f32", "a % b", (5.5, 2, 1.5), (-5.5, 2, -1.5), (5.5, -2, 1.5)
    ),
    "min and max of f32": binary("f32", "min(a, b) - max(a, b)", (1, 2, -1), (-3, -4, -1), (INF, 1, -INF)),
    "of a number and a NaN the number": binary("f32", "min(a, b) + max(b, a)", (NAN, 2, 4), (3, NAN, 6)),
    "min, max, clamp of i32": binary(
        "i32", "min(a, b) * 100 + max(a, b) * 10 + clamp(a, -1, b)", (1, 2, 121), (-5, 3, -471)
    ),
    "saturate, fract, step, sign": unary(
        "f32", "f32", "saturate(x) + 10.0 * fract(x) + 100.0 * step(1.0, x) + 1000.0 * sign(x)",
        (1.5, 1106), (-0.25, -992.5), (0, 0),
    ),
    "mix and smoothstep": binary("f32", "mix(a, b, 0.25) + smoothstep(a, b, 2.5)", (2, 4, 2.65625)),
    "bit counts of u32": unary(
        "u32", "u32", "countOneBits(x) + 100u * countLeadingZeros(x) + 10000u * countTrailingZeros(x)",
        (0, 323200), (1, 3101), (0x80000000, 310001), (U32_MAX, 32), (0x00F0, 42404),
    ),
    "bit counts of i32": unary(
        "i32", "i32", "countOneBits(x) + 100 * countLeadingZeros(x) + 10000 * countTrailingZeros(x)",
        (0, 323200), (-1, 32), (MIN, 310001),
    ),
    "first bits of i32": unary(
        "i32", "i32", "firstLeadingBit(x) * 100 + firstTrailingBit(x)", (0, -101), (-1, -100), (8, 303), (-9, 300),
    ),
    "first bits of u32": unary(
        "u32", "u32", "firstLeadingBit(x) * 100u + firstTrailingBit(x)", (8, 303), (0, U32_MAX - 100), (U32_MAX, 3100),
    ),
    "reverseBits": unary("u32", "u32", "reverseBits(x)", (1, 2**31), (0xF0, 0x0F000000)),
    "extractBits": (
        "struct R { a: u32, b: i32 } fn f(x: u32, o: u32, n: u32) -> R {"
        "return R(extractBits(x, o, n), extractBits(bitcast<i32>(x), o, n)); }",
        [((0xF0, 4, 4), (15, -1)), ((0x70, 4, 4), (7, 7)), ((5, 0, 0), (0, 0)), ((2**31, 0, 32), (2**31, MIN)),
         ((U32_MAX, 40, 3), (0, 0)), ((2**31, 31, 9), (1, -1))],
    ),
    "insertBits": (
        "fn f(x: u32, b: u32, o: u32, n: u32) -> u32 { return insertBits(x, b, o, n); }",
        [((0, 0xFF, 4, 4), (0xF0,)), ((U32_MAX, 0, 8, 8), (0xFFFF00FF,)), ((7, 1, 0, 32), (1,)), ((7, 1, 3, 0), (7,))],
    ),
}  # fmt: skip

CASES = {**CONTROL_FLOW, **ARITHMETIC}


def same(got, expected):
    return np.array_equal(got, expected, equal_nan=got.dtype == np.float32)


@pytest.mark.parametrize("name", CASES)
def test_hand_written_values_for_scalars_and_arrays(name):
    text, rows = CASES[name]
    functions, namespace = compiled(text)
    arguments = [DTYPES[t] for t in parameter_types(functions[-1])]
    results = [DTYPES[t] for t in result_types(functions[-1])]
    columns = [np.array(c, t) for c, t in zip(zip(*(a for a, _ in rows), strict=True), arguments, strict=True)]
    expected = [np.array(c, t) for c, t in zip(zip(*(r for _, r in rows), strict=True), results, strict=True)]

    scattered = [np.stack([column, column], 1)[:, 0] for column in columns]
    for chosen in (columns, scattered):
        for got, wanted in zip(evaluate(namespace, functions[-1], chosen), expected, strict=True):
            assert got.dtype == wanted.dtype
            assert same(np.broadcast_to(got, wanted.shape), wanted)
    for row in range(len(rows)):
        for scalar in ([column[row] for column in columns], [np.array(column[row]) for column in columns]):
            for got, wanted in zip(evaluate(namespace, functions[-1], scalar), expected, strict=True):
                assert got.dtype == wanted.dtype
                assert got.shape == ()
                assert same(got, wanted[row])


@pytest.mark.parametrize("name", CASES)
def test_scalars_and_arrays_mix(name):
    text, rows = CASES[name]
    functions, namespace = compiled(text)
    types = [DTYPES[t] for t in parameter_types(functions[-1])]
    for row, varying in itertools.product(rows, range(len(types))):
        leaves = [t(value) for t, value in zip(types, row[0], strict=True)]
        leaves[varying] = np.full((2, 3), leaves[varying])
        for got, wanted in zip(evaluate(namespace, functions[-1], leaves), row[1], strict=True):
            assert got.shape in ((), (2, 3))
            assert same(got, np.full(got.shape, wanted, got.dtype))


# What the text looks like.

ADAM = """
struct Hyper { lr: f32, beta1: f32, eps: f32 }
struct State { exp_avg: f32, exp_avg_sq: f32 }
struct Updated { param: f32, state: State }
fn squared(x: f32) -> f32 { return x * x; }
fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let exp_avg = h.beta1 * state.exp_avg + (1.0 - h.beta1) * grad;
    var exp_avg_sq = state.exp_avg_sq + squared(grad);
    if (param == 0.0) { exp_avg_sq = 0.0; }
    return Updated(param - h.lr * exp_avg / (sqrt(exp_avg_sq) + h.eps), State(exp_avg, exp_avg_sq));
}
"""

ADAM_IN_NUMPY = """\
# adam.wgsl for numpy, printed by optirs_web. Call under np.errstate(all="ignore").
from typing import NamedTuple

import numpy as np

_f_0_0 = np.float32(0.0)
_f_1_0 = np.float32(1.0)


class Hyper(NamedTuple):
    lr: np.float32
    beta1: np.float32
    eps: np.float32


class State(NamedTuple):
    exp_avg: np.float32
    exp_avg_sq: np.float32


class Updated(NamedTuple):
    param: np.float32
    state: State


def _select(otherwise, then, condition):
    if condition.ndim == 0:
        return then if condition else otherwise
    return np.where(condition, then, otherwise)


def squared(x):  # adam.wgsl:5:1
    return x * x


def update(param, grad, state, h):  # adam.wgsl:6:1
    exp_avg = h.beta1 * state.exp_avg + (_f_1_0 - h.beta1) * grad
    exp_avg_sq = _select(state.exp_avg_sq + squared(grad), _f_0_0, param == _f_0_0)
    return Updated(param - h.lr * exp_avg / (np.sqrt(exp_avg_sq) + h.eps), State(exp_avg, exp_avg_sq))
"""


def test_the_text_is_readable_and_the_same_each_time():
    module = checked(ADAM, "adam.wgsl")
    assert print_python(module) == ADAM_IN_NUMPY
    assert print_python(checked(ADAM, "adam.wgsl")) == ADAM_IN_NUMPY


def test_only_the_functions_named_and_what_they_call_are_printed():
    namespace = compile_python(print_python(checked(ADAM, "adam.wgsl"), functions=["squared"]), "some")
    assert "squared" in namespace
    assert not {"update", "Hyper"} & set(namespace)


def test_tracebacks_show_the_printed_line():
    namespace = compile_python(print_python(checked(ADAM, "adam.wgsl")), "shown")
    try:
        namespace["squared"](None)
    except TypeError as error:
        shown = "".join(traceback.format_exception(error))
    assert "<optirs_web shown>" in shown
    assert "return x * x" in shown


def test_any_number_of_early_returns_straightens():
    returns = " ".join(f"if (x == {n}) {{ return {n * n}; }}" for n in range(120))
    functions, namespace = compiled(f"fn f(x: i32) -> i32 {{ {returns} return -1; }}")
    x = np.arange(-1, 122, dtype=I32)
    expected = np.where((x >= 0) & (x < 120), x * x, -1)
    assert np.array_equal(evaluate(namespace, functions[0], [x])[0], expected)


def test_inputs_are_left_as_they_are():
    text, _ = CONTROL_FLOW["break and continue that depend on data"]
    functions, namespace = compiled(text)
    x, y = np.arange(6, dtype=I32), np.arange(6, dtype=I32)[::-1].copy()
    before = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    evaluate(namespace, functions[-1], [x, y])
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


def test_a_built_in_that_the_dialect_lacks_is_named():
    module = checked("fn f(x: u32) -> u32 { return dot4U8Packed(x, x); }")
    with pytest.raises(UnsupportedError, match=r"test.wgsl:1:\d+: 'dot4U8Packed u32'"):
        print_python(module)


@pytest.mark.parametrize(
    "text",
    [
        "fn _g(x: f32) -> f32 { return x; } fn g_(x: f32) -> f32 { return x; }",
        "struct S { _a: f32, a_: f32 } fn f(s: S) -> f32 { return s.a_; }",
    ],
)
def test_names_that_python_cannot_tell_apart_are_refused(text):
    with pytest.raises(UnsupportedError, match=r"'_(g|a)' and '(g|a)_' are one name"):
        print_python(checked(text))


# Against a WebGPU adapter.


@pytest.fixture(scope="module")
def gpu():
    return vulkan_device()


FLOATS = [0, 0.25, 0.5, 1, 1.5, 2.5, 3, 7.75, 100.5, 2**23 + 0.5, 2.0**31, 2.0**31 - 128, 2.0**32 - 256,
          2.0**32, 3.4e38, 1.2e-38, INF]  # fmt: skip
INTEGERS = [0, 1, 2, 3, 4, 5, 7, 10, 22, 31, 32, 33, 255, 256, 65535, 65536, 2**24 + 1, MAX - 1, MAX]


def samples(type_, count, random):
    """Edge cases and random values; half of the integers are small."""
    if type_ == "bool":
        return random.random(count) < 0.5
    if type_ == "f32":
        edges = np.array([*FLOATS, *(-x for x in FLOATS), NAN], F32)
        values = (random.normal(size=count) * 2.0 ** random.integers(-10, 40, count)).astype(F32)
    else:
        edges = np.array([*INTEGERS, *(-1 - x for x in INTEGERS)], np.int64).astype(np.uint32)
        values = random.integers(0, 2**32, count, dtype=np.uint32)
        small = random.integers(-12, 12, count).astype(np.uint32)
        values = np.where(random.random(count) < 0.5, small, values)
    chosen = np.where(random.random(count) < 0.4, random.choice(edges, count), values)
    return chosen.astype(F32) if type_ == "f32" else chosen.view(DTYPES[type_])


def ulps_apart(a, b):
    """How many floats lie between; subnormals count as zero, and of two NaN any are equal."""

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
    wanted = run_on_gpu(gpu, text, functions[-1:], leaves)
    for one, other in zip(evaluate(namespace, functions[-1], leaves), wanted, strict=True):
        assert_agree(one, other, leaves)


@pytest.mark.parametrize("path", MAP_MODULES)
def test_an_adapter_computes_the_same_for_every_map_module_of_the_package(path, gpu):
    module = link(parse((SHADERS / path).read_text(), path), package_loader())
    namespace = compile_python(print_python(module), path)
    for function in (d for d in module.declarations if isinstance(d, Function) and d.parameters):
        random = np.random.default_rng(0)
        leaves = [samples(type_, 1024, random) for type_ in parameter_types(function)]
        leaves = [np.nan_to_num(leaf) if leaf.dtype == F32 else leaf for leaf in leaves]
        wanted = run_on_gpu(gpu, print_wgsl(module), [function], leaves)
        for one, other in zip(evaluate(namespace, function, leaves), wanted, strict=True):
            assert_agree(one, other, leaves)

"""WGSL functions with hand-written results, for the tests of printed code."""

import numpy as np

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
    "squares and abs of i32 may be negative": unary(
        "i32", "i32", "x * x / 4 + x * x % 4 + select(0, 100, x * x < 0) + select(0, 1000, abs(x) < 0)",
        (228337701, -312941128), (3, 3), (MIN, 1000),
    ),
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
